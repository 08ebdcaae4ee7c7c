// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/testbed"
)

// several registers nodes in one zone that one gate selects.
func (p *play) several(gate string, change ...func(*corev1.Node)) []*node {
	var nodes []*node
	for _, suffix := range []string{"-1", "-2", "-3"} {
		nodes = append(nodes, p.registers(gate+suffix, gate, append([]func(*corev1.Node){inZone(gate)}, change...)...))
	}
	return nodes
}

// awaitOneClosed waits until the gate is closed on one of the nodes, and returns it.
func (p *play) awaitOneClosed(nodes []*node, gate string) (one *node) {
	p.await(fmt.Sprintf("gate %s to be closed on one node", gate), func(context.Context) error {
		count := 0
		for _, n := range nodes {
			if n.is(gate, closed) == nil {
				one = n
				count++
			}
		}
		if count != 1 {
			return fmt.Errorf("it is closed on %d", count)
		}
		return nil
	})
	return one
}

// regression makes all nodes regress. They close one at a time.
func regression(p *play) {
	nodes := p.several("fit", labelled)
	for _, n := range nodes {
		n.becomes("fit", opened)
	}
	for _, n := range nodes {
		n.edit(unlabelled)
	}
	p.awaitOneClosed(nodes, "fit")
	p.lingers()
	one := p.awaitOneClosed(nodes, "fit")
	one.edit(labelled)
	one.becomes("fit", opened)
	p.awaitOneClosed(nodes, "fit")
	p.lingers()
}

// unknownIsNoRegression sets a condition to Unknown, which closes nothing.
func unknownIsNoRegression(p *play) {
	n := p.registers("calm", "calm", withCondition("Net", corev1.ConditionTrue))
	n.becomes("calm", opened)
	n.reports("Net", corev1.ConditionUnknown)
	p.lingers()
}

// followsLevel makes a closeWhen gate close within its budget, ignore Unknown, and
// open.
func followsLevel(p *play) {
	// A missing condition does not hold, so the nodes are created with it.
	nodes := p.several("level", withCondition("BadDisk", corev1.ConditionUnknown))
	p.lingers()
	for _, n := range nodes {
		n.reports("BadDisk", corev1.ConditionTrue)
	}
	one := p.awaitOneClosed(nodes, "level")
	p.lingers()
	one.reports("BadDisk", corev1.ConditionUnknown)
	p.lingers()
	one.reports("BadDisk", corev1.ConditionFalse)
	one.becomes("level", "")
	p.awaitOneClosed(nodes, "level")
	p.lingers()
}

// byHand verifies that a gate with reopen Manual stays closed until a user opens it.
func byHand(p *play) {
	n := p.registers("hand", "hand", withCondition("BadDisk", corev1.ConditionTrue))
	n.becomes("hand", closed)
	n.reports("BadDisk", corev1.ConditionFalse)
	p.lingers()
	n.edit(untainted(key("hand")))
	n.becomes("hand", "")
}

// timing has a deadline open a gate, while that of another gate has not passed, and has
// minClosedSeconds and openAfterSeconds keep further gates closed.
func timing(p *play) {
	p.registers("later", "later")
	late, hold, soak := p.registers("late", "late"), p.registers("hold", "hold", labelled), p.registers("soak", "soak", labelled)
	late.becomes("late", opened)
	soak.becomes("soak", opened)
	hold.becomes("hold", opened) // by then, a controller that ignores time has opened the third
}

// missingPods has a deadline open a gate on a node without the daemon's pod, and not on one with a pod
// that is not ready. That pod is older than its Node.
func missingPods(p *play) {
	without, with := p.registers("missing", "missing"), p.registers("missing-not", "missing")
	with.daemon("agent", false)
	with.recreated("missing")
	without.becomes("missing", opened)
	p.pause(3 * time.Second)
	with.stays("missing", closed)
}

// writesOpenings opens a gate twice, which writes the time each time.
func writesOpenings(p *play) {
	n := p.registers("stamped", "stamped", labelled)
	n.becomes("stamped", opened)
	n.edit(unlabelled)
	n.untilNextSecond()
	n.reboots()
	n.becomes("stamped", closed)
	p.lingers()
	n.edit(labelled)
	n.becomes("stamped", opened)
}

// overdue lets the deadline of a gate pass on two nodes of a zone. The budget allows its
// condition on one of them, and on the other when the gate opens on the first.
func overdue(p *play) {
	zone := inZone("overdue")
	nodes := []*node{p.registers("overdue-a", "overdue", zone), p.registers("overdue-b", "overdue", zone)}
	first := p.published(nodes)
	p.lingers()
	first.edit(labelled)
	first.becomes("overdue", opened)
	nodes = slices.DeleteFunc(nodes, func(n *node) bool { return n == first })
	p.published(nodes).becomes("overdue", closed)
}

// published waits until one of the nodes has a condition of a gate, and returns it.
func (p *play) published(nodes []*node) (first *node) {
	p.await("a condition to be published", func(context.Context) error {
		for _, n := range nodes {
			if slices.ContainsFunc(n.get().Status.Conditions, func(c corev1.NodeCondition) bool {
				return strings.HasPrefix(string(c.Type), v1alpha1.DeadlineConditionPrefix)
			}) {
				first = n
				return nil
			}
		}
		return errors.New("no node has it")
	})
	return first
}

// modes verifies that gates in DryRun and Paused do nothing.
func modes(p *play) {
	dry, paused := p.registers("dry", "dry"), p.registers("paused", "paused")
	var ng v1alpha1.NodeGate
	p.check("reading gate paused", p.admin.Get(p, client.ObjectKey{Name: "paused"}, &ng))
	patches(p, &ng, func() { ng.Spec.Mode = v1alpha1.ModePaused })
	p.await("gate paused to report it", func(ctx context.Context) error {
		ng, err := testbed.GetGate(ctx, p.applier, "paused")
		if err != nil {
			return err
		}
		if c := meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Reason != v1alpha1.ReasonPaused {
			return fmt.Errorf("its condition Ready is %v", c)
		}
		return nil
	})
	// After this, no write is based on the earlier spec.
	p.pause(2100 * time.Millisecond)
	paused.edit(labelled)
	dry.edit(labelled)
	p.lingers()
	dry.edit(unlabelled)
	p.lingers()
}

// deleted deletes a gate, which releases its nodes.
func deleted(p *play) {
	n := p.registers("doomed", "doomed")
	n.becomes("doomed", closed)
	p.deletes(&v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: "doomed"}})
	n.becomes("doomed", "")
}

const overrideAnnotation = v1alpha1.OverrideAnnotationPrefix + "overridden"

// override returns an override of the node that ends after some time.
func (n *node) override(state string, lasts time.Duration) string {
	until := time.Now().Add(lasts).UTC().Format(time.RFC3339)
	return fmt.Sprintf(`{"state":%q,"until":%q,"reason":"the scenario","uid":%q}`, state, until, n.get().UID)
}

// overrides opens and closes gates by temporary overrides. An override is shortened only when
// it has taken effect, however long that takes.
func overrides(p *play) {
	override := func(n *node, want, after string) {
		n.becomes("overridden", after)
		n.edit(annotated(overrideAnnotation, n.override(want, time.Hour)))
		n.becomes("overridden", want)
		n.edit(annotated(overrideAnnotation, n.override(want, time.Second)))
		n.becomes("overridden", after)
	}
	override(p.registers("overridden-open", "overridden"), opened, closed)
	override(p.registers("overridden-closed", "overridden", labelled), closed, opened)
}

// undone removes the taint of a closed gate, and adds the taint of an open gate, as
// another writer.
func undone(p *play) {
	n, fit := p.registers("undone", "undone"), p.registers("undone-fit", "undone", labelled)
	n.becomes("undone", closed)
	fit.becomes("undone", opened)
	n.edit(untainted(key("undone")))
	fit.edit(tainted(key("undone")))
	n.becomes("undone", closed)
	fit.becomes("undone", opened)
}

// twins verifies that the taint of two gates remains as long as one of them is closed.
func twins(p *play) {
	n := p.registers("twin", "twin", labelled)
	p.await("gate twin to be open", func(context.Context) error {
		if n.is("twin", opened) == nil {
			return errors.New("the shared taint is missing")
		}
		if state, raw := recordedState(n.get(), "twin"); state != opened {
			return fmt.Errorf("the record is %q", raw)
		}
		return nil
	})
	p.lingers()
	n.reports("Net", corev1.ConditionTrue)
	n.becomes("twin", opened)
}

// once verifies that a gate with reclosePolicy Never does not reclose.
func once(p *play) {
	n := p.registers("once", "once", labelled)
	n.becomes("once", opened)
	n.reboots()
	p.lingers()
	n.becomes("once", opened)
}

// twoTaints reboots a node. Its gate closes again with recloseTaint, and not with the taint for new
// nodes.
func twoTaints(p *play) {
	n := p.registers("again", "again", labelled)
	n.becomes("again", opened)
	n.edit(unlabelled)
	n.reboots()
	p.await("gate again to close again", func(context.Context) error {
		if state, raw := recordedState(n.get(), "again"); state != closed {
			return fmt.Errorf("the record is %q", raw)
		}
		return nil
	})
	p.lingers()
	n.edit(labelled)
	n.becomes("again", opened)
}

// forger registers a node with forged records, as its kubelet.
func forger(p *play) {
	const record = v1alpha1.RecordAnnotationPrefix + "net"
	n := p.registers("forger", "net", annotated(record, `{"state":"Open","reason":"SignalsHold","source":"crd"}`))
	n.becomes("net", closed)
	object := n.get()
	object.Annotations[record] = `{"state":"Closed","reason":"Adopted","taint":"x:NoSchedule"}`
	_, _ = n.kubelet.CoreV1().Nodes().Update(p, object, metav1.UpdateOptions{}) // a policy rejects this, which the judge verifies
	p.lingers()
}

// existing creates gates after their nodes. One gate closes the nodes, one at a time, but
// opens on a node that is fit; one cannot know whether its node is fit; one closes idle nodes
// only; one ignores existing nodes, until another writer adds its taint to one of them.
func existing(p *play) {
	old, ignored := p.several("old"), append(p.several("ignored"), p.registers("ignored-fit", "ignored", labelled))
	ready := p.registers("old-fit", "old", labelled)
	unsure := p.registers("unsure", "unsure", withCondition("Net", corev1.ConditionUnknown))
	busy := p.registers("busy", "idle")
	p.creates(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "workload"},
		Spec:       corev1.PodSpec{NodeName: busy.Name, Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	})
	p.untilNextSecond()
	for _, ng := range lateGates() {
		p.creates(ng)
	}
	p.awaitOneClosed(old, "old")
	p.lingers()
	unsure.stays("unsure", "")
	ready.becomes("old", opened)
	for _, n := range ignored {
		n.stays("ignored", "")
	}
	busy.stays("idle", "")
	adopted := ignored[0]
	adopted.edit(tainted(key("ignored")))
	adopted.becomes("ignored", closed)
	adopted.edit(labelled)
	adopted.becomes("ignored", opened)
}
