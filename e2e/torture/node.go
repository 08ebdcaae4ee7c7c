// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/simnode"
)

// node is one node, with its kubelet and its daemon. One goroutine uses it at a time.
type node struct {
	*fleet
	*simnode.Node
	zone, home string
	rng        *rand.Rand
	// pod is the daemon's pod, container the ID of its containers, and pods the number of
	// pods that the daemon has had.
	pod       *corev1.Pod
	container string
	pods      int
	// off is the time until which the machine boots. Its kubelet reports nothing until
	// then.
	off time.Time
	// early reports whether the pod's containers of the new boot have been reported before
	// the boot itself.
	early bool
}

// step performs the next random change of the node.
func (n *node) step(ctx context.Context) error {
	if !n.off.IsZero() {
		return n.boots(ctx)
	}
	steps := []func(context.Context) error{
		n.reboot, n.reboot, n.flap, n.flap, n.flap, n.runs, n.runs, n.replacePod, n.recreate, n.relabel,
		n.regress, n.regress, n.recover, n.recover, n.unreachable, n.heartbeat, n.heartbeat, n.foreignTaint, n.foreignAnnotation,
	}
	return steps[n.rng.IntN(len(steps))](ctx)
}

// settle makes the node ready for every gate, regardless of its state.
func (n *node) settle(ctx context.Context) error {
	if n.BootID == "" {
		n.BootID = n.id()
	}
	if err := await.Pause(ctx, time.Until(n.off)); err != nil {
		return err
	}
	n.early, n.off = false, time.Time{}
	object, err := n.kube.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		object, err = n.register(ctx)
	}
	if err != nil {
		return err
	}
	if err := n.label(ctx, map[string]any{pool: n.home, fit: "true"}); err != nil {
		return err
	}
	if err := n.Report(ctx, simnode.Conditions{ready: yes, net: yes, badDisk: no}); err != nil {
		return err
	}
	if err := n.ensurePod(ctx, object); err != nil {
		return err
	}
	n.container = n.id()
	return n.reportPod(ctx, true)
}

// ensurePod creates the daemon's pod unless it exists and belongs to this Node. A pod that
// terminates is replaced: an API server that is killed or gives up after it has marked a
// pod for deletion leaves it so, and no kubelet completes that here.
func (n *node) ensurePod(ctx context.Context, object *corev1.Node) error {
	pod, err := n.kube.CoreV1().Pods(namespace).Get(ctx, n.pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return n.createPod(ctx)
	case err != nil:
		return err
	case pod.DeletionTimestamp != nil, pod.CreationTimestamp.Before(&object.CreationTimestamp):
		return n.replacePod(ctx)
	}
	return nil
}

// id returns an ID that depends only on the seed.
func (n *node) id() string { return fmt.Sprintf("%016x%016x", n.rng.Uint64(), n.rng.Uint64()) }

// The conditions of nodes, and their statuses.
const (
	ready   = corev1.NodeReady
	net     = corev1.NodeConditionType("Net")
	badDisk = corev1.NodeConditionType("BadDisk")

	yes     = corev1.ConditionTrue
	no      = corev1.ConditionFalse
	unknown = corev1.ConditionUnknown
)

func (n *node) register(ctx context.Context) (*corev1.Node, error) {
	fits := n.rng.IntN(2) == 0
	return n.Register(ctx, simnode.Conditions{ready: yes, net: pick(n.rng, yes, no)}, func(object *corev1.Node) {
		object.Labels[pool], object.Labels[corev1.LabelTopologyZone] = n.home, n.zone
		if fits {
			object.Labels[fit] = "true"
		}
		object.Spec.Taints = []corev1.Taint{{Key: foreign + "first", Effect: corev1.TaintEffectNoSchedule}}
	})
}

// heartbeat reports that the node is Ready, with its boot ID, and renews its Lease.
func (n *node) heartbeat(ctx context.Context) error {
	return errors.Join(n.Report(ctx, simnode.Conditions{ready: yes}), n.Renew(ctx))
}

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
		return n.heartbeat(ctx)
	}
	n.BootID, n.container, n.off = n.id(), n.id(), time.Now().Add(n.phase.bootTime())
	return nil
}

// boots reports the new boot of the machine. The pod's new containers become ready
// sooner or later, and may be reported before the new boot. The judge then counts them
// as evidence of the previous boot. nodegate does so only if it observes them first, so the
// boot is reported as much later as bootTime allows its watches to lag.
func (n *node) boots(ctx context.Context) error {
	if !n.early && n.rng.IntN(4) == 0 && !n.phase.inStep {
		n.early, n.off = true, time.Now().Add(n.phase.bootTime())
		return n.runs(ctx)
	}
	n.early, n.off = false, time.Time{}
	if err := n.heartbeat(ctx); err != nil || n.rng.IntN(2) == 0 {
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

// nextPod gives the daemon another pod, which is not created yet.
func (n *node) nextPod() {
	n.pod = simnode.DaemonPod(n.daemonSet, n.Name, fmt.Sprintf("%s-%s-%d", daemon, n.Name, n.pods))
	n.pods++
}

// createPod creates the daemon's pod. n.pod has no UID: a report is for the pod of this
// name, even if the response to its creation was lost.
func (n *node) createPod(ctx context.Context) error {
	n.pod.Status = corev1.PodStatus{}
	_, err := n.kube.CoreV1().Pods(namespace).Create(ctx, n.pod, metav1.CreateOptions{})
	return err
}

var deleteNow = metav1.DeleteOptions{GracePeriodSeconds: new(int64)}

// replacePod deletes the daemon's pod and creates another one.
func (n *node) replacePod(ctx context.Context) error {
	err := n.kube.CoreV1().Pods(namespace).Delete(ctx, n.pod.Name, deleteNow)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	n.nextPod()
	if err := n.createPod(ctx); err != nil {
		return err
	}
	return n.runs(ctx)
}

func (n *node) reportPod(ctx context.Context, isReady bool) error {
	return n.ReportPod(ctx, n.pod, n.container, isReady)
}

// recreate deletes the Node and registers it again, as its kubelet, rebooted or not. It
// keeps or replaces the daemon's pod.
func (n *node) recreate(ctx context.Context) error {
	if err := client.IgnoreNotFound(n.kube.CoreV1().Nodes().Delete(ctx, n.Name, deleteNow)); err != nil {
		return err
	}
	if n.rng.IntN(2) == 0 {
		n.BootID, n.container = n.id(), n.id()
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
	_, err = n.kube.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

// regress reports that the network or the disk fails, or not.
func (n *node) regress(ctx context.Context) error {
	c := simnode.Conditions{}
	if status := pick(n.rng, no, unknown, ""); status != "" {
		c[net] = status
	}
	c[badDisk] = pick(n.rng, yes, unknown, no)
	return n.Report(ctx, c)
}

func (n *node) recover(ctx context.Context) error {
	return n.Report(ctx, simnode.Conditions{net: yes, badDisk: no})
}

// unreachable makes the node unreachable for a moment, and return rebooted or not.
func (n *node) unreachable(ctx context.Context) error {
	if err := n.Report(ctx, simnode.Conditions{ready: unknown}); err != nil {
		return err
	}
	if err := await.Pause(ctx, time.Duration(n.rng.IntN(100))*time.Millisecond); err != nil {
		return err
	}
	if n.rng.IntN(2) == 0 {
		return n.reboot(ctx)
	}
	return n.heartbeat(ctx)
}

// foreignTaint adds or removes a taint as another controller, by updating the whole list.
func (n *node) foreignTaint(ctx context.Context) error {
	object, err := n.kube.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
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
