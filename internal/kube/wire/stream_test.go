// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/nodegate/nodegate/internal/kube/wire/wiretest"
)

// readStream returns the pods that a PodReader reads.
func readStream(from io.Reader, o Options) (pods []corev1.Pod, err error) {
	err = NewPodReader(scheme.Codecs.UniversalDeserializer(), o).Each(from, func(p *corev1.Pod) { pods = append(pods, *p) })
	return pods, err
}

// A list that is received byte by byte has the pods of the decoded list. The beginning of a list
// is an error.
func TestPodReader(t *testing.T) {
	for _, o := range []Options{{}, {Workloads: true, Rejections: true}} {
		for seed := range int64(10) {
			list := randomObject(seed, &corev1.PodList{})
			data := wiretest.Encode(t, list)
			want := pruned(list, o).(*corev1.PodList) //nolint:forcetypeassert // it is one
			got, err := readStream(iotest.OneByteReader(bytes.NewReader(data)), o)
			if d := cmp.Diff(want.Items, got, cmpopts.EquateEmpty()); err != nil || d != "" {
				t.Fatalf("seed %d: %v\n%s", seed, err, d)
			}
			for n := 0; n < len(data)-4; n += 1 + n/50 { // the last four bytes are empty fields
				if got, err := readStream(bytes.NewReader(data[:n]), o); err == nil || len(got) > len(want.Items) {
					t.Fatalf("seed %d: %d of %d bytes have %d pods, and no error", seed, n, len(data), len(got))
				}
			}
		}
	}
}

// Other responses are decoded as a whole, or are errors.
func TestPodReaderOfOthers(t *testing.T) {
	broken := errors.New("connection lost")
	for name, c := range map[string]struct {
		from io.Reader
		pods int
		ok   bool
	}{
		"JSON":             {bytes.NewReader([]byte(`{"kind":"PodList","apiVersion":"v1","items":[{"spec":{"nodeName":"n"}},{}]}`)), 2, true},
		"no pods":          {bytes.NewReader(wiretest.Encode(t, &corev1.PodList{})), 0, true},
		"a pod":            {bytes.NewReader(wiretest.Encode(t, &corev1.Pod{})), 0, false},
		"a status":         {bytes.NewReader(wiretest.Encode(t, &metav1.Status{Code: 410})), 0, false},
		"not JSON":         {bytes.NewReader([]byte("<html>")), 0, false},
		"nothing":          {bytes.NewReader(nil), 0, false},
		"an error":         {iotest.ErrReader(broken), 0, false},
		"no object":        {bytes.NewReader([]byte("k8s\x00")), 0, false},
		"a number":         {bytes.NewReader([]byte("k8s\x00\x08\x01")), 0, false},
		"a length too far": {bytes.NewReader([]byte("k8s\x00\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f")), 0, false},
		"no length":        {bytes.NewReader([]byte("k8s\x00\x0a")), 0, false},
		"half a tag":       {bytes.NewReader([]byte("k8s\x00\xff")), 0, false},
		"two kinds":        {bytes.NewReader([]byte("k8s\x00\x0a\x03\x12\x01P\x0a\x03\x12\x01Q")), 0, false},
		"two lists":        {bytes.NewReader([]byte("k8s\x00\x0a\x09\x12\x07PodList\x12\x02\x0a\x00\x12\x02\x0a\x00")), 0, false},
		"an invalid pod":   {bytes.NewReader([]byte("k8s\x00\x0a\x09\x12\x07PodList\x12\x04\x12\x02\x08\x01")), 0, false},
	} {
		pods, err := readStream(c.from, Options{Workloads: true})
		if len(pods) != c.pods || (err == nil) != c.ok {
			t.Errorf("%s: %d pods, %v", name, len(pods), err)
		}
	}
}
