// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// recorded verifies the state in a gate's record, regardless of its taint.
func (n *node) recorded(ctx context.Context, gate, state string) error {
	object, err := n.get(ctx)
	if err != nil {
		return err
	}
	var record struct{ State string }
	raw := object.Annotations[v1alpha1.RecordAnnotationPrefix+gate]
	if err := json.Unmarshal([]byte(raw), &record); err != nil || record.State != state {
		return fmt.Errorf("the record is %q", raw)
	}
	return nil
}

// ambushes calls a function just before nodegate's next patch of the node that contains
// a text arrives, and returns a channel with the result.
func (n *node) ambushes(body string, do func() error) <-chan error {
	done := make(chan error, 1)
	n.proxy.before(n.name, body, func() { done <- do() })
	return done
}

// outcome waits for the result of an ambush.
func (p *play) outcome(done <-chan error) func() error {
	return func() error {
		return p.await(p, "nodegate to write", func(ctx context.Context) error {
			select {
			case err := <-done:
				return err
			default:
				return fmt.Errorf("no patch has arrived")
			}
		})
	}
}

const opens = `\"state\":\"Open\"`

// raceForTaints removes another taint, which changes the index of the gate's taint.
func raceForTaints(p *play) error {
	n, err := p.registers("race-taints", "net", func(o *corev1.Node) {
		o.Spec.Taints = []corev1.Taint{taint(foreignTaint + "first"), taint(key("net")), taint(foreignTaint + "second")}
	})
	if err != nil {
		return err
	}
	done := n.ambushes(opens, func() error { return n.edit(untainted(foreignTaint + "first")) })
	return steps(
		func() error { return n.reports(withCondition("Net", corev1.ConditionTrue)) },
		p.outcome(done),
		func() error { return n.becomes("net", opened) },
	)
}

// raceWithBoot reboots the node just before its gate opens.
func raceWithBoot(p *play) error {
	n, err := p.registers("race-boot", "agent")
	if err != nil {
		return err
	}
	pod, err := n.daemon("agent", false)
	if err != nil {
		return err
	}
	done := n.ambushes(opens, n.reboots)
	return steps(
		func() error { return n.becomes("agent", closed) },
		func() error { return n.runs(pod, true) },
		p.outcome(done), p.lingers,
		func() error { return n.runs(pod, true) },
		func() error { return n.becomes("agent", opened) },
	)
}

// raceWithNode deletes and re-creates the Node, with the same boot ID, just before its
// gate opens.
func raceWithNode(p *play) error {
	n, err := p.registers("race-node", "agent")
	if err != nil {
		return err
	}
	pod, err := n.daemon("agent", false)
	if err != nil {
		return err
	}
	done := n.ambushes(opens, func() error {
		return steps(
			n.untilNextSecond,
			func() error { return p.admin.Delete(p, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}) },
			func() error { return n.register("agent") },
		)
	})
	return steps(
		func() error { return n.becomes("agent", closed) },
		func() error { return n.runs(pod, true) },
		p.outcome(done), p.lingers,
		func() error { _, err := n.daemon("agent", true); return err },
		func() error { return n.becomes("agent", opened) },
	)
}

// raceWithOverride removes an override just before it opens the gate.
func raceWithOverride(p *play) error {
	n, err := p.registers("race-override", "overridden")
	if err != nil {
		return err
	}
	const annotation = v1alpha1.OverrideAnnotationPrefix + "overridden"
	done := n.ambushes(`\"override\":\"Open\"`, func() error {
		return n.edit(func(o *corev1.Node) { delete(o.Annotations, annotation) })
	})
	text, err := n.overridden(opened, time.Hour)
	if err != nil {
		return err
	}
	return steps(
		func() error { return n.becomes("overridden", closed) },
		func() error { return n.edit(func(o *corev1.Node) { o.Annotations[annotation] = text }) },
		p.outcome(done), p.lingers,
		func() error { return n.becomes("overridden", closed) },
	)
}

// raceForFirstTaint adds another taint just before nodegate adds the node's first taint.
func raceForFirstTaint(p *play) error {
	n, err := p.registers("race-no-taints", "hand", untaintedAtBirth)
	if err != nil {
		return err
	}
	done := n.ambushes("", func() error { return n.edit(tainted(foreignTaint + "late")) })
	return steps(
		func() error { return n.edit(func(o *corev1.Node) { o.Spec.Taints = nil }) },
		func() error { return n.reports(withCondition("BadDisk", corev1.ConditionTrue)) },
		p.outcome(done),
		func() error { return n.becomes("hand", closed) },
	)
}

// raceForFirstAnnotation adds an annotation just before nodegate adds the node's first.
func raceForFirstAnnotation(p *play) error {
	n, err := p.registers("race-annotation", "hand")
	if err != nil {
		return err
	}
	done := n.ambushes("", func() error {
		return n.edit(func(o *corev1.Node) { o.Annotations = map[string]string{foreignTaint + "late": "true"} })
	})
	return steps(
		func() error { return n.reports(withCondition("BadDisk", corev1.ConditionTrue)) },
		p.outcome(done),
		func() error { return n.becomes("hand", closed) },
	)
}
