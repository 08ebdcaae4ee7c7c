// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/bench/scene"
)

// frame returns an event as the API server sends it.
func frame(t rapid.TB, kind string, object runtime.Object, name string) []byte {
	t.Helper()
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: name})
	var raw bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &raw); err != nil {
		t.Fatal(err)
	}
	content, err := (&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: raw.Bytes()}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(content))), content...)
}

func read(t rapid.TB, stream []byte) event {
	t.Helper()
	content, err := (&frames{in: bytes.NewReader(stream)}).next()
	if err != nil {
		t.Fatal(err)
	}
	e, err := parseEvent(content)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// What is read of a node without decoding it is what the whole node says.
func TestNodesAreSeenAsTheyAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node := scene.Node("n", time.Unix(1, 0))
		node.ResourceVersion = "4711"
		node.Spec.Taints = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) corev1.Taint {
			return corev1.Taint{
				Key:    rapid.SampledFrom([]string{scene.Taint.Key, "other", ""}).Draw(t, "key"),
				Value:  rapid.SampledFrom([]string{"", scene.Taint.Key}).Draw(t, "value"),
				Effect: rapid.SampledFrom([]corev1.TaintEffect{scene.Taint.Effect, corev1.TaintEffectNoExecute}).Draw(t, "effect"),
			}
		}), 0, 3).Draw(t, "taints")
		e := read(t, frame(t, "MODIFIED", node, "Node"))
		if e.tainted() != scene.Tainted(node) || e.name() != "n" || e.version() != 4711 || string(e.kind) != "MODIFIED" {
			t.Errorf("%s %s at %d, tainted=%t: %v", e.kind, e.name(), e.version(), e.tainted(), node.Spec.Taints)
		}
	})
}

// The same of a pod.
func TestPodsAreSeenAsTheyAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "q", ResourceVersion: "12"}}
		pod.Spec.NodeName = rapid.SampledFrom([]string{"", "n"}).Draw(t, "node")
		var ready, said bool
		for range rapid.IntRange(0, 3).Draw(t, "conditions") {
			c := corev1.PodCondition{
				Type:   rapid.SampledFrom([]corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady}).Draw(t, "type"),
				Status: rapid.SampledFrom([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}).Draw(t, "status"),
			}
			pod.Status.Conditions = append(pod.Status.Conditions, c)
			if c.Type == corev1.PodReady && !said {
				said, ready = true, c.Status == corev1.ConditionTrue
			}
		}
		e := read(t, frame(t, "ADDED", pod, "Pod"))
		if e.ready() != ready || e.bound() != (pod.Spec.NodeName != "") || e.name() != "p" {
			t.Errorf("%s ready=%t bound=%t: %v on %q", e.name(), e.ready(), e.bound(), pod.Status.Conditions, pod.Spec.NodeName)
		}
	})
}

// No input may crash the observer.
func TestBrokenFramesAreErrorsOrNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		content := rapid.SliceOf(rapid.Byte()).Draw(t, "content")
		if e, err := parseEvent(content); err == nil {
			_, _, _, _ = e.name(), e.tainted(), e.ready(), e.version()
		}
	})
	if _, err := (&frames{in: bytes.NewReader([]byte{255, 255, 255, 255, 1})}).next(); err == nil {
		t.Error("a frame of 4 GiB is believed")
	}
}

func TestOnlyWhatIsNewIsTold(t *testing.T) {
	s := &stream{look: aspectsOfNode, held: map[string]aspects{}}
	open, closed := scene.Node("n", time.Unix(1, 0)), scene.Node("n", time.Unix(1, 0))
	closed.Spec.Taints = []corev1.Taint{scene.Taint}
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	var got []Sighting
	for i, step := range []struct {
		kind string
		node *corev1.Node
	}{{"ADDED", closed}, {"MODIFIED", closed}, {"MODIFIED", open}, {"MODIFIED", open}, {"DELETED", open}, {"ADDED", open}} {
		got = append(got, s.news(read(t, frame(t, step.kind, step.node, "Node")), at(int64(i)))...)
	}
	want := []Sighting{{Tainted, "n", at(0)}, {Open, "n", at(2)}, {Gone, "n", at(4)}, {Open, "n", at(5)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSightingsSurviveTheirLines(t *testing.T) {
	for what := range cut + 1 {
		s := Sighting{what, "agent-node-00001", time.Unix(17, 42)}
		line := s.appendLine(nil)
		got, err := parseSighting(string(line[:len(line)-1]))
		if err != nil || got != s {
			t.Errorf("%v: %v, %v", s, got, err)
		}
	}
	for _, line := range []string{"", "0 n", "x n 1", "7 n 1", "0 n x"} {
		if s, err := parseSighting(line); err == nil {
			t.Errorf("%q is read as %v", line, s)
		}
	}
}

// What an object is now, and when it was first so, are two things.
func TestObserverKnowsNowAndFirst(t *testing.T) {
	o := &Observer{more: make(chan struct{}, 1), ended: make(chan struct{})}
	for what := range o.first {
		o.first[what], o.now[what] = map[string]time.Time{}, map[string]bool{}
	}
	o.note(Sighting{Tainted, "n", time.Unix(1, 0)})
	o.note(Sighting{Open, "n", time.Unix(2, 0)})
	o.note(Sighting{Tainted, "n", time.Unix(3, 0)})
	if at := o.Seen(Tainted)["n"]; at != time.Unix(1, 0) {
		t.Errorf("first seen tainted at %v", at)
	}
	if len(o.now[Open]) != 0 || !o.now[Tainted]["n"] {
		t.Errorf("now %v", o.now)
	}
	o.note(Sighting{cut, "/api/v1/nodes", time.Unix(4, 0)})
	o.note(Sighting{cut, "/api/v1/nodes", time.Unix(5, 0)})
	if o.Cuts() != 2 || !o.now[Tainted]["n"] {
		t.Errorf("%d cuts, now %v", o.Cuts(), o.now)
	}
	o.Reset()
	if len(o.Seen(Tainted)) != 0 || !o.now[Tainted]["n"] {
		t.Errorf("after a reset: seen %v, now %v", o.Seen(Tainted), o.now)
	}
	if err := o.Await(t.Context(), Tainted, 1); err != nil {
		t.Error(err)
	}
}
