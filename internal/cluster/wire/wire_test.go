// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"math/rand"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/nodegate/nodegate/internal/cluster/wire/wiretest"
)

// decode decodes as a client with a serializer does.
func decode(t testing.TB, with runtime.NegotiatedSerializer, data []byte) (runtime.Object, error) {
	t.Helper()
	return runtime.Decode(with.DecoderToVersion(wiretest.Protobuf(t, with).Serializer, corev1.SchemeGroupVersion), data)
}

// pruned is what is to be left of an object that was decoded whole.
func pruned(o runtime.Object, managedFields bool) runtime.Object {
	switch o := o.(type) {
	case *corev1.Node:
		return prunedNode(o, managedFields)
	case *corev1.Pod:
		return prunedPod(o, managedFields)
	case *corev1.NodeList:
		list := &corev1.NodeList{ListMeta: o.ListMeta}
		for i := range o.Items {
			list.Items = append(list.Items, *prunedNode(&o.Items[i], managedFields))
		}
		return list
	case *corev1.PodList:
		list := &corev1.PodList{ListMeta: o.ListMeta}
		for i := range o.Items {
			list.Items = append(list.Items, *prunedPod(&o.Items[i], managedFields))
		}
		return list
	}
	return o
}

func prunedMeta(m metav1.ObjectMeta, managedFields bool) metav1.ObjectMeta {
	thin := metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds,
		Labels:                     m.Labels, Annotations: m.Annotations,
	}
	for _, o := range m.OwnerReferences {
		thin.OwnerReferences = append(thin.OwnerReferences, metav1.OwnerReference{UID: o.UID, Controller: o.Controller})
	}
	if managedFields {
		thin.ManagedFields = m.ManagedFields
	}
	return thin
}

func prunedNode(n *corev1.Node, managedFields bool) *corev1.Node {
	thin := &corev1.Node{ObjectMeta: prunedMeta(n.ObjectMeta, managedFields)}
	thin.Spec.Taints = n.Spec.Taints
	thin.Status.Allocatable = n.Status.Allocatable
	for _, c := range n.Status.Conditions {
		c.Reason = ""
		thin.Status.Conditions = append(thin.Status.Conditions, c)
	}
	i := &n.Status.NodeInfo
	thin.Status.NodeInfo = corev1.NodeSystemInfo{
		MachineID: i.MachineID, SystemUUID: i.SystemUUID, BootID: i.BootID, KernelVersion: i.KernelVersion, OSImage: i.OSImage,
		ContainerRuntimeVersion: i.ContainerRuntimeVersion, KubeletVersion: i.KubeletVersion,
		OperatingSystem: i.OperatingSystem, Architecture: i.Architecture,
	}
	return thin
}

func prunedPod(p *corev1.Pod, managedFields bool) *corev1.Pod {
	thin := &corev1.Pod{ObjectMeta: prunedMeta(p.ObjectMeta, managedFields)}
	thin.Spec.NodeName = p.Spec.NodeName
	thin.Status.Phase = p.Status.Phase
	for _, c := range p.Status.Conditions {
		thin.Status.Conditions = append(thin.Status.Conditions, corev1.PodCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime})
	}
	for _, s := range p.Status.ContainerStatuses {
		thin.Status.ContainerStatuses = append(thin.Status.ContainerStatuses, corev1.ContainerStatus{ContainerID: s.ContainerID})
	}
	return thin
}

// diff says how two objects differ; empty if they do not.
func diff(want, got runtime.Object) string { return cmp.Diff(want, got) }

// drawn fills an object with anything in all of its fields, also those that
// Kubernetes has yet to get.
func drawn(seed int64, o runtime.Object) runtime.Object {
	fill := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), scheme.Codecs).NilChance(0.2).NumElements(0, 4)
	fill.Fill(o)
	switch o := o.(type) { // what it leaves out
	case *corev1.Node:
		for i := range o.Spec.Taints {
			o.Spec.Taints[i].TimeAdded = new(metav1.Unix(seed, 0))
		}
	case metav1.ListMetaAccessor:
		o.GetListMeta().SetContinue("more")
	}
	return o
}

// kinds are those that are decoded thin.
func kinds() []runtime.Object {
	return []runtime.Object{&corev1.Node{}, &corev1.NodeList{}, &corev1.Pod{}, &corev1.PodList{}}
}

// Of any object, thin decoding leaves what whole decoding has of those fields
// that are kept. A field of another number would be missing or hold another's.
func TestThinIsWholeLessWhatIsNotKept(t *testing.T) {
	kept := make(map[string]bool)
	for _, o := range []Options{{}, {ManagedFields: true}} {
		with := NewSerializer(wiretest.Whole, o)
		for _, kind := range kinds() {
			for seed := range int64(40) {
				whole, thin := decodeBoth(t, with, wiretest.Encode(t, drawn(seed, empty(kind))))
				if d := diff(pruned(whole, o.ManagedFields), thin); d != "" {
					t.Fatalf("thin decoding of %T, seed %d, differs:\n%s", kind, seed, d)
				}
				note(kept, "", reflect.ValueOf(thin).Elem())
			}
		}
	}
	for _, field := range []string{
		".ObjectMeta.ManagedFields", ".ObjectMeta.DeletionGracePeriodSeconds", ".ObjectMeta.OwnerReferences[].Controller",
		".Spec.Taints[].TimeAdded", ".Spec.NodeName", ".Status.Allocatable", ".Status.Conditions[].Message",
		".Status.NodeInfo.BootID", ".Status.ContainerStatuses[].ContainerID", ".Items[].ObjectMeta.UID", ".ListMeta.Continue",
	} {
		if !kept[field] {
			t.Errorf("%s was in no object that was drawn", field)
		}
	}
}

// decodeBoth decodes what was sent, whole and as a serializer does. What was
// decoded is not in the memory of what was sent, which is overwritten.
func decodeBoth(t *testing.T, with runtime.NegotiatedSerializer, data []byte) (whole, thin runtime.Object) {
	t.Helper()
	whole, err := decode(t, wiretest.Whole, data)
	if err != nil {
		t.Fatal(err)
	}
	if thin, err = decode(t, with, data); err != nil {
		t.Fatal(err)
	}
	clear(data)
	return whole, thin
}

// empty returns a new object of a kind.
func empty(kind runtime.Object) runtime.Object {
	return reflect.New(reflect.TypeOf(kind).Elem()).Interface().(runtime.Object) //nolint:forcetypeassert // as the one of that kind is
}

// note notes which fields are not empty.
func note(kept map[string]bool, path string, v reflect.Value) {
	if v.IsZero() {
		return
	}
	kept[path] = true
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				note(kept, path+"."+v.Type().Field(i).Name, v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			note(kept, path+"[]", v.Index(i))
		}
	}
}

// A message that comes in two parts is merged: what comes once is the last,
// what comes repeatedly is all.
func TestMessagesMerge(t *testing.T) {
	for _, kind := range kinds() {
		for seed := range int64(10) {
			first := drawn(seed, empty(kind))
			second := drawn(seed+1000, empty(kind))
			raw := append(rawOf(t, first), rawOf(t, second)...)
			data := wiretest.Encode(t, &runtime.Unknown{TypeMeta: typeOf(t, first), Raw: raw})
			whole, err := decode(t, wiretest.Whole, data)
			if err != nil {
				t.Fatal(err)
			}
			thin, err := decode(t, NewSerializer(wiretest.Whole, Options{}), data)
			if d := diff(pruned(whole, false), thin); d != "" || err != nil {
				t.Fatalf("merging two of %T: %v\n%s", kind, err, d)
			}
		}
	}
}

func rawOf(t *testing.T, o runtime.Object) []byte {
	t.Helper()
	raw, err := o.(interface{ Marshal() ([]byte, error) }).Marshal() //nolint:forcetypeassert // all kinds can
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func typeOf(t *testing.T, o runtime.Object) runtime.TypeMeta {
	t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.TypeMeta{APIVersion: "v1", Kind: kinds[0].Kind}
}

// Of whatever is sent, thin decoding and whole decoding say the same, if
// neither fails; and nothing has it panic.
func FuzzDecode(f *testing.F) {
	meta := metav1.ObjectMeta{Name: "n", UID: "u", Labels: map[string]string{"a": "b"}, OwnerReferences: []metav1.OwnerReference{{UID: "o", Controller: new(true)}}}
	node := corev1.Node{ObjectMeta: meta, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "k", TimeAdded: new(metav1.Unix(1, 0))}}}}
	node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("2")}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "m"}}
	node.Status.NodeInfo.BootID = "boot"
	pod := corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "n"}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{ContainerID: "c"}}
	for _, o := range []runtime.Object{&node, &pod, &corev1.NodeList{Items: []corev1.Node{node, node}}, &corev1.PodList{Items: []corev1.Pod{pod}}} {
		data := wiretest.Encode(f, o)
		f.Add(data)
		f.Add(data[:len(data)/2])
	}
	f.Add(wiretest.Encode(f, &metav1.Status{Code: 410}))
	f.Add([]byte("k8s\x00"))
	f.Add([]byte("k8s\x00\x0a\x0a\x0a\x02v1\x12\x04Node\x12\x02\x0a\xff"))
	thinly := NewSerializer(wiretest.Whole, Options{})
	f.Fuzz(func(t *testing.T, data []byte) {
		thin, err := decode(t, thinly, data)
		if err != nil {
			return
		}
		whole, err := decode(t, wiretest.Whole, data)
		if err != nil {
			return // what is passed over may be anything
		}
		if d := diff(pruned(whole, false), thin); d != "" {
			t.Errorf("thin decoding differs:\n%s", d)
		}
	})
}

// What is cut off or of another wire type is an error, not an object with gaps.
func TestMalformed(t *testing.T) {
	envelope := func(kind, raw string) []byte {
		return wiretest.Encode(t, &runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: []byte(raw)})
	}
	for name, data := range map[string][]byte{
		"nothing":                       nil,
		"no prefix":                     []byte("{}"),
		"an empty body":                 []byte("k8s\x00"),
		"metadata that is cut off":      envelope("Node", "\x0a\x10\x0a\x01n"),
		"metadata that is a number":     envelope("Node", "\x08\x01"),
		"a name that is cut off":        envelope("Node", "\x0a\x03\x0a\x05n"),
		"a grace period that is text":   envelope("Pod", "\x0a\x03\x52\x01n"),
		"a time that is cut off":        envelope("Node", "\x0a\x04\x42\x02\x08\xff"),
		"a quantity that is none":       envelope("Node", "\x1a\x0c\x12\x0a\x0a\x01c\x12\x05\x0a\x03abc"),
		"a group that is not closed":    envelope("Pod", "\x0b\x08\x01"),
		"an item that is cut off":       envelope("PodList", "\x12\x05\x0a\x09"),
		"a number of too many bytes":    envelope("Pod", "\x0a\x0c\x50\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		"an envelope that is cut off":   wiretest.Encode(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})[:20],
		"a length of more than is sent": envelope("Node", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
	} {
		if o, err := decode(t, NewSerializer(wiretest.Whole, Options{}), data); err == nil {
			t.Errorf("%s: decoded to %+v", name, o)
		}
	}
}
