// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// plays are performed at the same time, each on its own nodes.
var plays = map[string]func(*play) error{
	"bad daemons":      badDaemons,
	"lives":            lives,
	"former node":      formerNode,
	"blocked":          blocked,
	"all daemons":      allDaemons,
	"no daemons":       noDaemons,
	"same key":         sameKey,
	"csi":              csi,
	"conditions":       conditions,
	"marks":            marks,
	"regression":       regression,
	"unknown":          unknownIsNoRegression,
	"level":            followsLevel,
	"by hand":          byHand,
	"timing":           timing,
	"modes":            modes,
	"deleted":          deleted,
	"overrides":        overrides,
	"undone":           undone,
	"twins":            twins,
	"once":             once,
	"forger":           forger,
	"existing":         existing,
	"race: taints":     raceForTaints,
	"race: boot":       raceWithBoot,
	"race: node":       raceWithNode,
	"race: override":   raceWithOverride,
	"race: no taints":  raceForFirstTaint,
	"race: annotation": raceForFirstAnnotation,
}

// badDaemons creates pods that resemble the daemon's but do not count as evidence.
func badDaemons(p *play) error {
	for name, pod := range map[string]struct {
		ready  bool
		change func(*corev1.Pod)
	}{
		"not-ready":  {ready: false},
		"mirror":     {true, func(pod *corev1.Pod) { pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }},
		"ownerless":  {true, func(pod *corev1.Pod) { pod.OwnerReferences = nil }},
		"others":     {true, func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "another" }},
		"unlabelled": {true, func(pod *corev1.Pod) { delete(pod.Labels, v1alpha1.DaemonPodLabel) }},
	} {
		n, err := p.registers("bad-"+name, "agent")
		if err != nil {
			return err
		}
		var changes []func(*corev1.Pod)
		if pod.change != nil {
			changes = append(changes, pod.change)
		}
		if _, err := n.daemon("agent", pod.ready, changes...); err != nil {
			return fmt.Errorf("creating pod %s: %w", name, err)
		}
	}
	n, err := p.registers("bad-finished", "agent")
	if err != nil {
		return err
	}
	pod, err := n.daemon("agent", false)
	if err != nil {
		return err
	}
	pod.Status.Phase = corev1.PodSucceeded
	pod.Status.Conditions[0].Status = corev1.ConditionTrue
	if err := p.admin.Status().Update(p, pod); err != nil {
		return err
	}
	if n, err = p.registers("bad-terminating", "agent"); err != nil {
		return err
	}
	if pod, err = n.daemon("agent", false); err != nil {
		return err
	}
	// The pod stays, and is ready, until its kubelet deletes it.
	return steps(
		func() error { return p.admin.Delete(p, pod) },
		func() error { return p.admin.Get(p, client.ObjectKeyFromObject(pod), pod) },
		func() error { return n.runs(pod, true) },
		p.lingers)
}

// lives makes a node's daemon ready. The node reboots, becomes unreachable, returns
// without a reboot and with one, and shuts down.
func lives(p *play) error {
	n, err := p.registers("lives", "agent")
	if err != nil {
		return err
	}
	pod, err := n.daemon("agent", false)
	if err != nil {
		return err
	}
	silent := func() error { return n.reports(withCondition("Ready", corev1.ConditionUnknown)) }
	becomes := func(state string) func() error { return func() error { return n.becomes("agent", state) } }
	ready := func() error { return n.runs(pod, true) }
	return steps(
		becomes(closed), ready, becomes(opened),
		n.untilNextSecond, n.reboots, becomes(closed), p.lingers, ready, becomes(opened),
		silent, becomes(closed), p.lingers,
		func() error { return n.reports(withCondition("Ready", corev1.ConditionTrue)) }, becomes(opened),
		silent, becomes(closed), n.reboots, p.lingers, ready, becomes(opened),
		func() error {
			return n.reports(func(object *corev1.Node) {
				withCondition("Ready", corev1.ConditionFalse)(object)
				object.Status.Conditions[len(object.Status.Conditions)-1].Message = "node is shutting down"
			})
		},
		becomes(closed), p.lingers, n.reboots, ready, becomes(opened),
		// Without a reboot, an OnReboot gate does not close.
		func() error { return n.runs(pod, false) }, p.lingers, becomes(opened), ready,
	)
}

// formerNode deletes a Node and re-creates it, while the old pod remains.
func formerNode(p *play) error {
	n, err := p.registers("former", "agent")
	if err != nil {
		return err
	}
	if _, err := n.daemon("agent", true); err != nil {
		return err
	}
	return steps(
		func() error { return n.becomes("agent", opened) },
		n.untilNextSecond,
		func() error { return p.admin.Delete(p, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}) },
		func() error { return n.register("agent") },
		p.lingers,
		func() error { _, err := n.daemon("agent", true); return err },
		func() error { return n.becomes("agent", opened) },
	)
}

// blocked makes signals hold on nodes that are unreachable or being set up.
func blocked(p *play) error {
	const setup = "node.cloudprovider.kubernetes.io/uninitialized"
	fresh, err := p.registers("blocked-setup", "net", tainted(setup), withCondition("Net", corev1.ConditionTrue))
	if err != nil {
		return err
	}
	silent, err := p.registers("blocked-silent", "net", withCondition("Ready", corev1.ConditionUnknown), withCondition("Net", corev1.ConditionTrue))
	if err != nil {
		return err
	}
	return steps(
		p.lingers,
		func() error { return fresh.edit(untainted(setup)) },
		func() error { return silent.reports(withCondition("Ready", corev1.ConditionTrue)) },
		func() error { return fresh.becomes("net", opened) },
		func() error { return silent.becomes("net", opened) },
	)
}

// allDaemons requires that every DaemonSet that is expected on the node is ready.
func allDaemons(p *play) error {
	n, err := p.registers("every", "every", untaintedAtBirth)
	if err != nil {
		return err
	}
	// DaemonSet second does not tolerate this taint, but is still expected on the node.
	const startup = "startup-taint.cluster-autoscaler.kubernetes.io/x"
	starting, err := p.registers("every-starting", "every", untaintedAtBirth, tainted(startup))
	if err != nil {
		return err
	}
	for _, n := range []*node{n, starting} {
		if _, err := n.daemon("first", true); err != nil {
			return err
		}
	}
	return steps(
		p.lingers,
		func() error { _, err := n.daemon("second", true); return err },
		func() error { return n.becomes("every", opened) },
		func() error { return starting.is(p, "every", closed) },
	)
}

// noDaemons waits for DaemonSets on a node on which none is expected. The gate opens,
// except while the node is being set up.
func noDaemons(p *play) error {
	const core, startup = "node.kubernetes.io/not-ready", "startup-taint.cluster-autoscaler.kubernetes.io/x"
	n, err := p.registers("none", "none")
	if err != nil {
		return err
	}
	starting, err := p.registers("none-starting", "none", tainted(startup))
	if err != nil {
		return err
	}
	return steps(
		p.lingers,
		func() error { return errors.Join(n.edit(untainted(core)), starting.edit(untainted(core))) },
		func() error { return n.becomes("none", opened) },
		func() error { return starting.is(p, "none", closed) },
	)
}

// sameKey adds a foreign taint with the gate's key and another effect.
func sameKey(p *play) error {
	foreign := corev1.Taint{Key: key("twin"), Effect: corev1.TaintEffectPreferNoSchedule}
	n, err := p.registers("same-key", "twin", labelled, withCondition("Net", corev1.ConditionTrue), func(o *corev1.Node) {
		o.Spec.Taints = append(o.Spec.Taints, foreign)
	})
	if err != nil {
		return err
	}
	return p.await(p, "both gates to be open", func(ctx context.Context) error {
		return errors.Join(n.recorded(ctx, "twin", opened), n.recorded(ctx, "other", opened))
	})
}

// untaintedAtBirth removes the foreign taints with which nodes are created.
func untaintedAtBirth(object *corev1.Node) { object.Spec.Taints = nil }

// csi waits for a driver's volume limit in the CSINode of this Node.
func csi(p *play) error {
	make := func(name string, owner types.UID) (*node, *storagev1.CSINode, error) {
		n, err := p.registers(name, "csi")
		if err != nil {
			return nil, nil, err
		}
		if owner == "" {
			object, err := n.get(p)
			if err != nil {
				return nil, nil, err
			}
			owner = object.UID
		}
		c := &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: owner}}},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "csi.example.com", NodeID: name}}},
		}
		return n, c, nil
	}
	n, without, err := make("csi", "")
	if err != nil {
		return err
	}
	_, former, err := make("csi-former", "another")
	if err != nil {
		return err
	}
	limit := &storagev1.VolumeNodeResources{Count: new(int32(9))}
	former.Spec.Drivers[0].Allocatable = limit
	with := without.DeepCopy()
	with.Spec.Drivers[0].Allocatable = limit
	return steps(
		func() error { return errors.Join(p.admin.Create(p, without), p.admin.Create(p, former)) },
		p.lingers,
		// The API server does not allow changing a driver, so it is registered again.
		func() error { return p.admin.Delete(p, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "csi"}}) },
		func() error { return p.admin.Create(p, with) },
		func() error { return n.becomes("csi", opened) },
	)
}

// conditions sets a condition to Unknown and False, which do not open a gate.
func conditions(p *play) error {
	n, err := p.registers("conditions", "net")
	if err != nil {
		return err
	}
	report := func(status corev1.ConditionStatus) func() error {
		return func() error { return n.reports(withCondition("Net", status)) }
	}
	return steps(
		report(corev1.ConditionUnknown), p.lingers,
		report(corev1.ConditionFalse), p.lingers,
		report(corev1.ConditionTrue),
		func() error { return n.becomes("net", opened) },
	)
}

// marks makes a pod ready by an annotation, once in each boot.
func marks(p *play) error {
	n, err := p.registers("marked", "marked")
	if err != nil {
		return err
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "marked", Labels: map[string]string{"app": "marked"}, Annotations: map[string]string{fit: "false"}},
		Spec:       corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "daemon", Image: "daemon"}}},
	}
	mark := func(value string) func() error {
		return func() error {
			base := pod.DeepCopy()
			pod.Annotations = map[string]string{fit: value}
			return p.admin.Patch(p, pod, client.MergeFrom(base))
		}
	}
	return steps(
		func() error { return p.admin.Create(p, pod) },
		func() error { return n.runs(pod, true) },
		p.lingers, mark("true"),
		func() error { return n.becomes("marked", opened) },
		n.untilNextSecond, n.reboots,
		func() error { return n.becomes("marked", closed) },
		p.lingers, mark("false"), n.untilNextSecond, mark("true"),
		func() error { return n.becomes("marked", opened) },
	)
}
