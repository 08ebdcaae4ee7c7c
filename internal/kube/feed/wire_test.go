// SPDX-License-Identifier: Apache-2.0

package feed

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

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
	"github.com/nodegate/nodegate/internal/kube/packed"
	"github.com/nodegate/nodegate/internal/kube/wire"
	"github.com/nodegate/nodegate/internal/kube/wire/wiretest"
)

// thinly returns the serializer of clients that decode only what facts require.
func thinly() runtime.NegotiatedSerializer {
	return wire.NewSerializer(wiretest.Whole, wire.Options{})
}

// received decodes an object as a client does.
func received[O runtime.Object](t testing.TB, s runtime.NegotiatedSerializer, data []byte, into O) O {
	t.Helper()
	if _, _, err := wiretest.Protobuf(t, s).Serializer.Decode(data, nil, into); err != nil {
		t.Fatal(err)
	}
	return into
}

// anything fills an object with random values.
func anything(seed int64, o any) {
	fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), scheme.Codecs).NilChance(0.2).NumElements(0, 4).Fill(o)
}

// The facts about a Node, even when packed, do not depend on whether the Node was decoded
// as a whole or in part.
func TestThinNodeFacts(t *testing.T) {
	thin := thinly()
	for seed := range int64(60) {
		node := kubetest.CloudNode(int(seed))
		if seed%3 != 0 {
			anything(seed, node)
		}
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, "gate.nodegate.dev/cilium", `{"state":"Open"}`)
		store := nodestore.New(nodestore.Options{})
		store.Need(needsOf(node))
		data := wiretest.Encode(t, node)
		a, b := received(t, wiretest.Whole, data, &corev1.Node{}), received(t, thin, data, &corev1.Node{})
		if diff := cmp.Diff(store.Convert(a), store.Convert(b)); diff != "" {
			t.Fatalf("facts about a node, seed %d, differ:\n%s", seed, diff)
		}
		store.Pack(a) // numbers the texts
		store.Pack(a)
		if first, second := store.Pack(a), store.Pack(b); !packed.SameFacts(first, second) {
			t.Fatalf("packed facts about a node, seed %d, differ", seed)
		}
	}
}

// needsOf returns needs for everything that a Node contains.
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

// The same applies to Pods, including marked ones, which require managed fields.
func TestThinPodFacts(t *testing.T) {
	for _, query := range []gate.PodQuery{{}, {Annotation: "example.com/ready"}, {Runs: true}} {
		mark := query.Annotation
		thin, dated := wire.NewSerializer(wiretest.Whole, wire.Options{ManagedFields: mark != "", ContainerStates: query.Runs}), 0
		for seed := range int64(60) {
			pod := kubetest.CloudPod("cilium", int(seed))
			if seed%3 != 0 {
				anything(seed, pod)
			}
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "example.com/ready", markValue)
			pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
				Time: new(metav1.Unix(1<<34, 0)), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:example.com/ready":{}}}}`),
			})
			data := wiretest.Encode(t, pod)
			set := NewPods(IgnoreNode, nodestore.New(nodestore.Options{}), query)
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
			t.Errorf("MarkedSince of %d pods is from managed fields, with mark %q", dated, mark)
		}
	}
}

// events is an endless stream that repeats one frame.
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

// frameOf encodes an event as a watch sends it.
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

// sentNode and sentPod return objects of the typical size on the wire.
func sentNode() *corev1.Node {
	n := kubetest.CloudNode(1)
	n.ManagedFields = managed()
	return n
}

func sentPod() *corev1.Pod {
	p := kubetest.CloudPod("cilium", 1)
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

// BenchmarkReceive measures the cost of decoding an event or a response of the API
// server. BenchmarkReceiveWhole measures the same with client-go's serializer.
func BenchmarkReceive(b *testing.B)      { receive(b, thinly()) }
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
