// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Features and defects of LasseHels/tainter; see docs/from-tainter.md.

// matching returns a signal on a condition, with patterns for type and status, as in Tainter.
func matching(name, conditionType, status string) v1alpha1.Signal {
	return v1alpha1.Signal{Name: name, SignalSource: v1alpha1.SignalSource{
		Condition: &v1alpha1.ConditionSignal{TypePattern: conditionType, StatusPattern: status},
	}}
}

// taintWhen returns a gate that adds taint keyA to nodes while all signals hold.
func taintWhen(name string, signals ...v1alpha1.Signal) *v1alpha1.NodeGate {
	ng := newGate(name, keyA, v1alpha1.SignalSource{})
	ng.Spec.OpenWhen, ng.Spec.CloseWhen = nil, signals
	return ng
}

// broken returns a signal that holds while the node's network interface card is broken.
func broken() v1alpha1.Signal { return matching("nic", "NetworkInterfaceCard", "Kaput|Ruined") }

// setCondition sets a condition of the node, like a problem detector.
func (k *kubelet) setCondition(conditionType, status string) {
	k.Helper()
	k.statusPatch(fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q}]}}`, conditionType, status))
}

// registered registers nodes, and returns their kubelets.
func (e *env) registered(names ...string) []*kubelet {
	e.Helper()
	var all []*kubelet
	for _, name := range names {
		k := e.kubelet(name)
		k.register()
		all = append(all, k)
	}
	return all
}

// count returns the number of the node's taints with the key.
func (k *kubelet) count(key string) int {
	k.Helper()
	return count(k.node(), key)
}

func count(node *corev1.Node, key string) (n int) {
	for _, t := range node.Spec.Taints {
		if t.Key == key {
			n++
		}
	}
	return n
}

// holds verifies that the gate is in this state once the controller has processed all earlier
// changes.
func (k *kubelet) holds(gateName, state string) {
	k.Helper()
	k.settled()
	k.must(k.is(gateName, state, keyA))
}

// A condition causes a taint, also on nodes that had it before the gate was created. When it
// clears, the taint is removed. Tainter never removed it.
func TestSeedTainterConditionToTaint(t *testing.T) {
	e := newEnv(t)
	e.startController(time.Hour) // no node is new
	nodes := e.registered("before", "after", "fit")
	before, after := nodes[0], nodes[1]
	before.setCondition("NetworkInterfaceCard", "Kaput")
	ng := taintWhen("nic", broken())
	ng.Spec.Budget.MaxReclosed = percent("100%")
	e.declare(ng)
	e.must(e.condition("nic", v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted))

	before.becomes("nic", isClosed, keyA)
	after.setCondition("NetworkInterfaceCard", "Ruined")
	after.becomes("nic", isClosed, keyA)
	if r := after.record("nic"); r.Reason != v1alpha1.ReasonSignalsHold {
		t.Errorf("closed for %s, want %s", r.Reason, v1alpha1.ReasonSignalsHold)
	}
	e.waitsFor("nic", "after", v1alpha1.ReadingMatches)
	for _, k := range []*kubelet{before, after} {
		k.setCondition("NetworkInterfaceCard", "Fine")
		k.becomes("nic", isNone, keyA)
	}
	before.wrote(2)
	after.wrote(2)
	nodes[2].wrote(0)
	born := e.kubelet("born").register()
	if hasTaint(born, keyA) {
		t.Error("a closeWhen gate closed at birth")
	}
}

// All conditions of one gate must match, each by type and status.
func TestSeedTainterAllConditionsOfAMatcher(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(taintWhen("both", broken(), matching("link", "Private.*", "severed")))
	k := e.registered("n1")[0]
	k.setCondition("NetworkInterfaceCard", "Ruined")
	k.holds("both", isNone)
	k.setCondition("PrivateLink", "severed")
	k.becomes("both", isClosed, keyA)
	k.setCondition("NetworkInterfaceCard", "Fine")
	k.becomes("both", isNone, keyA)
}

// Several matchers with the same taint: the node has it while at least one of them matches. If
// two matched at once, Tainter wrote the taint twice, which the API server rejected, so that
// the node never got it.
func TestSeedTainterSeveralMatchersOneTaint(t *testing.T) {
	e := newEnv(t)
	k := e.registered("n1")[0]
	k.setCondition("NetworkInterfaceCard", "Kaput")
	k.setCondition("PrivateLink", "severed")
	e.startController(0)
	e.declare(taintWhen("card", broken()))
	e.declare(taintWhen("link", matching("link", "PrivateLink", "severed")))
	k.becomes("card", isClosed, keyA)
	k.becomes("link", isClosed, keyA)
	if n := k.count(keyA); n != 1 {
		t.Errorf("the node has the taint %d times, want once", n)
	}
	untainted := e.watchFor(func(n *corev1.Node) bool { return n.Name == "n1" && !hasTaint(n, keyA) })
	k.setCondition("NetworkInterfaceCard", "Fine")
	e.eventually("the first gate is open", func() error {
		_, recorded := k.node().Annotations[v1alpha1.RecordAnnotationPrefix+"card"]
		return unless(!recorded)
	})
	if n := untainted(); n > 0 {
		t.Errorf("the node was without the taint in %d states although one matcher matched", n)
	}
	k.setCondition("PrivateLink", "whole")
	k.becomes("link", isNone, keyA)
}

// Gates support every effect. Only NoExecute taints have timeAdded, from which tolerationSeconds
// are counted.
func TestSeedTainterEveryEffect(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	for name, effect := range map[string]corev1.TaintEffect{
		"soft": corev1.TaintEffectPreferNoSchedule, "hard": corev1.TaintEffectNoSchedule, "evict": corev1.TaintEffectNoExecute,
	} {
		ng := taintWhen(name, broken())
		ng.Spec.Taint.Effect, ng.Spec.Taint.Value = effect, "nic"
		ng.Spec.Acknowledge = []v1alpha1.Acknowledgement{v1alpha1.AcknowledgePodEviction}
		e.declare(ng)
	}
	k := e.registered("n1")[0]
	start := time.Now().Add(-time.Second)
	k.setCondition("NetworkInterfaceCard", "Kaput")
	e.eventually("the node has all three taints", func() error {
		if k.count(keyA) < 3 {
			return fmt.Errorf("taints: %s", keys(k.node()))
		}
		return nil
	})
	for _, taint := range k.node().Spec.Taints {
		if taint.Key != keyA {
			continue
		}
		if timed := taint.TimeAdded != nil; timed != (taint.Effect == corev1.TaintEffectNoExecute) || timed && taint.TimeAdded.Time.Before(start) {
			t.Errorf("taint %s has timeAdded %v", taint.ToString(), taint.TimeAdded)
		}
		if taint.Value != "nic" {
			t.Errorf("taint %s has another value, want nic", taint.ToString())
		}
	}
	k.setCondition("NetworkInterfaceCard", "Fine")
	e.eventually("all three taints are removed", func() error {
		if k.count(keyA) > 0 {
			return fmt.Errorf("taints: %s", keys(k.node()))
		}
		return nil
	})
}

// A gate closes because the Ready condition of an unreachable node is Unknown, and opens when
// the node is reporting again.
func TestSeedTainterReadyUnknown(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(taintWhen("unreachable", v1alpha1.Signal{Name: "ready", SignalSource: v1alpha1.SignalSource{
		Condition: &v1alpha1.ConditionSignal{Type: "Ready", Status: "Unknown"},
	}}))
	k := e.registered("n1")[0]
	k.holds("unreachable", isNone)
	k.becomeUnreachable()
	k.becomes("unreachable", isClosed, keyA)
	k.report(corev1.ConditionTrue, "")
	k.becomes("unreachable", isNone, keyA)
}

// With reopen Manual, a node stays tainted until a user removes the taint.
func TestSeedTainterReopenManual(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := taintWhen("nic", broken())
	ng.Spec.Reopen = v1alpha1.ReopenManual
	e.declare(ng)
	k := e.registered("n1")[0]
	untaint := func() {
		t.Helper()
		e.must(e.editTaints(t.Context(), "n1", "kubectl-taint", func(taints []corev1.Taint) []corev1.Taint { return without(taints, keyA) }))
	}
	k.setCondition("NetworkInterfaceCard", "Kaput")
	k.becomes("nic", isClosed, keyA)
	k.setCondition("NetworkInterfaceCard", "Fine")
	e.waitsFor("nic", "n1", v1alpha1.ReadingReopenedByHand)
	e.must(k.is("nic", isClosed, keyA))
	untaint()
	k.becomes("nic", isNone, keyA)

	k.setCondition("NetworkInterfaceCard", "Kaput")
	k.becomes("nic", isClosed, keyA)
	untaint() // while the condition holds
	k.becomes("nic", isOpen, keyA)
	if r := k.record("nic"); r.Reason != v1alpha1.ReasonOpenedByHand {
		t.Errorf("opened for %s, want %s", r.Reason, v1alpha1.ReasonOpenedByHand)
	}
	k.holds("nic", isOpen)
	k.setCondition("NetworkInterfaceCard", "Fine")
	k.becomes("nic", isNone, keyA) // and can close again
	k.setCondition("NetworkInterfaceCard", "Ruined")
	k.becomes("nic", isClosed, keyA)
}

// closedBy returns the nodes on which the gate is closed.
func closedBy(gateName string, fleet []*kubelet) (closed []*kubelet) {
	for _, k := range fleet {
		if k.is(gateName, isClosed, keyA) == nil {
			closed = append(closed, k)
		}
	}
	return closed
}

// The budget limits the number of tainted nodes. Tainter taints all nodes that match.
func TestSeedTainterBudget(t *testing.T) {
	e := newEnv(t)
	var fleet []*kubelet
	for i := range 10 {
		k := e.kubelet(fmt.Sprint("n", i))
		k.register(func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "a" }) // budgets apply per zone
		fleet = append(fleet, k)
	}
	for _, k := range fleet[:3] {
		k.setCondition("NetworkInterfaceCard", "Kaput")
	}
	e.startController(0)
	e.declare(taintWhen("nic", broken()))
	e.eventually("closing is throttled", func() error { return e.condition("nic", v1alpha1.ConditionThrottled, metav1.ConditionTrue, "") })
	e.eventually("20 % of the nodes are closed", func() error {
		if n := len(closedBy("nic", fleet)); n != 2 {
			return fmt.Errorf("%d nodes are closed", n)
		}
		return nil
	})
	e.settled()
	first := closedBy("nic", fleet)
	if len(first) != 2 {
		t.Fatalf("%d nodes are closed, want 2", len(first))
	}
	first[0].setCondition("NetworkInterfaceCard", "Fine")
	first[0].becomes("nic", isNone, keyA)
	for _, k := range fleet[:3] {
		if k != first[0] {
			k.becomes("nic", isClosed, keyA) // there is budget for the third node
		}
	}
	e.eventually("nothing is throttled", func() error {
		return unless(e.condition("nic", v1alpha1.ConditionThrottled, metav1.ConditionTrue, "") != nil)
	})
}

// percent returns a percentage for maxReclosed.
func percent(p string) *intstr.IntOrString { return new(intstr.FromString(p)) }

// With forSeconds, a condition that holds only briefly does not taint a node, unlike in Tainter.
// The gate closes after that time without another event.
func TestSeedTainterForSeconds(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	signal := v1alpha1.Signal{Name: "nic", SignalSource: v1alpha1.SignalSource{
		Condition: &v1alpha1.ConditionSignal{Type: "NetworkInterfaceCard", Status: "Kaput", ForSeconds: 3},
	}}
	e.declare(taintWhen("nic", signal))
	k := e.registered("n1")[0]
	began := time.Now().Truncate(time.Second) // transitions have whole seconds
	k.reportCondition("NetworkInterfaceCard", "Kaput", began)
	k.becomes("nic", isClosed, keyA)
	if r := k.record("nic"); r.Since.Before(began.Add(3 * time.Second)) {
		t.Errorf("closed at %s, want 3 s after %s, since when the condition matches", r.Since, began)
	}
	k.reportCondition("NetworkInterfaceCard", "Fine", time.Now())
	k.becomes("nic", isNone, keyA)
}
