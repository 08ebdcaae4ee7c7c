// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster/await"
)

// foreignTaint is the prefix of foreign taint keys. Every node is created with two.
const foreignTaint = "foreign.example.com/"

// play is one part of the scenario. The first error ends it.
type play struct {
	*stage
	context.Context
}

// await waits until check succeeds, for Patience or, if that is 0, as long as anything
// changes.
func (s *stage) await(ctx context.Context, what string, check func(context.Context) error) error {
	if s.Patience == 0 {
		return await.Until(ctx, what, check)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.Patience, errors.New("timed out"))
	defer cancel()
	return await.Until(ctx, what, check)
}

// lingers waits for the time in which nodegate must do nothing.
func (p *play) lingers() error { return await.Pause(p, p.Linger) }

// node is one node of a play, with its kubelet.
type node struct {
	*play
	name string
	boot string
	// kubelet is the client of the node's kubelet.
	kubelet client.Client
}

// registers creates a Node that one gate selects, as its kubelet.
func (p *play) registers(name, gate string, change ...func(*corev1.Node)) (*node, error) {
	api, err := client.New(p.Cluster.Node(name), client.Options{Scheme: p.scheme, Mapper: p.admin.RESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	n := &node{play: p, name: name, boot: string(uuid.NewUUID()), kubelet: api}
	return n, n.register(gate, change...)
}

func (n *node) register(gate string, change ...func(*corev1.Node)) error {
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{
			gateLabel: gate, corev1.LabelTopologyZone: n.name, // so that no zone appears to be partitioned
		}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint(foreignTaint + "first"), taint(foreignTaint + "second")}},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: n.boot},
			Conditions: []corev1.NodeCondition{conditionNow("Ready", corev1.ConditionTrue)},
		},
	}
	for _, f := range change {
		f(object)
	}
	return n.kubelet.Create(n, object)
}

func taint(key string) corev1.Taint {
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}
}

func conditionNow(name string, status corev1.ConditionStatus) corev1.NodeCondition {
	now := metav1.Now()
	return corev1.NodeCondition{Type: corev1.NodeConditionType(name), Status: status, LastHeartbeatTime: now, LastTransitionTime: now}
}

// get returns the Node.
func (n *node) get(ctx context.Context) (*corev1.Node, error) {
	var object corev1.Node
	err := n.admin.Get(ctx, client.ObjectKey{Name: n.name}, &object)
	return &object, err
}

// edit changes the Node as an administrator.
func (n *node) edit(change ...func(*corev1.Node)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object, err := n.get(n)
		if err != nil {
			return err
		}
		for _, f := range change {
			f(object)
		}
		return n.admin.Update(n, object)
	})
}

// reports changes the Node's status as its kubelet.
func (n *node) reports(change ...func(*corev1.Node)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object, err := n.get(n)
		if err != nil {
			return err
		}
		object.Status.NodeInfo.BootID = n.boot
		for _, f := range change {
			f(object)
		}
		return n.admin.Status().Update(n, object)
	})
}

// withCondition sets a condition.
func withCondition(name string, status corev1.ConditionStatus) func(*corev1.Node) {
	return func(object *corev1.Node) {
		object.Status.Conditions = slices.DeleteFunc(object.Status.Conditions, func(c corev1.NodeCondition) bool { return string(c.Type) == name })
		object.Status.Conditions = append(object.Status.Conditions, conditionNow(name, status))
	}
}

// reboots gives the node a new boot ID and reports it.
func (n *node) reboots() error {
	n.boot = string(uuid.NewUUID())
	return n.reports(withCondition("Ready", corev1.ConditionTrue))
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

func inZone(zone string) func(*corev1.Node) {
	return func(object *corev1.Node) { object.Labels[corev1.LabelTopologyZone] = zone }
}

// becomes waits until the record and the taint of the gate show a state on the node.
// The state "" means no record.
func (n *node) becomes(gate, state string) error {
	return n.await(n, fmt.Sprintf("gate %s to be %q on node %s", gate, state, n.name), func(ctx context.Context) error {
		return n.is(ctx, gate, state)
	})
}

func (n *node) is(ctx context.Context, gate, state string) error {
	object, err := n.get(ctx)
	if err != nil {
		return err
	}
	raw := object.Annotations[v1alpha1.RecordAnnotationPrefix+gate]
	var record struct{ State, Override string }
	if raw != "" {
		if err := json.Unmarshal([]byte(raw), &record); err != nil {
			return err
		}
	}
	if record.Override != "" {
		record.State = record.Override
	}
	has := slices.ContainsFunc(object.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key(gate) })
	if record.State != state || has != (state == closed) {
		return fmt.Errorf("the record is %q, taint present: %v", raw, has)
	}
	return nil
}

const (
	closed = v1alpha1.StateClosed
	opened = v1alpha1.StateOpen
)

// daemon creates a pod of a DaemonSet on the node, as the DaemonSet controller, and
// reports its status as the kubelet.
func (n *node) daemon(set string, isReady bool, change ...func(*corev1.Pod)) (*corev1.Pod, error) {
	var ds appsv1.DaemonSet
	if err := n.admin.Get(n, client.ObjectKey{Namespace: namespace, Name: set}, &ds); err != nil {
		return nil, err
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: set + "-" + n.name + "-" + string(uuid.NewUUID())[:8],
			Labels:          map[string]string{"app": set, appsv1.ControllerRevisionHashLabelKey: "1", v1alpha1.DaemonPodLabel: "1"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Spec: *ds.Spec.Template.Spec.DeepCopy(),
	}
	pod.Spec.NodeName = n.name
	for _, f := range change {
		f(pod)
	}
	if err := n.admin.Create(n, pod); err != nil {
		return nil, err
	}
	return pod, n.runs(pod, isReady)
}

// runs reports new containers of a pod, ready or not, as the kubelet.
func (n *node) runs(pod *corev1.Pod, isReady bool) error {
	return n.status(pod, isReady, "containerd://"+string(uuid.NewUUID()))
}

// status reports this container of a pod as the kubelet.
func (n *node) status(pod *corev1.Pod, isReady bool, container string) error {
	is := corev1.ConditionFalse
	if isReady {
		is = corev1.ConditionTrue
	}
	pod.Status = corev1.PodStatus{
		Phase:             corev1.PodRunning,
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: is, LastTransitionTime: metav1.Now()}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "daemon", Image: "daemon", ContainerID: container, Ready: isReady}},
	}
	return n.admin.Status().Update(n, pod)
}

// steps runs steps until one fails.
func steps(list ...func() error) error {
	for i, step := range list {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

// untilNextSecond waits until the next second, because times in the API are truncated
// to seconds.
func (p *play) untilNextSecond() error {
	return await.Pause(p, time.Until(time.Now().Truncate(time.Second).Add(time.Second+100*time.Millisecond)))
}
