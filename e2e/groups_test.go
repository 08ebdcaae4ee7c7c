// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

const (
	rackLabel = "example.com/rack"
	sizeLabel = "example.com/rack-size"
)

// rackGate returns a gate that opens on the nodes of a rack together when all of them have
// the label "fit", and closes on a node that loses it.
func rackGate(change ...func(*v1alpha1.NodeGateSpec)) *v1alpha1.NodeGate {
	ng := onRegression(newGate("rack", keyA, byLabel("fit")))
	ng.Spec.OpenTogether = &v1alpha1.OpenTogether{LabelKey: rackLabel, SizeLabelKey: sizeLabel, AtLeast: intstr.FromString("100%")}
	ng.Spec.Budget.MaxReclosed = percent("100%")
	for _, c := range change {
		c(&ng.Spec)
	}
	return ng
}

// rack registers the nodes of a rack of four.
func (e *env) rack(name string) []*kubelet {
	e.Helper()
	all := make([]*kubelet, 4)
	for i := range all {
		all[i] = e.kubelet(fmt.Sprintf("%s-n%d", name, i+1))
	}
	e.each(all, func(k *kubelet) {
		k.register(func(n *corev1.Node) { n.Labels[rackLabel], n.Labels[sizeLabel] = name, "4" })
		k.report(corev1.ConditionTrue, "")
	})
	return all
}

// are checks the state of gate rack on nodes.
func are(state string, all ...*kubelet) error {
	var errs []error
	for _, k := range all {
		errs = append(errs, k.is("rack", state, keyA))
	}
	return errors.Join(errs...)
}

// become waits until gate rack has a state on all nodes.
func (e *env) become(state string, all ...*kubelet) {
	e.Helper()
	e.eventually("gate rack is "+state+" on the rack", func() error { return are(state, all...) })
}

// showsWaiting waits until the gate's status names what a node waits for.
func (e *env) showsWaiting(k *kubelet, text string) {
	e.Helper()
	e.eventually("node "+k.name+" waits for "+text, func() error {
		w := e.waitingMessage("rack", k.name)
		return errUnless(strings.Contains(w.Reason+" "+w.Message, text), fmt.Sprintf("it waits for %+v", w))
	})
}

// The four nodes of a rack open at once when the last one is fit, although the controller
// restarts before that. Each of the others says meanwhile which node it waits for. A second
// rack is not affected.
func TestRackOpensTogether(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	e.declare(rackGate())
	rack, other := e.rack("r1"), e.rack("r2")
	last := rack[3]
	for _, k := range append(rack[:3:3], other[0]) {
		k.label("fit")
	}
	e.showsWaiting(rack[0], "GroupIncomplete the node's group is incomplete: group r1 has 3 fit nodes and needs 4; not fit: r1-n4 (openTogether.atLeast)")
	e.showsWaiting(last, "Missing")
	e.tells(e.ask(e.cluster.Admin(), "why", rack[0].name), 1, "blocked", "group r1 has 3 fit nodes and needs 4; not fit: r1-n4", "run kubectl gate why for nodes that the message names as not fit")
	e.tells(e.ask(e.cluster.Admin(), "why", last.name), 1, "group", "group r1 has 3 fit nodes and needs 4", "does not")
	e.must(are(isClosed, append(rack, other...)...))
	stop()
	metrics, _ := e.startReconciled(0, "rack", 8)
	e.must(are(isClosed, append(rack, other...)...))
	began := time.Now()
	last.label("fit")
	e.become(isOpen, rack...)
	t.Logf("the rack opened within %s", time.Since(began).Round(time.Millisecond))
	for _, k := range rack {
		if r := k.record("rack"); r.Reason != v1alpha1.ReasonSignalsHold {
			t.Errorf("node %s opened because of %s", k.name, r.Reason)
		}
	}
	e.eventually("the status counts the groups", func() error {
		groups := e.readGate("rack").Status.Groups
		return errUnless(groups != nil && *groups == v1alpha1.GroupCounts{Complete: 1, Incomplete: 1}, fmt.Sprintf("groups %+v", groups))
	})
	e.shows(metrics, "nodegate_gate_groups", 1, "rack", "complete")
	e.shows(metrics, "nodegate_gate_groups", 1, "rack", "incomplete")
	e.must(are(isClosed, other...))
}

// Without closeTogether, a node that is lost closes nothing else, not even across a restart
// of the controller, and opens with its group again.
func TestRackLosesANode(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	e.declare(rackGate(func(s *v1alpha1.NodeGateSpec) { s.Budget.MaxReclosed = new(intstr.FromInt32(2)) }))
	rack, other := e.rack("r1"), e.rack("r2")
	both := slices.Concat(rack, other)
	e.each(both, func(k *kubelet) { k.label("fit") })
	e.become(isOpen, both...)
	rack[1].unlabel("fit")
	rack[1].becomes("rack", isClosed, keyA)
	stop()
	e.startReconciled(0, "rack", len(both))
	e.eventually("the status counts the incomplete group", func() error {
		groups := e.readGate("rack").Status.Groups
		return errUnless(groups != nil && groups.Incomplete == 1, fmt.Sprintf("groups %+v", groups))
	})
	other[3].unlabel("fit")
	other[3].becomes("rack", isClosed, keyA) // the budget's second node: a node of the first rack would be first
	e.must(are(isOpen, rack[0], rack[2], rack[3]))
	rack[1].label("fit")
	e.become(isOpen, rack...)
}

// With closeTogether, a node that is lost closes the rest of its rack, after the controller
// has restarted in between, as far as the budget allows; the gate reports the nodes for
// which there is no budget. The rack opens at once when the node is fit again.
func TestRackClosesTogether(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ng := e.declare(rackGate(func(s *v1alpha1.NodeGateSpec) {
		s.CloseTogether = v1alpha1.CloseTogetherWhenIncomplete
		s.Timing.CloseAfterSeconds = new(int32(1))
		s.Budget.MaxReclosed = new(intstr.FromInt32(3))
	}))
	rack := e.rack("r1")
	e.each(rack, func(k *kubelet) { k.label("fit") })
	e.become(isOpen, rack...)
	rack[1].unlabel("fit")
	rack[1].becomes("rack", isClosed, keyA)
	stop()
	e.startReconciled(0, "rack", 4)
	e.eventually("three nodes are closed, and the fourth waits for budget", func() error {
		return errors.Join(
			errUnless(e.closed("rack", rack) == 3, fmt.Sprintf("%d nodes are closed", e.closed("rack", rack))),
			e.messageContains("rack", v1alpha1.ConditionThrottled, "group r1 has 3 fit nodes and needs 4; not fit: r1-n2"))
	})
	e.edit(ng, func() { ng.Spec.Budget.MaxReclosed = new(intstr.FromInt32(4)) })
	e.become(isClosed, rack...)
	for _, k := range []*kubelet{rack[0], rack[2], rack[3]} {
		if r := k.record("rack"); r.Reason != v1alpha1.ReasonGroupIncomplete {
			t.Errorf("node %s closed because of %s", k.name, r.Reason)
		}
	}
	e.showsWaiting(rack[0], "not fit: r1-n2")
	rack[1].label("fit")
	e.become(isOpen, rack...)
}

// A node without the label that names its group, or whose group has no size, waits, and the
// status says which label is missing.
func TestNodeWithoutGroup(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(rackGate())
	k := e.kubelet("single")
	k.register(func(n *corev1.Node) { n.Labels["fit"] = "" })
	k.report(corev1.ConditionTrue, "")
	e.showsWaiting(k, "GroupUnknown the node has no label example.com/rack")
	k.patch(fmt.Sprintf(`{"metadata":{"labels":{%q:"r9"}}}`, rackLabel))
	e.showsWaiting(k, "GroupSizeUnknown no node of the group declares its size")
	k.patch(fmt.Sprintf(`{"metadata":{"labels":{%q:"1"}}}`, sizeLabel))
	k.becomes("rack", isOpen, keyA)
}
