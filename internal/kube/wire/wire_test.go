// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"math/rand"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/nodegate/nodegate/internal/kube/wire/wiretest"
)

// decode decodes data as a client with this serializer does.
func decode(t testing.TB, with runtime.NegotiatedSerializer, data []byte) (runtime.Object, error) {
	t.Helper()
	return runtime.Decode(with.DecoderToVersion(wiretest.Protobuf(t, with).Serializer, corev1.SchemeGroupVersion), data)
}

// pruned returns what partial decoding should leave of an object.
func pruned(o runtime.Object, with Options) runtime.Object {
	switch o := o.(type) {
	case *corev1.Node:
		return prunedNode(o, with.ManagedFields)
	case *corev1.Pod:
		return prunedPod(o, with)
	case *corev1.NodeList:
		list := &corev1.NodeList{ListMeta: o.ListMeta}
		for i := range o.Items {
			list.Items = append(list.Items, *prunedNode(&o.Items[i], with.ManagedFields))
		}
		return list
	case *corev1.PodList:
		list := &corev1.PodList{ListMeta: o.ListMeta}
		for i := range o.Items {
			list.Items = append(list.Items, *prunedPod(&o.Items[i], with))
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

func prunedPod(p *corev1.Pod, with Options) *corev1.Pod {
	if with.Workloads {
		return prunedWorkload(p, with.Rejections)
	}
	thin := &corev1.Pod{ObjectMeta: prunedMeta(p.ObjectMeta, with.ManagedFields)}
	thin.Spec.NodeName = p.Spec.NodeName
	thin.Status.Phase = p.Status.Phase
	for _, c := range p.Status.Conditions {
		thin.Status.Conditions = append(thin.Status.Conditions, corev1.PodCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime})
	}
	for _, s := range p.Status.ContainerStatuses {
		status := corev1.ContainerStatus{ContainerID: s.ContainerID}
		if with.ContainerStates {
			status.State = s.State
		}
		thin.Status.ContainerStatuses = append(thin.Status.ContainerStatuses, status)
	}
	return thin
}

func prunedWorkload(p *corev1.Pod, rejections bool) *corev1.Pod {
	m := &p.ObjectMeta
	thin := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}}
	if value, ok := m.Annotations[corev1.MirrorPodAnnotationKey]; ok {
		thin.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: value}
	}
	for _, o := range m.OwnerReferences {
		thin.OwnerReferences = append(thin.OwnerReferences, metav1.OwnerReference{Kind: o.Kind, UID: o.UID, Controller: o.Controller})
	}
	thin.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork, Tolerations: p.Spec.Tolerations}
	thin.Status.Phase = p.Status.Phase
	for _, c := range p.Status.Conditions {
		thin.Status.Conditions = append(thin.Status.Conditions, corev1.PodCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime})
	}
	statuses := func(all []corev1.ContainerStatus) (thin []corev1.ContainerStatus) {
		for _, s := range all {
			thin = append(thin, corev1.ContainerStatus{State: s.State, LastTerminationState: s.LastTerminationState, RestartCount: s.RestartCount})
		}
		return thin
	}
	thin.Status.ContainerStatuses, thin.Status.InitContainerStatuses = statuses(p.Status.ContainerStatuses), statuses(p.Status.InitContainerStatuses)
	if rejections {
		thin.ManagedFields, thin.Status.Reason, thin.Status.StartTime = m.ManagedFields, p.Status.Reason, p.Status.StartTime
	}
	return thin
}

// diff returns the difference between two objects, or "".
func diff(want, got runtime.Object) string { return cmp.Diff(want, got) }

// randomObject fills all fields of an object with random values, including fields that
// Kubernetes adds in the future.
func randomObject(seed int64, o runtime.Object) runtime.Object {
	fill := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), scheme.Codecs).NilChance(0.2).NumElements(0, 4)
	fill.Fill(o)
	switch o := o.(type) { // fields that the fuzzer leaves empty
	case *corev1.Node:
		for i := range o.Spec.Taints {
			o.Spec.Taints[i].TimeAdded = new(metav1.Unix(seed, 0))
		}
	case metav1.ListMetaAccessor:
		o.GetListMeta().SetContinue("more")
	}
	return o
}

// kinds returns the kinds that are decoded in part.
func kinds() []runtime.Object {
	return []runtime.Object{&corev1.Node{}, &corev1.NodeList{}, &corev1.Pod{}, &corev1.PodList{}}
}

// Partial decoding of any object returns what whole decoding returns for the selected
// fields. With a wrong field number, a field would be missing or contain another one.
func TestThinDecodingMatchesWholeDecoding(t *testing.T) {
	kept := make(map[string]bool)
	for _, o := range []Options{{}, {ManagedFields: true}, {ContainerStates: true}, {Workloads: true}, {Workloads: true, Rejections: true}} {
		with := NewSerializer(wiretest.Whole, o)
		for _, kind := range kinds() {
			for seed := range int64(40) {
				whole, thin := decodeBoth(t, with, wiretest.Encode(t, randomObject(seed, empty(kind))))
				if d := diff(pruned(whole, o), thin); d != "" {
					t.Fatalf("thin decoding of %T, seed %d, differs:\n%s", kind, seed, d)
				}
				recordFields(kept, "", reflect.ValueOf(thin).Elem())
			}
		}
	}
	for _, field := range []string{
		".ObjectMeta.ManagedFields", ".ObjectMeta.DeletionGracePeriodSeconds", ".ObjectMeta.OwnerReferences[].Controller",
		".Spec.Taints[].TimeAdded", ".Spec.NodeName", ".Status.Allocatable", ".Status.Conditions[].Message",
		".Status.NodeInfo.BootID", ".Status.ContainerStatuses[].ContainerID", ".Spec.Tolerations[].TolerationSeconds", ".Spec.HostNetwork",
		".Status.InitContainerStatuses[].LastTerminationState.Terminated", ".ObjectMeta.Annotations", ".Items[].ObjectMeta.UID", ".ListMeta.Continue",
	} {
		if !kept[field] {
			t.Errorf("%s was in no random object", field)
		}
	}
}

// decodeBoth decodes data as a whole and with a serializer. Then it overwrites data, with
// which the results must not share memory.
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

// recordFields records the paths of all fields that are not empty.
func recordFields(kept map[string]bool, path string, v reflect.Value) {
	if v.IsZero() {
		return
	}
	kept[path] = true
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				recordFields(kept, path+"."+v.Type().Field(i).Name, v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			recordFields(kept, path+"[]", v.Index(i))
		}
	}
}

// A message that is sent in two parts is merged: of a singular field the last value
// counts, of a repeated field all.
func TestMessagesMerge(t *testing.T) {
	for _, kind := range kinds() {
		for seed := range int64(10) {
			first := randomObject(seed, empty(kind))
			second := randomObject(seed+1000, empty(kind))
			raw := append(rawOf(t, first), rawOf(t, second)...)
			data := wiretest.Encode(t, &runtime.Unknown{TypeMeta: typeOf(t, first), Raw: raw})
			whole, err := decode(t, wiretest.Whole, data)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range []Options{{}, {Workloads: true}, {Workloads: true, Rejections: true}} {
				thin, err := decode(t, NewSerializer(wiretest.Whole, o), data)
				if d := diff(pruned(whole, o), thin); d != "" || err != nil {
					t.Fatalf("merging two of %T with %+v: %v\n%s", kind, o, err, d)
				}
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

// FuzzDecode checks that partial and whole decoding agree if neither fails, and that no
// input causes a panic.
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
	with := map[Options]runtime.NegotiatedSerializer{}
	for _, o := range []Options{{}, {Workloads: true}, {Workloads: true, Rejections: true}} {
		with[o] = NewSerializer(wiretest.Whole, o)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for o, thinly := range with {
			thin, err := decode(t, thinly, data)
			if err != nil {
				continue
			}
			whole, err := decode(t, wiretest.Whole, data)
			if err != nil {
				continue // fields that partial decoding skips may be invalid
			}
			if d := diff(pruned(whole, o), thin); d != "" {
				t.Errorf("thin decoding with %+v differs:\n%s", o, d)
			}
			list, ok := thin.(*corev1.PodList)
			if got, err := readStream(bytes.NewReader(data), o); ok && err == nil {
				if d := cmp.Diff(list.Items, got, cmpopts.EquateEmpty()); d != "" {
					t.Errorf("streaming with %+v differs:\n%s", o, d)
				}
			}
		}
	})
}

// The metadata of a list is read without its items, of which not all need to be received,
// and equals that of the decoded list.
func TestListMeta(t *testing.T) {
	for _, kind := range []runtime.Object{&corev1.PodList{}, &corev1.NodeList{}} {
		for seed := range int64(10) {
			want := randomObject(seed, empty(kind))
			data := wiretest.Encode(t, want)
			got, ok := ListMeta(data)
			if d := cmp.Diff(want.(metav1.ListMetaAccessor).GetListMeta(), metav1.ListInterface(&got)); !ok || d != "" {
				t.Fatalf("%T, seed %d: %v\n%s", kind, seed, ok, d)
			}
			for n := range data { // the beginning yields the same or nothing
				if begun, ok := ListMeta(data[:n]); ok && !cmp.Equal(begun, got) {
					t.Fatalf("%T, seed %d: the first %d of %d bytes have %+v, want %+v", kind, seed, n, len(data), begun, got)
				}
			}
		}
	}
	for name, data := range map[string][]byte{
		"JSON": []byte(`{"kind":"PodList","metadata":{"continue":"x"}}`), "nothing": nil,
		"a pod": wiretest.Encode(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "n"}}),
	} {
		if got, ok := ListMeta(data); ok {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Truncated messages and wrong wire types are errors.
func TestMalformed(t *testing.T) {
	envelope := func(kind, raw string) []byte {
		return wiretest.Encode(t, &runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: []byte(raw)})
	}
	for name, data := range map[string][]byte{
		"empty":                             nil,
		"no prefix":                         []byte("{}"),
		"an empty body":                     []byte("k8s\x00"),
		"truncated metadata":                envelope("Node", "\x0a\x10\x0a\x01n"),
		"metadata is a number":              envelope("Node", "\x08\x01"),
		"a truncated name":                  envelope("Node", "\x0a\x03\x0a\x05n"),
		"a grace period is a text":          envelope("Pod", "\x0a\x03\x52\x01n"),
		"a truncated time":                  envelope("Node", "\x0a\x04\x42\x02\x08\xff"),
		"an invalid quantity":               envelope("Node", "\x1a\x0c\x12\x0a\x0a\x01c\x12\x05\x0a\x03abc"),
		"an unclosed group":                 envelope("Pod", "\x0b\x08\x01"),
		"a truncated item":                  envelope("PodList", "\x12\x05\x0a\x09"),
		"a varint of too many bytes":        envelope("Pod", "\x0a\x0c\x50\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		"a truncated envelope":              wiretest.Encode(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})[:20],
		"a length that exceeds the message": envelope("Node", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
	} {
		if o, err := decode(t, NewSerializer(wiretest.Whole, Options{}), data); err == nil {
			t.Errorf("%s: decoded to %+v", name, o)
		}
	}
}
