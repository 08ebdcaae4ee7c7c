// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// override has a person override a gate on the node, for so long from now.
func (k *kubelet) override(gateName, state string, last time.Duration) {
	k.Helper()
	o := gate.Override{State: state, Until: time.Now().Add(last), Reason: `ticket "7"`, UID: k.node().UID}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1alpha1.OverrideAnnotationPrefix + gateName: o.String()}}})
	k.must(err)
	k.patch(string(body))
}

// stands waits until the taint is on the node, or not, and the record says so, and
// what the gate is by itself.
func (k *kubelet) stands(gateName, own, byHand string) {
	k.Helper()
	k.eventually(fmt.Sprintf("gate %s is %s, by hand %q", gateName, own, byHand), func() error {
		n := k.node()
		r, err := gate.ParseRecord(n.Annotations[v1alpha1.RecordAnnotationPrefix+gateName])
		if err != nil || r.State != own || r.Override != byHand {
			return fmt.Errorf("taints %v, record %+v", keys(n), r)
		}
		return agrees(n)
	})
}

func (k *kubelet) hasNoOverride() {
	k.Helper()
	if all := k.node().Annotations; all[v1alpha1.OverrideAnnotationPrefix+"agent"] != "" {
		k.Errorf("an override that has ended is still there: %v", all)
	}
}

// A person opens an unfit node for a time. It ends by itself, and the node is
// closed again by one write; the controller may be replaced meanwhile. In no state
// that anybody sees do taint and record disagree.
func TestOverrideOpensForATime(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	k.register()
	k.report(corev1.ConditionTrue, "")
	k.becomes("agent", isClosed, keyA)
	defer e.watchAll(agrees)()

	k.override("agent", isOpen, time.Hour)
	k.stands("agent", isClosed, isOpen)
	e.must(errUnless(!hasTaint(k.node(), keyA), "the taint is still there"))
	stop()
	e.startController(0)
	k.reboot()
	e.inForce("agent")
	k.stands("agent", isClosed, isOpen)

	writes, ended := len(e.nodeWrites("n1")), time.Now().Truncate(time.Second)
	k.override("agent", isOpen, time.Second)
	k.stands("agent", isClosed, "")
	k.hasNoOverride()
	if got := len(e.nodeWrites("n1")) - writes; got > 2 { // and one for the new boot, if that was not noticed before
		t.Errorf("written %d times to close again", got)
	}
	if r := k.record("agent"); r.Since.Before(ended) {
		t.Errorf("closed again, and the record says since %s", r.Since)
	}
	k.label("ready")
	k.becomes("agent", isOpen, keyA)
}

// A person keeps a fit node closed for a time, and one that is outside the gate;
// when that ends they are what they were.
func TestOverrideClosesForATime(t *testing.T) {
	e := newEnv(t)
	old := e.kubelet("old")
	old.register()
	old.report(corev1.ConditionTrue, "")
	e.startController(20 * time.Minute)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	e.inForce("agent")
	k := e.kubelet("n1")
	k.register(func(n *corev1.Node) { n.Labels["ready"] = "" })
	k.report(corev1.ConditionTrue, "")
	k.becomes("agent", isOpen, keyA)
	defer e.watchAll(agrees)()

	k.override("agent", isClosed, 2*time.Hour)
	old.override("agent", isClosed, 2*time.Hour)
	k.stands("agent", isOpen, isClosed)
	old.stands("agent", isOpen, isClosed)
	for _, one := range []*kubelet{k, old} {
		one.override("agent", isClosed, 20*time.Minute+time.Second)
	}
	k.stands("agent", isOpen, "")
	k.hasNoOverride()
	old.becomes("agent", isNone, keyA)
}

// The gate is deleted in the middle: nothing is left of it.
func TestGateDeletedUnderAnOverride(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := e.declare(newGate("agent", keyA, byLabel("ready")))
	opened, closed := e.kubelet("n1"), e.kubelet("n2")
	opened.register()
	closed.register(func(n *corev1.Node) { n.Labels["ready"] = "" })
	for _, k := range []*kubelet{opened, closed} {
		k.report(corev1.ConditionTrue, "")
	}
	closed.becomes("agent", isOpen, keyA)
	opened.override("agent", isOpen, time.Hour)
	closed.override("agent", isClosed, time.Hour)
	opened.stands("agent", isClosed, isOpen)
	closed.stands("agent", isOpen, isClosed)
	defer e.watchAll(agrees)()

	e.must(e.admin.Delete(t.Context(), ng))
	opened.becomes("agent", isNone, keyA)
	closed.becomes("agent", isNone, keyA)
}

// A node that has opted out is born without taint and record, and let go of later;
// one that opts in while it is new is closed.
func TestOptOut(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	e.inForce("agent")
	out := e.kubelet("n1")
	born := out.register(func(n *corev1.Node) { n.Labels[v1alpha1.OptOutLabel] = v1alpha1.OptOutValue })
	if hasTaint(born, keyA) || len(records(born)) > 0 {
		t.Errorf("born with taints %v and annotations %v", keys(born), born.Annotations)
	}
	in := e.kubelet("n2")
	in.register()
	e.must(in.is("agent", isClosed, keyA))
	defer e.watchAll(agrees)()
	in.patch(`{"metadata":{"labels":{"nodegate.dev/opt-out":"true"}}}`)
	in.becomes("agent", isNone, keyA)
	e.must(out.is("agent", isNone, keyA))

	out.patch(`{"metadata":{"labels":{"nodegate.dev/opt-out":null}}}`)
	out.becomes("agent", isClosed, keyA)
}

func errUnless(ok bool, text string) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%s", text)
}
