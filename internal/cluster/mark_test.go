// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/internal/gate"
)

const readyKey = "startup.example/ready"

// owning is an entry of the managed fields.
func owning(manager, fields string, at int64) metav1.ManagedFieldsEntry {
	when := metav1.Unix(at, 0)
	return metav1.ManagedFieldsEntry{Manager: manager, Time: &when, FieldsV1: metav1.NewFieldsV1(fields)}
}

func TestMarkedSince(t *testing.T) {
	const (
		annotation = `{"f:metadata":{"f:annotations":{".":{},"f:startup.example/ready":{}}}}`
		label      = `{"f:metadata":{"f:annotations":{"f:other":{}},"f:labels":{"f:startup.example/ready":{}}}}`
	)
	created := metav1.Unix(1000, 0)
	annotated := map[string]string{readyKey: "true"}
	for name, c := range map[string]struct {
		annotations map[string]string
		fields      []metav1.ManagedFieldsEntry
		want        int64 // zero for not marked
	}{
		"no annotation":          {nil, []metav1.ManagedFieldsEntry{owning("a", annotation, 2000)}, 0},
		"another value":          {map[string]string{readyKey: "True"}, []metav1.ManagedFieldsEntry{owning("a", annotation, 2000)}, 0},
		"written by one":         {annotated, []metav1.ManagedFieldsEntry{owning("a", annotation, 2000), owning("b", label, 3000)}, 2000},
		"written by two":         {annotated, []metav1.ManagedFieldsEntry{owning("a", annotation, 2000), owning("b", annotation, 3000), owning("c", annotation, 2500)}, 3000},
		"written by nobody":      {annotated, []metav1.ManagedFieldsEntry{owning("b", label, 3000), {Manager: "c"}}, 1000},
		"no managed fields":      {annotated, nil, 1000},
		"fields nobody can read": {annotated, []metav1.ManagedFieldsEntry{owning("a", `{"f:startup.example/ready"`, 2000)}, 1000},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations, ManagedFields: c.fields, CreationTimestamp: created}}
		got := markedSince(pod, readyKey)
		if c.want == 0 && !got.IsZero() || c.want != 0 && !got.Equal(time.Unix(c.want, 0)) {
			t.Errorf("%s: marked since %s, want %d", name, got, c.want)
		}
	}
}

// An annotation that no gate names is no fact, and its coming and going nobody's
// business.
func TestMarksOnlyWhereAsked(t *testing.T) {
	markable := gate.PodQuery{Namespace: query.Namespace, Selector: query.Selector, Annotation: readyKey}
	runFeed(t, func(api *fakeAPI) {
		api.nodes().put(testNode("a", "a1"))
		api.pods(query).put(testPod("p", "p1", "a", false))
	}, func(t *testing.T, f *testFeed) {
		annotated := func(key string) *corev1.Pod {
			p := testPod("p", "p1", "a", false)
			p.Annotations = map[string]string{key: "true"}
			return p
		}
		f.SetNeeds(gate.Needs{Pods: []gate.PodQuery{query, markable}})
		f.told.take()
		f.api.pods(query).put(annotated("other"))
		f.wantTold(t, "an annotation that no query names")
		f.api.pods(query).put(annotated(readyKey))
		f.wantTold(t, "the annotation that one of two names", "a")
		facts := f.facts(t, "a")
		if facts.Pods[markable][0].MarkedSince.IsZero() || !facts.Pods[query][0].MarkedSince.IsZero() {
			t.Errorf("pods = %+v", facts.Pods)
		}
	})
}
