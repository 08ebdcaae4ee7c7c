// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// Users and taint key of the histories.
const (
	nodegate  = "system:serviceaccount:nodegate-system:nodegate"
	admin     = "admin"
	otherUser = "system:serviceaccount:default:other"
	gateTaint = "example.com/agent"
)

// begin is the time at which histories begin.
var begin = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// A builder builds a history write by write. Each write takes a millisecond and creates
// one revision. Methods that write return the builder.
type builder struct {
	testing.TB
	now      time.Time
	revision int64
	versions []revisions.Version
	writes   []revisions.Write
	requests []revisions.Request
	current  map[revisions.ID]metav1.Object
	created  map[revisions.ID]int64
}

func newBuilder(t testing.TB) *builder {
	s := &builder{TB: t, now: begin, revision: 1, current: make(map[revisions.ID]metav1.Object), created: make(map[revisions.ID]int64)}
	s.put(admin, revisions.KindPolicy, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: birthPolicy}})
	s.put(admin, revisions.KindBinding, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: birthPolicy}})
	return s
}

// pass advances the clock.
func (s *builder) pass(d time.Duration) *builder {
	s.now = s.now.Add(d)
	return s
}

// put commits an object. The caller must not modify the object afterwards.
func (s *builder) put(user string, kind revisions.Kind, object metav1.Object) *builder {
	s.revision++
	id := revisions.ID{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()}
	if _, known := s.current[id]; !known {
		s.created[id] = s.revision
		object.SetCreationTimestamp(metav1.NewTime(s.now.Truncate(time.Second)))
		if object.GetUID() == "" {
			object.SetUID(types.UID(fmt.Sprintf("%s-%d", object.GetName(), s.revision)))
		}
	}
	s.current[id] = object
	stored := object.(runtime.Object).DeepCopyObject().(metav1.Object) //nolint:forcetypeassert // a test's own objects
	s.versions = append(s.versions, revisions.Version{ID: id, Revision: s.revision, Created: s.created[id], Object: stored})
	s.writes = append(s.writes, revisions.Write{
		Revision: s.revision, User: user, AuditID: fmt.Sprint("request-", s.revision), Verb: "patch",
		Received: s.now, Done: s.now.Add(time.Millisecond),
	})
	return s.pass(time.Millisecond)
}

// repeats adds n patches that change nothing to the last revision.
func (s *builder) repeats(user string, n int) *builder {
	for range n {
		s.writes = append(s.writes, revisions.Write{
			Revision: s.revision, User: user, AuditID: fmt.Sprint("again-", s.revision), Verb: "patch",
			Received: s.now, Done: s.now.Add(time.Millisecond),
		})
		s.pass(time.Millisecond)
	}
	return s
}

// remove deletes an object.
func (s *builder) remove(kind revisions.Kind, namespace, name string) *builder {
	s.revision++
	id := revisions.ID{Kind: kind, Namespace: namespace, Name: name}
	s.versions = append(s.versions, revisions.Version{ID: id, Revision: s.revision, Created: s.created[id]})
	delete(s.current, id)
	return s.pass(time.Millisecond)
}

// gate creates a Ready gate that selects all nodes and waits for DaemonSet agent.
func (s *builder) gate(change ...func(*v1alpha1.NodeGate)) *builder {
	ng := &v1alpha1.NodeGate{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", Generation: 1},
		Spec: v1alpha1.NodeGateSpec{
			Taint: v1alpha1.Taint{Key: gateTaint, Effect: corev1.TaintEffectNoSchedule},
			OpenWhen: []v1alpha1.Signal{{Name: "agent", SignalSource: v1alpha1.SignalSource{
				DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "system", Name: "agent"}}}},
		},
	}
	for _, f := range change {
		f(ng)
	}
	for _, condition := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady} {
		ng.Status.Conditions = append(ng.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, ObservedGeneration: 1})
	}
	s.put(admin, revisions.KindNodeGate, ng)
	return s.pass(time.Minute)
}

// daemonGate creates the gate, its DaemonSet, and node "a" on which the gate is closed.
func (s *builder) daemonGate() *builder { return s.gate().daemonSet().born("a") }

// edits changes the gate.
func (s *builder) edits(change func(*v1alpha1.NodeGate)) *builder {
	ng := s.current[revisions.ID{Kind: revisions.KindNodeGate, Name: "agent"}].(*v1alpha1.NodeGate) //nolint:forcetypeassert // a test's own objects
	change(ng)
	return s.put(admin, revisions.KindNodeGate, ng)
}

// contended sets the gate's condition Contended to True.
func contended(ng *v1alpha1.NodeGate) {
	ng.Status.Conditions = append(ng.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionContended, Status: metav1.ConditionTrue, ObservedGeneration: ng.Generation,
	})
}

// idle registers node "a" and creates a gate that closes idle nodes, and closes it on
// the node. Before and after run before and after the creation of the gate.
func (s *builder) idle(before, after func()) *builder {
	s.register("a")
	s.pass(time.Second)
	before()
	s.gate(byLabel, func(ng *v1alpha1.NodeGate) {
		ng.Spec.ExistingNodes, ng.Spec.Budget.MaxReclosed = v1alpha1.ExistingCloseIfIdle, one()
		ng.CreationTimestamp = metav1.NewTime(s.now.Truncate(time.Second))
	})
	s.pass(time.Second - time.Minute) // what was there before the gate is within the lag
	after()
	return s.closes("a", v1alpha1.ReasonExistingIdle)
}

// workload returns a pod that is not owned by a DaemonSet.
func workload(node string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "app"}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase},
	}
}

// Changes of a gate.

func renamed(ng *v1alpha1.NodeGate) { ng.Name = "renamed" }

func paused(ng *v1alpha1.NodeGate) { ng.Spec.Mode, ng.Generation = v1alpha1.ModePaused, 2 }

// ofLabelled changes the gate to select nodes with a label.
func ofLabelled(ng *v1alpha1.NodeGate) {
	ng.Spec.NodeSelector.MatchLabels = map[string]string{"fit": "true"}
}

func withDeadline(ng *v1alpha1.NodeGate) {
	ng.Spec.Deadline = &v1alpha1.Deadline{ReadySeconds: new(int32(60)), Action: v1alpha1.DeadlineOpen}
}

func byCSIDriver(ng *v1alpha1.NodeGate) {
	ng.Spec.OpenWhen[0].SignalSource = v1alpha1.SignalSource{CSIDriver: &v1alpha1.CSIDriverSignal{Name: "csi"}}
}

// byRun changes the gate to wait for a pod that runs once.
func byRun(ng *v1alpha1.NodeGate) {
	ng.Spec.OpenWhen = []v1alpha1.Signal{{Name: "run", SignalSource: v1alpha1.SignalSource{Completed: &v1alpha1.CompletedSignal{
		Namespace: "system", Selector: v1alpha1.EqualitySelector{MatchLabels: map[string]string{"app": "run"}}}}}}
}

// byDevices changes the gate to wait for the pools of a DRA driver, and for a number of devices
// in them.
func byDevices(number int32) func(*v1alpha1.NodeGate) {
	return func(ng *v1alpha1.NodeGate) {
		ng.Spec.OpenWhen[0].SignalSource = v1alpha1.SignalSource{ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: "dra", MinDevices: number}}
	}
}

// byLabel changes the gate to wait for a label of the node.
func byLabel(ng *v1alpha1.NodeGate) {
	ng.Spec.OpenWhen = []v1alpha1.Signal{{Name: "label", SignalSource: v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "fit"}}}}
}

// onRegression also makes the gate reclose when the label is removed, on one node at a
// time.
func onRegression(ng *v1alpha1.NodeGate) {
	byLabel(ng)
	ng.Spec.ReclosePolicy = v1alpha1.RecloseOnRegression
	ng.Spec.Timing.CloseAfterSeconds = new(int32)
	ng.Spec.Budget.MaxReclosed = one()
}

// level changes the gate to close while a condition is True.
func level(ng *v1alpha1.NodeGate) {
	ng.Spec.OpenWhen = nil
	ng.Spec.CloseWhen = []v1alpha1.Signal{{Name: "disk", SignalSource: v1alpha1.SignalSource{
		Condition: &v1alpha1.ConditionSignal{Type: "BadDisk", Status: "True"}}}}
	ng.Spec.Budget.MaxReclosed = one()
}

// manual makes a closeWhen gate open only by hand.
func manual(ng *v1alpha1.NodeGate) { ng.Spec.Reopen = v1alpha1.ReopenManual }

// daemonSet creates DaemonSet agent.
func (s *builder) daemonSet() *builder {
	labels := map[string]string{"app": "agent"}
	s.put(admin, revisions.KindDaemonSet, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "agent", Labels: labels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
	})
	return s
}

// born registers a node on which the birth policy closes the gate.
func (s *builder) born(name string, change ...func(*corev1.Node)) *builder {
	return s.register(name, append([]func(*corev1.Node){withTaint(gateTaint), recorded(record{State: "Closed", Reason: "Birth", Taint: gateTaint + ":NoSchedule", Boot: "boot-1"})}, change...)...)
}

// register registers a node without applying the birth policy.
func (s *builder) register(name string, change ...func(*corev1.Node)) *builder {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	node.Status.NodeInfo.BootID = "boot-1"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, f := range change {
		f(node)
	}
	return s.put("system:node:"+name, revisions.KindNode, node)
}

// edit changes a node as a user.
func (s *builder) edit(user, name string, change ...func(*corev1.Node)) *builder {
	node := s.current[revisions.ID{Kind: revisions.KindNode, Name: name}].(*corev1.Node) //nolint:forcetypeassert // a test's own objects
	for _, f := range change {
		f(node)
	}
	return s.put(user, revisions.KindNode, node)
}

// opens opens the gate on a node as nodegate.
func (s *builder) opens(name string) *builder { return s.opensAs(name, v1alpha1.ReasonSignalsHold) }

// opensAs opens the gate on a node as nodegate, with this reason in the record.
func (s *builder) opensAs(name string, reason v1alpha1.Reason) *builder {
	return s.edit(nodegate, name, withoutTaint(gateTaint), recorded(record{State: "Open", Reason: reason, Boot: s.bootOf(name), Taint: gateTaint + ":NoSchedule"}))
}

// opensByDeadline opens the gate on a node as nodegate, because of its deadline.
func (s *builder) opensByDeadline(name string) *builder {
	return s.opensAs(name, v1alpha1.ReasonDeadlinePassed)
}

// overrides opens the gate on a node as nodegate, because of an override.
func (s *builder) overrides(name string) *builder {
	return s.edit(nodegate, name, withoutTaint(gateTaint), recorded(record{State: "Closed", Reason: "Birth", Override: "Open", Taint: gateTaint + ":NoSchedule"}))
}

// releases removes the gate from a node as nodegate, with its record.
func (s *builder) releases(name string) *builder {
	return s.edit(nodegate, name, withoutTaint(gateTaint), unrecorded)
}

// closes closes the gate on a node as nodegate.
func (s *builder) closes(name string, reason v1alpha1.Reason) *builder {
	return s.closesWith(name, reason, gateTaint)
}

// closesWith closes the gate on a node as nodegate, with a taint of this key.
func (s *builder) closesWith(name string, reason v1alpha1.Reason, key string) *builder {
	return s.edit(nodegate, name, withTaint(key), recorded(record{State: "Closed", Reason: reason, Boot: s.bootOf(name), Taint: key + ":NoSchedule", Since: s.now}))
}

// reboots reports a new boot ID as the kubelet.
func (s *builder) reboots(name string) *builder {
	return s.edit("system:node:"+name, name, bootID("boot-2"))
}

func (s *builder) bootOf(name string) string {
	return s.current[revisions.ID{Kind: revisions.KindNode, Name: name}].(*corev1.Node).Status.NodeInfo.BootID //nolint:forcetypeassert // a test's own objects
}

// runs reports this container of the daemon's pod on a node, ready or not.
func (s *builder) runs(name, container string, isReady bool, change ...func(*corev1.Pod)) *builder {
	id := revisions.ID{Kind: revisions.KindPod, Namespace: "system", Name: "agent-" + name}
	pod, known := s.current[id].(*corev1.Pod)
	if !known {
		pod = s.newDaemonPod(name)
	}
	status := corev1.ConditionFalse
	if isReady {
		status = corev1.ConditionTrue
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(s.now)}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{ContainerID: container}}
	for _, f := range change {
		f(pod)
	}
	return s.put("system:node:"+name, revisions.KindPod, pod)
}

// finishes reports the phase of a pod on node "a" that runs once. Its label names a boot.
func (s *builder) finishes(name, boot string, phase corev1.PodPhase, change ...func(*corev1.Pod)) *builder {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: name, Labels: map[string]string{"app": "run", v1alpha1.BootLabel: boot}}}
	pod.Spec.NodeName, pod.Status.Phase = "a", phase
	if before, known := s.current[revisions.ID{Kind: revisions.KindPod, Namespace: "system", Name: name}]; known {
		pod.UID, pod.CreationTimestamp = before.GetUID(), before.GetCreationTimestamp()
	}
	for _, f := range change {
		f(pod)
	}
	return s.put("system:node:a", revisions.KindPod, pod)
}

func (s *builder) newDaemonPod(node string) *corev1.Pod {
	ds := s.current[revisions.ID{Kind: revisions.KindDaemonSet, Namespace: "system", Name: "agent"}].(*appsv1.DaemonSet) //nolint:forcetypeassert // a test's own objects
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "system", Name: "agent-" + node,
		Labels:          map[string]string{"app": "agent", appsv1.ControllerRevisionHashLabelKey: "1", v1alpha1.DaemonPodLabel: "1"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
	}}
	pod.Spec.NodeName = node
	return pod
}

// registers registers a CSI driver as the kubelet.
func (s *builder) registers(node, driver string, owner types.UID) *builder {
	s.put("system:node:"+node, revisions.KindCSINode, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: node, OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: node, UID: owner}}},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver}}},
	})
	return s
}

// publishes creates a slice of a generation of pool "a" on node "a", as its DRA driver. The pool
// consists of count slices. Each of the effects is the taint of a device; "" means none.
func (s *builder) publishes(name string, owner types.UID, generation, count int64, effects ...resourcev1.DeviceTaintEffect) *builder {
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: "a", UID: owner}}},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "dra", NodeName: new("a"), Pool: resourcev1.ResourcePool{Name: "a", Generation: generation, ResourceSliceCount: count},
		},
	}
	for i, effect := range effects {
		device := resourcev1.Device{Name: fmt.Sprint("device-", i)}
		if effect != "" {
			device.Taints = []resourcev1.DeviceTaint{{Key: "bad", Effect: effect}}
		}
		slice.Spec.Devices = append(slice.Spec.Devices, device)
	}
	return s.put("system:node:a", revisions.KindResourceSlice, slice)
}

// judged returns the verdict after a quiet minute.
func (s *builder) judged() *Verdict {
	s.pass(time.Minute)
	return s.judgedNow()
}

func (s *builder) judgedNow() *Verdict {
	h := revisions.New(1, s.revision, s.now, slices.Clone(s.versions), s.writes)
	h.Requests = s.requests
	return Judge(h, Config{Controller: nodegate, Lag: DefaultLag, Quiet: DefaultQuiet, Operators: []string{admin}})
}

func one() *intstr.IntOrString { return new(intstr.FromInt32(1)) }

// Changes of a node.

func withTaint(key string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
}

func withoutTaint(key string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Spec.Taints = slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool { return t.Key == key })
	}
}

func recorded(r record) func(*corev1.Node) { return recordedFor("agent", r) }

// recordedFor gives a node a gate's record.
func recordedFor(gate string, r record) func(*corev1.Node) {
	return func(node *corev1.Node) {
		raw, err := json.Marshal(r)
		if err != nil {
			panic(err)
		}
		node.Annotations[v1alpha1.RecordAnnotationPrefix+gate] = string(raw)
	}
}

// withOverride sets the UID of the Node to "this", and an override of the gate.
func withOverride(uid, until string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.UID = "this"
		node.Annotations[v1alpha1.OverrideAnnotationPrefix+"agent"] = fmt.Sprintf(`{"state":"Open","until":%q,"reason":"test","uid":%q}`, until, uid)
	}
}

// named sets the UID of the Node.
func named(uid types.UID) func(*corev1.Node) {
	return func(node *corev1.Node) { node.UID = uid }
}

func bootID(id string) func(*corev1.Node) {
	return func(node *corev1.Node) { node.Status.NodeInfo.BootID = id }
}

func unrecorded(node *corev1.Node) { delete(node.Annotations, v1alpha1.RecordAnnotationPrefix+"agent") }

func labelled(node *corev1.Node) { node.Labels["fit"] = "true" }

func unlabelled(node *corev1.Node) { delete(node.Labels, "fit") }

func condition(name string, status corev1.ConditionStatus) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Status.Conditions = slices.DeleteFunc(slices.Clone(node.Status.Conditions), func(c corev1.NodeCondition) bool { return string(c.Type) == name })
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(name), Status: status})
	}
}

func reachable(node *corev1.Node) { condition("Ready", corev1.ConditionTrue)(node) }

func unreachable(node *corev1.Node) { condition("Ready", corev1.ConditionUnknown)(node) }

// announced gives a node the condition that announces its shutdown.
func announced(message string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		condition(string(corev1.NodeGracefulNodeShutdownInProgress), corev1.ConditionTrue)(node)
		node.Status.Conditions[len(node.Status.Conditions)-1].Message = message
	}
}

func cancelled(node *corev1.Node) {
	condition(string(corev1.NodeGracefulNodeShutdownInProgress), corev1.ConditionFalse)(node)
}

func reporting(node *corev1.Node) { condition("Ready", corev1.ConditionTrue)(node) }
