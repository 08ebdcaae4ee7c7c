// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller"
	"github.com/nodegate/nodegate/internal/gate"
)

// override sets a manual override of a gate on the node for a duration.
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

// A user opens a gate temporarily on a node that is not ready. The override expires, and one
// write closes the gate again, also if the controller was replaced in the meantime. Taint
// and record agree in every observed state.
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

// A user closes a gate temporarily on a ready node, and on a node that is not a member of
// the gate. When the overrides end, both return to their previous state.
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

// The gate is deleted during an override, and leaves nothing behind.
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
// one that opts in while it is new is closed. Kubelets can not opt their nodes out:
// NodeRestriction denies them the label, and the one that they can set does not count.
func TestOptOut(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	e.inForce("agent")
	out := e.kubelet("n1")
	node := out.newNode()
	node.Labels[v1alpha1.OptOutLabel] = v1alpha1.OptOutValue
	if err := out.api.Create(t.Context(), node.DeepCopy()); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet registers with %s: %v", v1alpha1.OptOutLabel, err)
	}
	e.must(e.admin.Create(t.Context(), node))
	if hasTaint(node, keyA) || len(records(node)) > 0 {
		t.Errorf("born with taints %v and annotations %v", keys(node), node.Annotations)
	}
	in := e.kubelet("n2")
	in.register()
	e.must(in.is("agent", isClosed, keyA))
	liar := e.kubelet("liar")
	plain := func(n *corev1.Node) { n.Labels[v1alpha1.PlainOptOutLabel] = v1alpha1.OptOutValue }
	liar.register(plain)
	later := e.kubelet("later")
	later.register()
	e.must(later.patchAsKubelet(`{"metadata":{"labels":{"`+v1alpha1.PlainOptOutLabel+`":"true"}}}`, false))
	if err := later.patchAsKubelet(optOut, false); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet labels its node %s: %v", v1alpha1.OptOutLabel, err)
	}
	defer e.watchAll(agrees)()
	in.patch(optOut)
	in.becomes("agent", isNone, keyA)
	e.must(out.is("agent", isNone, keyA))
	e.settled()
	e.must(liar.is("agent", isClosed, keyA))
	e.must(later.is("agent", isClosed, keyA))
	e.tells(e.ask(e.cluster.Admin(), "why", "liar"), 1, "label nodegate.dev/opt-out is ignored")

	out.patch(strings.Replace(optOut, `"true"`, "null", 1))
	out.becomes("agent", isClosed, keyA)
}

// optOut is a patch that has a Node opt out.
const optOut = `{"metadata":{"labels":{"` + v1alpha1.OptOutLabel + `":"true"}}}`

// If the administrator allows it, the label that kubelets can set counts, too.
func TestPlainOptOut(t *testing.T) {
	e := newEnv(t)
	options := installation
	options.PlainOptOut = true
	e.must(e.applyAs(t.Context(), options))
	t.Cleanup(func() { e.must(e.apply(context.Background())) })
	e.runController(func(p *controller.Process) { p.Options.PlainOptOut = true })
	e.declare(newGate("agent", keyA, byLabel("ready")))
	e.inForce("agent")
	k := e.kubelet("n1")
	e.eventually("a node is born without the taint", func() error { // the policy takes a moment to be in force
		node := k.newNode()
		node.Labels[v1alpha1.PlainOptOutLabel] = v1alpha1.OptOutValue
		if err := k.api.Create(t.Context(), node); err != nil {
			return err
		}
		if !hasTaint(node, keyA) && len(records(node)) == 0 {
			return nil
		}
		return errors.Join(errNotYet, e.admin.Delete(t.Context(), node))
	})
	e.settled()
	e.must(k.is("agent", isNone, keyA))
	e.tells(e.ask(e.cluster.Admin(), "why", "n1"), 0, "Its label nodegate.dev/opt-out excludes it from all gates.")
	k.patch(`{"metadata":{"labels":{"nodegate.dev/opt-out":null}}}`)
	k.becomes("agent", isClosed, keyA)
}

func errUnless(ok bool, text string) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%s", text)
}
