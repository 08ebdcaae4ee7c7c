// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"

	"github.com/nodegate/nodegate/internal/kube/wire/wiretest"
)

// sent is an event of a watch.
type sent struct {
	event  watch.EventType
	object runtime.Object
}

// stream encodes events as the API server does.
func stream(t testing.TB, events []sent) io.ReadCloser {
	t.Helper()
	info := wiretest.Protobuf(t, wiretest.Whole).StreamSerializer
	var b bytes.Buffer
	encoder := streaming.NewEncoder(info.NewFrameWriter(&b), info.Serializer)
	for _, e := range events {
		event := &metav1.WatchEvent{Type: string(e.event), Object: runtime.RawExtension{Raw: wiretest.Encode(t, e.object)}}
		if err := encoder.Encode(event); err != nil {
			t.Fatal(err)
		}
	}
	return io.NopCloser(&b)
}

// watching returns a decoder of a stream, as client-go creates it.
func watching(t testing.TB, with runtime.NegotiatedSerializer, from io.ReadCloser) *restwatch.Decoder {
	t.Helper()
	object, event, framer, err := runtime.NewClientNegotiator(with, corev1.SchemeGroupVersion).StreamDecoder(runtime.ContentTypeProtobuf, nil)
	if err != nil {
		t.Fatal(err)
	}
	return restwatch.NewDecoder(streaming.NewDecoder(framer.NewFrameReader(from), event), object)
}

// All events of a watch are decoded: objects in part, bookmarks, and errors as Status.
// Objects do not change when later events are decoded.
func TestWatchEvents(t *testing.T) {
	node := func(name string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", GenerateName: "dropped"}}
	}
	bookmark := node("")
	bookmark.ResourceVersion, bookmark.Annotations = "42", map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	events := []sent{
		{watch.Added, node("a")},
		{watch.Modified, node("b")},
		{watch.Bookmark, bookmark},
		{watch.Deleted, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}}},
		{watch.Error, &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: 410, Message: "too old"}},
	}
	decoder := watching(t, NewSerializer(wiretest.Whole, Options{}), stream(t, events))
	var got []runtime.Object
	for _, e := range events {
		event, o, err := decoder.Decode()
		if err != nil || event != e.event {
			t.Fatalf("%s instead of %s: %v", event, e.event, err)
		}
		got = append(got, o)
	}
	for i, e := range events {
		want := pruned(e.object, Options{})
		if kind := got[i].GetObjectKind().GroupVersionKind(); kind != (schema.GroupVersionKind{}) {
			t.Errorf("%s has kind %s, which client-go removes", e.event, kind)
		}
		want.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		if d := diff(want, got[i]); d != "" {
			t.Errorf("%s:\n%s", e.event, d)
		}
	}
	if _, _, err := decoder.Decode(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last event: %v", err)
	}
}

// Other kinds, other target types, and JSON are decoded as by client-go.
func TestOthersAreDecodedWhole(t *testing.T) {
	with := NewSerializer(wiretest.Whole, Options{})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", GenerateName: "kept"}, Data: map[string][]byte{"k": []byte("v")}}
	if got, err := decode(t, with, wiretest.Encode(t, secret)); err != nil || diff(secret, got) != "" {
		t.Errorf("a Secret: %v\n%s", err, diff(secret, got))
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", GenerateName: "kept"}}
	var unknown runtime.Unknown
	if _, _, err := wiretest.Protobuf(t, with).Serializer.Decode(wiretest.Encode(t, node), nil, &unknown); err != nil || unknown.Kind != "Node" {
		t.Errorf("into Unknown: %v, %s", err, unknown.Kind)
	}
	decoder, err := runtime.NewClientNegotiator(with, corev1.SchemeGroupVersion).Decoder(runtime.ContentTypeJSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := runtime.Decode(decoder, []byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","generateName":"kept"}}`))
	if err != nil || diff(node, got) != "" {
		t.Errorf("JSON: %v\n%s", err, diff(node, got))
	}
}

// Decoding clears what the target object contained before.
func TestDecodeClearsTheTarget(t *testing.T) {
	into := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old", Labels: map[string]string{"old": ""}}, Spec: corev1.NodeSpec{ProviderID: "old"}}
	got, kind, err := wiretest.Protobuf(t, NewSerializer(wiretest.Whole, Options{})).Serializer.Decode(wiretest.Encode(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}}), nil, into)
	if err != nil || got != runtime.Object(into) || *kind != corev1.SchemeGroupVersion.WithKind("Node") {
		t.Fatalf("%v, %v, %v", got, kind, err)
	}
	want := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "new"}}
	if d := diff(want, into); d != "" {
		t.Error(d)
	}
}

// A text equals the bytes it was decoded from, whatever is cached, and does not change
// with them.
func TestTexts(t *testing.T) {
	known := newTexts()
	for range 2 {
		for i := range 3 * textsMax {
			b := []byte{byte(i), byte(i >> 8), 'x'}
			want := string(b)
			got := known.of(b)
			clear(b)
			if got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
	}
	if allocations := testing.AllocsPerRun(100, func() { known.of([]byte("Ready")) }); allocations != 0 {
		t.Errorf("%v allocations for a cached text", allocations)
	}
}

// Texts that many objects share end up in the cache, whatever their hashes, even if other
// texts have filled all slots.
func TestCommonTextsDisplaceRareOnes(t *testing.T) {
	known := newTexts()
	for i := range 8 * textsMax {
		known.of(fmt.Appendf(nil, "rare %d", i))
	}
	common := make([][]byte, textsMax/16)
	for i := range common {
		common[i] = fmt.Appendf(nil, "common %d", i)
	}
	all := func() {
		for _, b := range common {
			known.of(b)
		}
	}
	for range 100 {
		all()
	}
	if allocations := testing.AllocsPerRun(10, all); allocations != 0 {
		t.Errorf("%v allocations for cached texts", allocations)
	}
}
