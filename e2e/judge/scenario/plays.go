// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// plays are performed at the same time, each on its own nodes.
var plays = map[string]func(*play){
	"bad daemons":      badDaemons,
	"lives":            lives,
	"former node":      formerNode,
	"at work":          atWork,
	"blocked":          blocked,
	"all daemons":      allDaemons,
	"no daemons":       noDaemons,
	"same key":         sameKey,
	"csi":              csi,
	"conditions":       conditions,
	"marks":            marks,
	"checks":           checks,
	"devices":          devices,
	"regression":       regression,
	"unknown":          unknownIsNoRegression,
	"level":            followsLevel,
	"by hand":          byHand,
	"timing":           timing,
	"missing pods":     missingPods,
	"opened at":        writesOpenings,
	"overdue":          overdue,
	"modes":            modes,
	"deleted":          deleted,
	"overrides":        overrides,
	"undone":           undone,
	"twins":            twins,
	"once":             once,
	"two taints":       twoTaints,
	"no execute":       noExecute,
	"partition":        partition,
	"outage":           outage,
	"groups":           groups,
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
func badDaemons(p *play) {
	for name, change := range map[string]func(*corev1.Pod){
		"mirror":     func(pod *corev1.Pod) { pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} },
		"ownerless":  func(pod *corev1.Pod) { pod.OwnerReferences = nil },
		"others":     func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "another" },
		"unlabelled": func(pod *corev1.Pod) { delete(pod.Labels, v1alpha1.DaemonPodLabel) },
	} {
		p.registers("bad-"+name, "agent").daemon("agent", true, change)
	}
	p.registers("bad-not-ready", "agent").daemon("agent", false)
	finished := p.registers("bad-finished", "agent")
	finished.runs(finished.daemon("agent", false), true, func(s *corev1.PodStatus) { s.Phase = corev1.PodSucceeded })
	// The pod stays, and is ready, until its kubelet deletes it.
	terminating := p.registers("bad-terminating", "agent")
	pod := terminating.daemon("agent", false)
	p.deletes(pod)
	terminating.runs(pod, true)
	p.lingers()
}

// lives makes a node's daemon ready. The node reboots, becomes unreachable, returns
// without a reboot and with one, and shuts down.
func lives(p *play) {
	n := p.registers("lives", "agent")
	pod := n.daemon("agent", false)
	n.becomes("agent", closed)
	opens := func() { n.runs(pod, true); n.becomes("agent", opened) }
	opens()

	n.untilNextSecond()
	n.reboots()
	n.becomes("agent", closed)
	p.lingers()
	opens()

	n.reports(corev1.NodeReady, corev1.ConditionUnknown)
	n.becomes("agent", closed)
	p.lingers()
	n.reports(corev1.NodeReady, corev1.ConditionTrue)
	n.becomes("agent", opened)

	n.reports(corev1.NodeReady, corev1.ConditionUnknown)
	n.becomes("agent", closed)
	n.reboots()
	p.lingers()
	opens()

	p.check("reporting a shutdown", n.ReportShutdown(p))
	n.becomes("agent", closed)
	p.lingers()
	n.reboots()
	opens()

	// Without a reboot, an OnReboot gate does not close.
	n.runs(pod, false)
	p.lingers()
	opens()
}

// formerNode deletes a Node and re-creates it, while the old pod remains.
func formerNode(p *play) {
	n := p.registers("former", "agent")
	n.daemon("agent", true)
	n.becomes("agent", opened)
	n.recreated("agent")
	p.lingers()
	n.daemon("agent", true)
	n.becomes("agent", opened)
}

// blocked makes signals hold on nodes that are unreachable or being set up.
func blocked(p *play) {
	const setup = "node.cloudprovider.kubernetes.io/uninitialized"
	net := withCondition("Net", corev1.ConditionTrue)
	fresh := p.registers("blocked-setup", "net", tainted(setup), net)
	unreachable := p.registers("blocked-silent", "net", withCondition("Ready", corev1.ConditionUnknown), net)
	p.lingers()
	fresh.edit(untainted(setup))
	unreachable.reports(corev1.NodeReady, corev1.ConditionTrue)
	fresh.becomes("net", opened)
	unreachable.becomes("net", opened)
}

// allDaemons requires that every DaemonSet that is expected on the node is ready.
func allDaemons(p *play) {
	n := p.registers("every", "every", noTaints)
	// DaemonSet second does not tolerate this taint, but is still expected on the node.
	starting := p.registers("every-starting", "every", noTaints, tainted(startupTaint))
	n.daemon("first", true)
	starting.daemon("first", true)
	p.lingers()
	n.daemon("second", true)
	n.becomes("every", opened)
	starting.stays("every", closed)
}

// startupTaint is a taint of another tool that is being set up.
const startupTaint = "startup-taint.cluster-autoscaler.kubernetes.io/x"

// noDaemons waits for DaemonSets on a node on which none is expected. The gate opens,
// except while the node is being set up.
func noDaemons(p *play) {
	n := p.registers("none", "none")
	starting := p.registers("none-starting", "none", tainted(startupTaint))
	p.lingers()
	n.edit(untainted(corev1.TaintNodeNotReady))
	starting.edit(untainted(corev1.TaintNodeNotReady))
	n.becomes("none", opened)
	starting.stays("none", closed)
}

// sameKey adds a foreign taint with the gate's key and another effect.
func sameKey(p *play) {
	foreign := corev1.Taint{Key: key("twin"), Effect: corev1.TaintEffectPreferNoSchedule}
	n := p.registers("same-key", "twin", labelled, withCondition("Net", corev1.ConditionTrue), func(o *corev1.Node) {
		o.Spec.Taints = append(o.Spec.Taints, foreign)
	})
	p.await("both gates to be open", func(context.Context) error {
		object := n.get()
		for _, gate := range []string{"twin", "other"} {
			if state, raw := recordedState(object, gate); state != opened {
				return fmt.Errorf("the record of gate %s is %q", gate, raw)
			}
		}
		return nil
	})
}

// csi waits for a driver's volume limit in the CSINode of this Node.
func csi(p *play) {
	object := func(n *node, owner types.UID, limit *storagev1.VolumeNodeResources) *storagev1.CSINode {
		return &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: owner}}},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "csi.example.com", NodeID: n.Name, Allocatable: limit}}},
		}
	}
	limit := &storagev1.VolumeNodeResources{Count: new(int32(9))}
	n, former := p.registers("csi", "csi"), p.registers("csi-former", "csi")
	without := object(n, n.get().UID, nil)
	p.creates(without)
	p.creates(object(former, "another", limit))
	p.lingers()
	// The API server does not allow changing a driver, so it is registered again.
	p.deletes(without)
	p.creates(object(n, n.get().UID, limit))
	n.becomes("csi", opened)
}

// conditions sets a condition to Unknown and False, which do not open a gate.
func conditions(p *play) {
	n := p.registers("conditions", "net")
	for _, status := range []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionFalse} {
		n.reports("Net", status)
		p.lingers()
	}
	n.reports("Net", corev1.ConditionTrue)
	n.becomes("net", opened)
}

// marks makes a pod ready by an annotation, once in each boot.
func marks(p *play) {
	n := p.registers("marked", "marked")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "marked", Labels: map[string]string{"app": "marked"}, Annotations: map[string]string{fit: "false"}},
		Spec:       corev1.PodSpec{NodeName: n.Name, Containers: []corev1.Container{{Name: "daemon", Image: "daemon"}}},
	}
	mark := func(value string) { patches(p, pod, func() { pod.Annotations = map[string]string{fit: value} }) }
	p.creates(pod)
	n.runs(pod, true)
	p.lingers()
	mark("true")
	n.becomes("marked", opened)
	n.untilNextSecond()
	n.reboots()
	n.becomes("marked", closed)
	p.lingers()
	mark("false")
	n.untilNextSecond()
	mark("true")
	n.becomes("marked", opened)
}
