// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster/await"
)

// several registers nodes in one zone that one gate selects.
func (p *play) several(gate string, change ...func(*corev1.Node)) ([]*node, error) {
	var nodes []*node
	for _, suffix := range []string{"-1", "-2", "-3"} {
		n, err := p.registers(gate+suffix, gate, append([]func(*corev1.Node){inZone(gate)}, change...)...)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// awaitClosed waits until the gate is closed on want of the nodes, and returns one of
// them.
func (p *play) awaitClosed(nodes []*node, gate string, want int) (one *node, err error) {
	err = p.await(p, fmt.Sprintf("gate %s to be closed on %d nodes", gate, want), func(ctx context.Context) error {
		n := 0
		for _, each := range nodes {
			if each.is(ctx, gate, closed) == nil {
				one = each
				n++
			}
		}
		if n != want {
			return fmt.Errorf("it is closed on %d", n)
		}
		return nil
	})
	return one, err
}

// each calls a function for every node.
func each(nodes []*node, do func(*node) error) error {
	var errs []error
	for _, n := range nodes {
		errs = append(errs, do(n))
	}
	return errors.Join(errs...)
}

// regression makes all nodes regress. They close one at a time.
func regression(p *play) error {
	nodes, err := p.several("fit", labelled)
	if err != nil {
		return err
	}
	return steps(
		func() error { return each(nodes, func(n *node) error { return n.becomes("fit", opened) }) },
		func() error { return each(nodes, func(n *node) error { return n.edit(unlabelled) }) },
		func() error { _, err := p.awaitClosed(nodes, "fit", 1); return err },
		p.lingers,
		func() error {
			one, err := p.awaitClosed(nodes, "fit", 1)
			if err != nil {
				return err
			}
			return errors.Join(one.edit(labelled), one.becomes("fit", opened))
		},
		func() error { _, err := p.awaitClosed(nodes, "fit", 1); return err },
		p.lingers,
	)
}

// unknownIsNoRegression sets a condition to Unknown, which closes nothing.
func unknownIsNoRegression(p *play) error {
	n, err := p.registers("calm", "calm", withCondition("Net", corev1.ConditionTrue))
	if err != nil {
		return err
	}
	return steps(
		func() error { return n.becomes("calm", opened) },
		func() error { return n.reports(withCondition("Net", corev1.ConditionUnknown)) },
		p.lingers,
	)
}

// followsLevel makes a closeWhen gate close within its budget, ignore Unknown, and
// open.
func followsLevel(p *play) error {
	// A missing condition does not hold, so the nodes are created with it.
	nodes, err := p.several("level", withCondition("BadDisk", corev1.ConditionUnknown))
	if err != nil {
		return err
	}
	bad := func(status corev1.ConditionStatus) func(*node) error {
		return func(n *node) error { return n.reports(withCondition("BadDisk", status)) }
	}
	var one *node
	return steps(
		p.lingers,
		func() error { return each(nodes, bad(corev1.ConditionTrue)) },
		func() (err error) { one, err = p.awaitClosed(nodes, "level", 1); return err },
		p.lingers,
		func() error { return bad(corev1.ConditionUnknown)(one) }, p.lingers,
		func() error { return bad(corev1.ConditionFalse)(one) },
		func() error { return one.becomes("level", "") },
		func() error { _, err := p.awaitClosed(nodes, "level", 1); return err },
		p.lingers,
	)
}

// byHand verifies that a gate with reopen Manual stays closed until a user opens it.
func byHand(p *play) error {
	n, err := p.registers("hand", "hand", withCondition("BadDisk", corev1.ConditionTrue))
	if err != nil {
		return err
	}
	return steps(
		func() error { return n.becomes("hand", closed) },
		func() error { return n.reports(withCondition("BadDisk", corev1.ConditionFalse)) },
		p.lingers,
		func() error { return n.edit(untainted(key("hand"))) },
		func() error { return n.becomes("hand", "") },
	)
}

// timing has a deadline open a gate, and minClosedSeconds keep another closed.
func timing(p *play) error {
	late, err := p.registers("late", "late")
	if err != nil {
		return err
	}
	hold, err := p.registers("hold", "hold", labelled)
	if err != nil {
		return err
	}
	return steps(
		func() error { return late.becomes("late", opened) },
		func() error { return hold.becomes("hold", opened) },
	)
}

// modes verifies that gates in DryRun and Paused do nothing.
func modes(p *play) error {
	dry, err := p.registers("dry", "dry")
	if err != nil {
		return err
	}
	paused, err := p.registers("paused", "paused")
	if err != nil {
		return err
	}
	var ng v1alpha1.NodeGate
	return steps(
		func() error { return p.admin.Get(p, client.ObjectKey{Name: "paused"}, &ng) },
		func() error {
			base := ng.DeepCopy()
			ng.Spec.Mode = v1alpha1.ModePaused
			return p.admin.Patch(p, &ng, client.MergeFrom(base))
		},
		func() error {
			return p.await(p, "gate paused to report it", func(ctx context.Context) error { return p.says(ctx, "paused", v1alpha1.ReasonPaused) })
		},
		// After this, no write is based on the earlier spec.
		func() error { return await.Pause(p, 2100*time.Millisecond) },
		func() error { return errors.Join(paused.edit(labelled), dry.edit(labelled)) },
		p.lingers,
		func() error { return dry.edit(unlabelled) },
		p.lingers,
	)
}

// says verifies the reason of a gate's Ready condition.
func (s *stage) says(ctx context.Context, gate, reason string) error {
	var ng v1alpha1.NodeGate
	if err := s.admin.Get(ctx, client.ObjectKey{Name: gate}, &ng); err != nil {
		return err
	}
	for _, c := range ng.Status.Conditions {
		if c.Type == v1alpha1.ConditionReady && c.Reason == reason {
			return nil
		}
	}
	return fmt.Errorf("its conditions are %v", ng.Status.Conditions)
}

// deleted deletes a gate, which releases its nodes.
func deleted(p *play) error {
	n, err := p.registers("doomed", "doomed")
	if err != nil {
		return err
	}
	return steps(
		func() error { return n.becomes("doomed", closed) },
		func() error {
			return p.admin.Delete(p, &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: "doomed"}})
		},
		func() error { return n.becomes("doomed", "") },
	)
}

// overridden returns an override of the node that ends after some time.
func (n *node) overridden(state string, lasts time.Duration) (string, error) {
	object, err := n.get(n)
	if err != nil {
		return "", err
	}
	until := time.Now().Add(lasts).UTC().Format(time.RFC3339)
	return fmt.Sprintf(`{"state":%q,"until":%q,"reason":"the scenario","uid":%q}`, state, until, object.UID), nil
}

// overrides opens and closes gates by temporary overrides.
func overrides(p *play) error {
	for _, c := range []struct{ name, want, after string }{{"overridden-open", opened, closed}, {"overridden-closed", closed, opened}} {
		var changes []func(*corev1.Node)
		if c.after == opened {
			changes = append(changes, labelled)
		}
		n, err := p.registers(c.name, "overridden", changes...)
		if err != nil {
			return err
		}
		if err := n.becomes("overridden", c.after); err != nil {
			return err
		}
		text, err := n.overridden(c.want, 3*time.Second)
		if err != nil {
			return err
		}
		err = steps(
			func() error {
				return n.edit(func(o *corev1.Node) { o.Annotations[v1alpha1.OverrideAnnotationPrefix+"overridden"] = text })
			},
			func() error { return n.becomes("overridden", c.want) },
			func() error { return n.becomes("overridden", c.after) },
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// undone removes the taint of a closed gate, and adds the taint of an open gate, as
// another writer.
func undone(p *play) error {
	n, err := p.registers("undone", "undone")
	if err != nil {
		return err
	}
	fit, err := p.registers("undone-fit", "undone", labelled)
	if err != nil {
		return err
	}
	return steps(
		func() error { return n.becomes("undone", closed) },
		func() error { return fit.becomes("undone", opened) },
		func() error { return n.edit(untainted(key("undone"))) },
		func() error { return fit.edit(tainted(key("undone"))) },
		func() error { return n.becomes("undone", closed) },
		func() error { return fit.becomes("undone", opened) },
	)
}

// twins verifies that the taint of two gates remains as long as one of them is closed.
func twins(p *play) error {
	n, err := p.registers("twin", "twin", labelled)
	if err != nil {
		return err
	}
	return steps(
		func() error {
			return p.await(p, "gate twin to be open", func(ctx context.Context) error {
				if err := n.is(ctx, "twin", opened); err == nil {
					return errors.New("the shared taint is missing")
				}
				return n.recorded(ctx, "twin", opened)
			})
		},
		p.lingers,
		func() error { return n.reports(withCondition("Net", corev1.ConditionTrue)) },
		func() error { return n.becomes("twin", opened) },
	)
}

// once verifies that a gate with reclosePolicy Never does not reclose.
func once(p *play) error {
	n, err := p.registers("once", "once", labelled)
	if err != nil {
		return err
	}
	return steps(
		func() error { return n.becomes("once", opened) },
		n.reboots, p.lingers,
		func() error { return n.becomes("once", opened) },
	)
}

// forger registers a node with forged records, as its kubelet.
func forger(p *play) error {
	n, err := p.registers("forger", "net", func(o *corev1.Node) {
		o.Annotations = map[string]string{v1alpha1.RecordAnnotationPrefix + "net": `{"state":"Open","reason":"SignalsHold","source":"crd"}`}
	})
	if err != nil {
		return err
	}
	return steps(
		func() error { return n.becomes("net", closed) },
		func() error {
			object, err := n.get(p)
			if err != nil {
				return err
			}
			object.Annotations[v1alpha1.RecordAnnotationPrefix+"net"] = `{"state":"Closed","reason":"Adopted","taint":"x:NoSchedule"}`
			_ = n.kubelet.Update(p, object) // a policy rejects this, which the judge verifies
			return nil
		},
		p.lingers)
}

// existing creates gates after their nodes. One gate closes the nodes, one at a time;
// one closes idle nodes only; one ignores existing nodes.
func existing(p *play) error {
	old, err := p.several("old")
	if err != nil {
		return err
	}
	ignored, err := p.several("ignored")
	if err != nil {
		return err
	}
	busy, err := p.registers("busy", "idle")
	if err != nil {
		return err
	}
	workload := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "workload"},
		Spec:       corev1.PodSpec{NodeName: busy.name, Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	return steps(
		func() error { return p.admin.Create(p, workload) },
		p.untilNextSecond,
		func() error {
			for _, ng := range lateGates() {
				if err := p.admin.Create(p, ng); err != nil {
					return err
				}
			}
			return nil
		},
		func() error { _, err := p.awaitClosed(old, "old", 1); return err },
		p.lingers,
		func() error { return each(ignored, func(n *node) error { return n.is(p, "ignored", "") }) },
		func() error { return busy.is(p, "idle", "") },
	)
}
