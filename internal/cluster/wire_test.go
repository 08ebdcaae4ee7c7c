// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"math/rand"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"

	"github.com/nodegate/nodegate/internal/cluster/packed"
	"github.com/nodegate/nodegate/internal/cluster/wire"
	"github.com/nodegate/nodegate/internal/cluster/wire/wiretest"
	"github.com/nodegate/nodegate/internal/gate"
)

// thinly is the serializer of clients that decode what facts need.
func thinly(managedFields bool) runtime.NegotiatedSerializer {
	return wire.NewSerializer(wiretest.Whole, wire.Options{ManagedFields: managedFields})
}

// received is an object that a client has decoded.
func received[O runtime.Object](t testing.TB, s runtime.NegotiatedSerializer, data []byte, into O) O {
	t.Helper()
	if _, _, err := wiretest.Protobuf(t, s).Serializer.Decode(data, nil, into); err != nil {
		t.Fatal(err)
	}
	return into
}

// anything fills an object with anything.
func anything(seed int64, o any) {
	fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), scheme.Codecs).NilChance(0.2).NumElements(0, 4).Fill(o)
}

// The facts about a Node are the same, to the packed byte, whether all of it was
// decoded or only what facts need.
func TestFactsOfThinNodesAreThoseOfWholeOnes(t *testing.T) {
	thin := thinly(false)
	for seed := range int64(60) {
		node := fleetNode(int(seed))
		if seed%3 != 0 {
			anything(seed, node)
		}
		node.Annotations = with(node.Annotations, "gate.nodegate.dev/cilium", `{"state":"Open"}`)
		store := newNodeStore(unheard)
		store.need(needsOf(node))
		data := wiretest.Encode(t, node)
		a, b := received(t, wiretest.Whole, data, &corev1.Node{}), received(t, thin, data, &corev1.Node{})
		if diff := cmp.Diff(store.describe(a), store.describe(b)); diff != "" {
			t.Fatalf("facts about a node, seed %d, differ:\n%s", seed, diff)
		}
		store.pack(a) // texts get their numbers
		store.pack(a)
		if first, second := store.pack(a), store.pack(b); !packed.SameFacts(first, second) {
			t.Fatalf("packed facts about a node, seed %d, differ", seed)
		}
	}
}

// needsOf needs all that there is of a Node.
func needsOf(n *corev1.Node) gate.Needs {
	needs := gate.Needs{NodeInfo: []string{
		"architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeletVersion", "machineID", "operatingSystem", "osImage", "systemUUID",
	}}
	for key := range n.Annotations {
		needs.Annotations = append(needs.Annotations, key)
	}
	for name := range n.Status.Allocatable {
		needs.Resources = append(needs.Resources, string(name))
	}
	return needs
}

// The same of Pods; and of those that an annotation marks, with managed fields.
func TestFactsOfThinPodsAreThoseOfWholeOnes(t *testing.T) {
	for _, mark := range []string{"", "example.com/ready"} {
		thin, dated := thinly(mark != ""), 0
		for seed := range int64(60) {
			pod := fleetPod("cilium", int(seed))
			if seed%3 != 0 {
				anything(seed, pod)
			}
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
			pod.Annotations = with(pod.Annotations, "example.com/ready", markValue)
			pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
				Time: new(metav1.Unix(1<<34, 0)), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:example.com/ready":{}}}}`),
			})
			data := wiretest.Encode(t, pod)
			set := newPodSet(nobody, newNodeStore(unheard), mark)
			a, b := received(t, wiretest.Whole, data, &corev1.Pod{}), received(t, thin, data, &corev1.Pod{})
			whole, got := set.describe(a), set.describe(b)
			if diff := cmp.Diff(whole, got); diff != "" || a.Spec.NodeName != b.Spec.NodeName || !cmp.Equal(a.Labels, b.Labels) {
				t.Fatalf("facts about a pod, seed %d, differ:\n%s", seed, diff)
			}
			if got.MarkedSince.Unix() == 1<<34 {
				dated++
			}
		}
		if (dated == 60) != (mark != "") {
			t.Errorf("%d pods are marked since their managed fields say so, with mark %q", dated, mark)
		}
	}
}

// events is a stream of one frame over and over.
type events struct{ frame, rest []byte }

func (e *events) Read(p []byte) (int, error) {
	if len(e.rest) == 0 {
		e.rest = e.frame
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

func (*events) Close() error { return nil }

// frameOf returns an event as a watch sends it.
func frameOf(t testing.TB, o runtime.Object) []byte {
	t.Helper()
	var b bytes.Buffer
	stream := wiretest.Protobuf(t, wiretest.Whole).StreamSerializer
	event := &metav1.WatchEvent{Type: string(watch.Modified), Object: runtime.RawExtension{Raw: wiretest.Encode(t, o)}}
	if err := streaming.NewEncoder(stream.Framer.NewFrameWriter(&b), stream.Serializer).Encode(event); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sentNode and sentPod are as large as the API server has them.
func sentNode() *corev1.Node {
	n := fleetNode(1)
	n.ManagedFields = managed()
	return n
}

func sentPod() *corev1.Pod {
	p := fleetPod("cilium", 1)
	p.ManagedFields = managed()
	p.Labels = map[string]string{"app": "cilium", "controller-revision-hash": "5d9c7b6f9", "pod-template-generation": "1"}
	for _, name := range []string{"agent", "envoy", "metrics"} {
		c := corev1.Container{Name: name, Image: "registry.example.com/" + name + ":v1.2.3", Command: []string{"/" + name, "--verbose"}}
		for _, env := range []string{"NODE_NAME", "POD_NAMESPACE", "GOMEMLIMIT"} {
			c.Env = append(c.Env, corev1.EnvVar{Name: env, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}})
		}
		for _, volume := range []string{"run", "bpf", "config"} {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: "/" + volume})
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	for _, volume := range []string{"run", "bpf", "config"} {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/" + volume}}})
	}
	for _, c := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1700000000, 0)})
	}
	return p
}

func managed() []metav1.ManagedFieldsEntry {
	fields := metav1.NewFieldsV1(strings.Repeat(`{"f:metadata":{"f:annotations":{},"f:labels":{}}}`, 20))
	return []metav1.ManagedFieldsEntry{
		{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: new(metav1.Unix(1700000000, 0)), FieldsType: "FieldsV1", FieldsV1: fields},
		{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: new(metav1.Unix(1700000000, 0)), FieldsType: "FieldsV1", FieldsV1: fields, Subresource: "status"},
	}
}

// BenchmarkReceive is what an event or a response costs from the bytes that the
// API server sent to an object; BenchmarkReceiveWhole is the same as client-go
// does it by itself.
func BenchmarkReceive(b *testing.B)      { receive(b, thinly(false)) }
func BenchmarkReceiveWhole(b *testing.B) { receive(b, wiretest.Whole) }

func receive(b *testing.B, s runtime.NegotiatedSerializer) {
	for name, o := range map[string]runtime.Object{"node event": sentNode(), "pod event": sentPod()} {
		b.Run(name, func(b *testing.B) {
			object, event, framer, err := runtime.NewClientNegotiator(s, corev1.SchemeGroupVersion).StreamDecoder(runtime.ContentTypeProtobuf, nil)
			if err != nil {
				b.Fatal(err)
			}
			decoder := restwatch.NewDecoder(streaming.NewDecoder(framer.NewFrameReader(&events{frame: frameOf(b, o)}), event), object)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := decoder.Decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	data := wiretest.Encode(b, sentNode())
	b.Run("response", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			received(b, s, data, &corev1.Node{})
		}
	})
}
