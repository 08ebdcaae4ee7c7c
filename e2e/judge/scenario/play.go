// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/simnode"
)

// foreignTaint is the prefix of foreign taint keys. Every node is created with two.
const foreignTaint = "foreign.example.com/"

// play is one part of the scenario. Its methods return only if they succeed: the first
// error ends the play and its goroutine, as testing.T.FailNow does.
type play struct {
	*environment
	context.Context
	fail context.CancelCauseFunc
}

// run performs a play and returns the error that ended it.
func (e *environment) run(ctx context.Context, perform func(*play)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &play{environment: e, Context: ctx, fail: cancel}
	var group sync.WaitGroup
	group.Go(func() { perform(p) })
	group.Wait()
	return context.Cause(ctx)
}

// check ends the play if err is not nil.
func (p *play) check(doing string, err error) {
	if err != nil {
		p.end(fmt.Errorf("%s: %w", doing, err))
	}
}

func (p *play) end(err error) {
	p.fail(err)
	runtime.Goexit()
}

// await waits until a condition holds, for Patience or, if that is 0, as long as anything
// changes.
func (p *play) await(what string, condition func(context.Context) error) {
	ctx := context.Context(p)
	if p.Patience > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeoutCause(p, p.Patience, errors.New("timed out"))
		defer cancel()
	}
	if err := await.Until(ctx, what, condition); err != nil {
		p.end(err)
	}
}

func (p *play) pause(d time.Duration) { p.check("pausing", await.Pause(p, d)) }

// lingers waits for the time in which nodegate must do nothing.
func (p *play) lingers() { p.pause(p.Linger) }

// untilNextSecond waits until the next second, because times in the API are truncated
// to seconds.
func (p *play) untilNextSecond() {
	p.pause(time.Until(time.Now().Truncate(time.Second).Add(time.Second + 100*time.Millisecond)))
}

func (p *play) creates(object client.Object) {
	p.check("creating "+object.GetName(), p.admin.Create(p, object))
}

func (p *play) deletes(object client.Object) {
	p.check("deleting "+object.GetName(), p.admin.Delete(p, object))
}

// patches changes an object, given its current version.
func patches[T client.Object](p *play, object T, change func()) {
	base, _ := object.DeepCopyObject().(client.Object)
	change()
	p.check("patching "+object.GetName(), p.admin.Patch(p, object, client.MergeFrom(base)))
}

// node is one node of a play.
type node struct {
	*play
	*simnode.Node
	kubelet kubernetes.Interface
}

// registers creates a Node that one gate selects, as its kubelet.
func (p *play) registers(name, gate string, change ...func(*corev1.Node)) *node {
	kubelet, err := kubernetes.NewForConfig(p.Cluster.Node(name))
	p.check("creating a client", err)
	n := &node{play: p, Node: simnode.New(kubelet, name, string(uuid.NewUUID())), kubelet: kubelet}
	n.register(gate, change...)
	return n
}

func (n *node) register(gate string, change ...func(*corev1.Node)) {
	selected := func(object *corev1.Node) {
		object.Labels[gateLabel] = gate
		object.Labels[corev1.LabelTopologyZone] = n.Name // so that no zone appears to be partitioned
		object.Spec.Taints = []corev1.Taint{taint(foreignTaint + "first"), taint(foreignTaint + "second")}
	}
	_, err := n.Register(n, simnode.Conditions{corev1.NodeReady: corev1.ConditionTrue}, append([]func(*corev1.Node){selected}, change...)...)
	n.check("registering node "+n.Name, err)
}

// recreated deletes the Node and registers it again.
func (n *node) recreated(gate string) {
	n.untilNextSecond()
	n.deletes(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}})
	n.register(gate)
}

func taint(key string) corev1.Taint {
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}
}

// get returns the Node.
func (n *node) get() *corev1.Node {
	object, err := n.read()
	n.check("reading node "+n.Name, err)
	return object
}

func (n *node) read() (*corev1.Node, error) {
	var object corev1.Node
	err := n.admin.Get(n, client.ObjectKey{Name: n.Name}, &object)
	return &object, err
}

// edit changes the Node as an administrator.
func (n *node) edit(change ...func(*corev1.Node)) {
	n.check("editing node "+n.Name, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object := n.get()
		for _, f := range change {
			f(object)
		}
		return n.admin.Update(n, object)
	}))
}

// reports reports a condition of the Node.
func (n *node) reports(condition corev1.NodeConditionType, status corev1.ConditionStatus) {
	n.check(fmt.Sprintf("reporting %s of node %s", condition, n.Name), n.Report(n, simnode.Conditions{condition: status}))
}

// reboots gives the node a new boot ID and reports it.
func (n *node) reboots() {
	n.BootID = string(uuid.NewUUID())
	n.reports(corev1.NodeReady, corev1.ConditionTrue)
}

// Changes of a Node.

func withCondition(name corev1.NodeConditionType, status corev1.ConditionStatus) func(*corev1.Node) {
	return func(object *corev1.Node) {
		now := metav1.Now()
		object.Status.Conditions = slices.DeleteFunc(object.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == name })
		object.Status.Conditions = append(object.Status.Conditions,
			corev1.NodeCondition{Type: name, Status: status, LastHeartbeatTime: now, LastTransitionTime: now})
	}
}

func labelled(object *corev1.Node)   { object.Labels[fit] = "true" }
func unlabelled(object *corev1.Node) { delete(object.Labels, fit) }

func tainted(key string) func(*corev1.Node) {
	return func(object *corev1.Node) { object.Spec.Taints = append(object.Spec.Taints, taint(key)) }
}

func untainted(key string) func(*corev1.Node) {
	return func(object *corev1.Node) {
		object.Spec.Taints = slices.DeleteFunc(object.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
	}
}

// noTaints removes all taints, including those with which nodes are created.
func noTaints(object *corev1.Node) { object.Spec.Taints = nil }

func inZone(zone string) func(*corev1.Node) {
	return func(object *corev1.Node) { object.Labels[corev1.LabelTopologyZone] = zone }
}

func annotated(key, value string) func(*corev1.Node) {
	return func(object *corev1.Node) { metav1.SetMetaDataAnnotation(&object.ObjectMeta, key, value) }
}

const (
	closed = v1alpha1.StateClosed
	opened = v1alpha1.StateOpen
)

// becomes waits until the record and the taint of the gate show a state on the node.
// The state "" means no record.
func (n *node) becomes(gate, state string) {
	n.await(fmt.Sprintf("gate %s to be %q on node %s", gate, state, n.Name), func(context.Context) error { return n.is(gate, state) })
}

// stays checks that the record and the taint of the gate show a state on the node.
func (n *node) stays(gate, state string) {
	n.check(fmt.Sprintf("checking gate %s on node %s", gate, n.Name), n.is(gate, state))
}

func (n *node) is(gate, state string) error {
	object, err := n.read()
	if err != nil {
		return err
	}
	recorded, raw := recordedState(object, gate)
	has := slices.ContainsFunc(object.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key(gate) })
	if recorded != state || has != (state == closed) {
		return fmt.Errorf("the record is %q, taint present: %v", raw, has)
	}
	return nil
}

// recordedState returns the state in a gate's record, including an override, and the
// record. The state is "" without a record.
func recordedState(object *corev1.Node, gate string) (state, raw string) {
	raw = object.Annotations[v1alpha1.RecordAnnotationPrefix+gate]
	var record struct{ State, Override string }
	if err := json.Unmarshal([]byte(raw), &record); err != nil && raw != "" {
		return "invalid", raw
	}
	if record.Override != "" {
		return record.Override, raw
	}
	return record.State, raw
}

// daemon creates a pod of a DaemonSet on the node, as the DaemonSet controller, and
// reports its status as the kubelet.
func (n *node) daemon(set string, isReady bool, change ...func(*corev1.Pod)) *corev1.Pod {
	var ds appsv1.DaemonSet
	n.check("reading DaemonSet "+set, n.admin.Get(n, client.ObjectKey{Namespace: namespace, Name: set}, &ds))
	pod := simnode.DaemonPod(&ds, n.Name, set+"-"+n.Name+"-"+string(uuid.NewUUID())[:8])
	for _, f := range change {
		f(pod)
	}
	n.creates(pod)
	n.runs(pod, isReady)
	return pod
}

// runs reports new containers of a pod, ready or not, as the kubelet.
func (n *node) runs(pod *corev1.Pod, isReady bool, change ...func(*corev1.PodStatus)) {
	n.check("reporting pod "+pod.Name, n.ReportPod(n, pod, string(uuid.NewUUID()), isReady, change...))
}
