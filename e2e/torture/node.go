// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster/await"
)

// node is one node, with its kubelet and its daemon. One goroutine uses it at a time.
type node struct {
	*fleet
	name, zone, home string
	rng              *rand.Rand
	// boot and container are the IDs that the kubelet reports.
	boot, container string
	// pods is the number of pods that the daemon has had.
	pods int
	// off is the time until which the machine boots. Its kubelet reports nothing until
	// then.
	off time.Time
	// last is the last reported status of each condition, including the pod's Ready, with
	// the time of its last transition.
	last map[string]transition
}

type transition struct {
	status string
	at     metav1.Time
}

// since returns the transition time of a condition that is being reported.
func (n *node) since(condition, status string) metav1.Time {
	if n.last == nil {
		n.last = make(map[string]transition)
	}
	if n.last[condition].status != status {
		n.last[condition] = transition{status, metav1.Now()}
	}
	return n.last[condition].at
}

// step performs the next random change of the node.
func (n *node) step(ctx context.Context) error {
	if !n.off.IsZero() {
		return n.boots(ctx)
	}
	steps := []func(context.Context) error{
		n.reboot, n.reboot, n.flap, n.flap, n.flap, n.runs, n.runs, n.replacePod, n.recreate, n.relabel,
		n.regress, n.regress, n.recover, n.recover, n.fallSilent, n.report, n.report, n.foreignTaint, n.foreignAnnotation,
	}
	return steps[n.rng.IntN(len(steps))](ctx)
}

// settle makes the node ready for every gate, regardless of its state.
func (n *node) settle(ctx context.Context) error {
	if n.boot == "" {
		n.boot = n.id()
	}
	if err := await.Pause(ctx, time.Until(n.off)); err != nil {
		return err
	}
	n.off = time.Time{}
	object, err := n.kube.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		object, err = n.register(ctx)
	}
	if err != nil {
		return err
	}
	if err := n.label(ctx, map[string]any{pool: n.home, fit: "true"}); err != nil {
		return err
	}
	n.last = nil // the last reports may not have arrived
	if err := n.says(ctx, "True", "True", "False"); err != nil {
		return err
	}
	if err := n.ensurePod(ctx, object); err != nil {
		return err
	}
	n.container = n.id()
	return n.reportPod(ctx, true)
}

// ensurePod creates the daemon's pod unless it exists and belongs to this Node.
func (n *node) ensurePod(ctx context.Context, object *corev1.Node) error {
	pod, err := n.kube.CoreV1().Pods(namespace).Get(ctx, n.pod(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return n.createPod(ctx)
	case err == nil && pod.CreationTimestamp.Before(&object.CreationTimestamp):
		return n.replacePod(ctx)
	}
	return err
}

// id returns an ID that depends only on the seed.
func (n *node) id() string { return fmt.Sprintf("%016x%016x", n.rng.Uint64(), n.rng.Uint64()) }

func (n *node) register(ctx context.Context) (*corev1.Node, error) {
	labels := map[string]string{pool: n.home, corev1.LabelTopologyZone: n.zone}
	if n.rng.IntN(2) == 0 {
		labels[fit] = "true"
	}
	n.last = nil
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: foreign + "first", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: n.boot},
			Conditions: []corev1.NodeCondition{n.condition("Ready", "True"), n.condition("Net", pick(n.rng, "True", "False"))},
		},
	}
	return n.kube.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{})
}

func (n *node) condition(name, status string) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: corev1.NodeConditionType(name), Status: corev1.ConditionStatus(status),
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: n.since(name, status),
	}
}

// says reports the conditions Ready, Net and BadDisk, as the kubelet and the monitors of
// network and disk. An empty status is not reported.
func (n *node) says(ctx context.Context, ready, net, badDisk string) error {
	var conditions []corev1.NodeCondition
	for _, c := range [][2]string{{"Ready", ready}, {"Net", net}, {"BadDisk", badDisk}} {
		if c[1] != "" {
			conditions = append(conditions, n.condition(c[0], c[1]))
		}
	}
	status := map[string]any{"conditions": conditions}
	if ready == "True" {
		status["nodeInfo"] = map[string]string{"bootID": n.boot}
	}
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = n.kube.CoreV1().Nodes().PatchStatus(ctx, n.name, body)
	return err
}

func (n *node) report(ctx context.Context) error { return n.says(ctx, "True", "", "") }

// bootTime returns how long a machine takes to boot. The campaign assumes that
// nodegate's watch of pods does not lag behind the watch of nodes for that long
// (docs/known-limits.md). If faults break watches repeatedly, a client waits for up to
// five seconds before it resumes one.
func (p *phase) bootTime() time.Duration {
	if p.inStep {
		return 8 * time.Second
	}
	return 2 * time.Second
}

// reboot turns the machine off, which is not reported. No container survives it.
func (n *node) reboot(ctx context.Context) error {
	if n.phase.brief {
		return n.report(ctx)
	}
	n.boot, n.container, n.off = n.id(), n.id(), time.Now().Add(n.phase.bootTime())
	return nil
}

// boots reports the new boot of the machine. The pod's new containers become ready
// sooner or later, and may be reported before the new boot. The judge then counts them
// as evidence of the previous boot; nodegate does so only if it observes both in time.
func (n *node) boots(ctx context.Context) error {
	n.off = time.Time{}
	if n.rng.IntN(4) == 0 && !n.phase.inStep {
		if err := n.runs(ctx); err != nil {
			return err
		}
	}
	if err := n.report(ctx); err != nil || n.rng.IntN(2) == 0 {
		return err
	}
	return n.runs(ctx)
}

// runs reports new containers of the daemon, ready or not.
func (n *node) runs(ctx context.Context) error {
	n.container = n.id()
	return n.reportPod(ctx, n.rng.IntN(3) > 0)
}

// flap reports the daemon's pod as ready or not, with the same containers.
func (n *node) flap(ctx context.Context) error { return n.reportPod(ctx, n.rng.IntN(2) == 0) }

func (n *node) pod() string { return fmt.Sprintf("%s-%s-%d", daemon, n.name, n.pods) }

func (n *node) createPod(ctx context.Context) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: n.pod(),
			Labels:          map[string]string{"app": daemon, appsv1.ControllerRevisionHashLabelKey: "1", v1alpha1.DaemonPodLabel: "1"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(n.daemonSet, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Spec: *n.daemonSet.Spec.Template.Spec.DeepCopy(),
	}
	pod.Spec.NodeName = n.name
	_, err := n.kube.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

var deleteNow = metav1.DeleteOptions{GracePeriodSeconds: new(int64)}

// replacePod deletes the daemon's pod and creates another one.
func (n *node) replacePod(ctx context.Context) error {
	err := n.kube.CoreV1().Pods(namespace).Delete(ctx, n.pod(), deleteNow)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	n.pods++
	if err := n.createPod(ctx); err != nil {
		return err
	}
	return n.runs(ctx)
}

func (n *node) reportPod(ctx context.Context, ready bool) error {
	status := "False"
	if ready {
		status = "True"
	}
	body, err := json.Marshal(map[string]any{"status": corev1.PodStatus{
		Phase:             corev1.PodRunning,
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionStatus(status), LastTransitionTime: n.since("pod", status)}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: daemon, Image: daemon, ContainerID: "containerd://" + n.container, Ready: ready}},
	}})
	if err != nil {
		return err
	}
	_, err = n.kube.CoreV1().Pods(namespace).Patch(ctx, n.pod(), types.MergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}

// recreate deletes the Node and registers it again, as its kubelet, rebooted or not. It
// keeps or replaces the daemon's pod.
func (n *node) recreate(ctx context.Context) error {
	if err := client.IgnoreNotFound(n.kube.CoreV1().Nodes().Delete(ctx, n.name, deleteNow)); err != nil {
		return err
	}
	if n.rng.IntN(2) == 0 {
		n.boot, n.container = n.id(), n.id()
	}
	if err := await.Pause(ctx, time.Duration(n.rng.IntN(50))*time.Millisecond); err != nil {
		return err
	}
	if _, err := n.register(ctx); err != nil || n.rng.IntN(2) == 0 {
		return err
	}
	return n.replacePod(ctx)
}

// relabel sets or removes the node's pool label and the label fit.
func (n *node) relabel(ctx context.Context) error {
	return n.label(ctx, map[string]any{pool: pick[any](n.rng, "a", "b", nil), fit: pick[any](n.rng, "true", "true", nil)})
}

func (n *node) label(ctx context.Context, labels map[string]any) error {
	return n.patchMetadata(ctx, "labels", labels)
}

func (n *node) patchMetadata(ctx context.Context, field string, values map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{field: values}})
	if err != nil {
		return err
	}
	_, err = n.kube.CoreV1().Nodes().Patch(ctx, n.name, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

func (n *node) regress(ctx context.Context) error {
	return n.says(ctx, "", pick(n.rng, "False", "Unknown", ""), pick(n.rng, "True", "Unknown", "False"))
}

func (n *node) recover(ctx context.Context) error { return n.says(ctx, "", "True", "False") }

// fallSilent makes the node unreachable for a moment, and return rebooted or not.
func (n *node) fallSilent(ctx context.Context) error {
	if err := n.says(ctx, "Unknown", "", ""); err != nil {
		return err
	}
	if err := await.Pause(ctx, time.Duration(n.rng.IntN(100))*time.Millisecond); err != nil {
		return err
	}
	if n.rng.IntN(2) == 0 {
		return n.reboot(ctx)
	}
	return n.report(ctx)
}

// foreignTaint adds or removes a taint as another controller, by updating the whole list.
func (n *node) foreignTaint(ctx context.Context) error {
	object, err := n.kube.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	own := corev1.Taint{Key: foreign + pick(n.rng, "second", "third"), Effect: corev1.TaintEffectNoSchedule}
	others := slices.DeleteFunc(slices.Clone(object.Spec.Taints), func(t corev1.Taint) bool { return t.Key == own.Key })
	if len(others) == len(object.Spec.Taints) {
		others = slices.Insert(others, n.rng.IntN(len(others)+1), own)
	}
	object.Spec.Taints = others
	_, err = n.kube.CoreV1().Nodes().Update(ctx, object, metav1.UpdateOptions{})
	return err
}

func (n *node) foreignAnnotation(ctx context.Context) error {
	return n.patchMetadata(ctx, "annotations", map[string]any{foreign + "note": n.id()})
}
