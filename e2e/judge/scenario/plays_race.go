// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// before calls a function just before nodegate's next patch of the node that contains a
// text arrives. The returned function waits until that has happened. If the function
// fails, the play ends.
func (n *node) before(body string, do func()) (wait func()) {
	done := make(chan struct{})
	n.proxy.before(n.Name, body, func() {
		var group sync.WaitGroup
		group.Go(do) // in a goroutine, which its failure ends
		group.Wait()
		close(done)
	})
	return func() {
		n.await("nodegate to write", func(context.Context) error {
			select {
			case <-done:
				return nil
			default:
				return errors.New("no patch has arrived")
			}
		})
	}
}

// What a patch contains that writes the record of a gate that opens, or closes.
const (
	opens  = `\"state\":\"Open\"`
	closes = `\"state\":\"Closed\"`
)

// raceForTaints removes another taint, which changes the index of the gate's taint.
func raceForTaints(p *play) {
	n := p.registers("race-taints", "net", func(o *corev1.Node) {
		o.Spec.Taints = []corev1.Taint{taint(foreignTaint + "first"), taint(key("net")), taint(foreignTaint + "second")}
	})
	wait := n.before(opens, func() { n.edit(untainted(foreignTaint + "first")) })
	n.reports("Net", corev1.ConditionTrue)
	wait()
	n.becomes("net", opened)
}

// raceWithBoot reboots the node just before its gate opens.
func raceWithBoot(p *play) {
	n := p.registers("race-boot", "agent")
	pod := n.daemon("agent", false)
	wait := n.before(opens, n.reboots)
	n.becomes("agent", closed)
	n.runs(pod, true)
	wait()
	p.lingers()
	n.runs(pod, true)
	n.becomes("agent", opened)
}

// raceWithNode deletes and re-creates the Node, with the same boot ID, just before its
// gate opens.
func raceWithNode(p *play) {
	n := p.registers("race-node", "agent")
	pod := n.daemon("agent", false)
	wait := n.before(opens, func() { n.recreated("agent") })
	n.becomes("agent", closed)
	n.runs(pod, true)
	wait()
	p.lingers()
	n.daemon("agent", true)
	n.becomes("agent", opened)
}

// raceWithOverride removes an override just before it opens the gate.
func raceWithOverride(p *play) {
	n := p.registers("race-override", "overridden")
	wait := n.before(`\"override\":\"Open\"`, func() {
		n.edit(func(o *corev1.Node) { delete(o.Annotations, overrideAnnotation) })
	})
	override := n.override(opened, time.Hour)
	n.becomes("overridden", closed)
	n.edit(annotated(overrideAnnotation, override))
	wait()
	p.lingers()
	n.becomes("overridden", closed)
}

// raceForFirstTaint adds another taint just before nodegate adds the node's first taint.
func raceForFirstTaint(p *play) {
	n := p.registers("race-no-taints", "hand", noTaints)
	wait := n.before(closes, func() { n.edit(tainted(foreignTaint + "late")) })
	n.edit(noTaints)
	n.reports("BadDisk", corev1.ConditionTrue)
	wait()
	n.becomes("hand", closed)
}

// raceForFirstAnnotation adds an annotation just before nodegate adds the node's first.
func raceForFirstAnnotation(p *play) {
	n := p.registers("race-annotation", "hand")
	wait := n.before(closes, func() { n.edit(annotated(foreignTaint+"late", "true")) })
	n.reports("BadDisk", corev1.ConditionTrue)
	wait()
	n.becomes("hand", closed)
}
