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

// becomesOverridden waits until the record has the gate's own state and this override (none
// if it is empty), and the node's taints agree with its records.
func (k *kubelet) becomesOverridden(gateName, own, override string) {
	k.Helper()
	k.eventually(fmt.Sprintf("gate %s is %s, with the override %q", gateName, own, override), func() error {
		n := k.node()
		r, err := gate.ParseRecord(n.Annotations[v1alpha1.RecordAnnotationPrefix+gateName])
		if err != nil || r.State != own || r.Override != override {
			return fmt.Errorf("taints %v, record %+v", keys(n), r)
		}
		return agrees(n)
	})
}

// hasNoOverride fails the test if the node has an override annotation of gate agent.
func (k *kubelet) hasNoOverride() {
	k.Helper()
	if all := k.node().Annotations; all[v1alpha1.OverrideAnnotationPrefix+"agent"] != "" {
		k.Errorf("an expired override has not been removed: %v", all)
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
	k.becomesOverridden("agent", isClosed, isOpen)
	e.must(errUnless(!hasTaint(k.node(), keyA), "the node still has the taint"))
	stop()
	e.startController(0)
	k.reboot()
	k.recordsBoot("agent")
	k.becomesOverridden("agent", isClosed, isOpen)

	writes, ended := len(k.nodeWrites()), time.Now().Truncate(time.Second)
	k.override("agent", isOpen, time.Second)
	k.becomesOverridden("agent", isClosed, "")
	k.hasNoOverride()
	k.wrote(writes + 1)
	if r := k.record("agent"); r.Since.Before(ended) {
		t.Errorf("closed again since %s, according to the record; the override was shortened at %s", r.Since, ended)
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
	k := e.kubelet("n1")
	k.register(func(n *corev1.Node) { n.Labels["ready"] = "" })
	k.report(corev1.ConditionTrue, "")
	k.becomes("agent", isOpen, keyA)
	defer e.watchAll(agrees)()

	k.override("agent", isClosed, 2*time.Hour)
	old.override("agent", isClosed, 2*time.Hour)
	k.becomesOverridden("agent", isOpen, isClosed)
	old.becomesOverridden("agent", isOpen, isClosed)
	k.override("agent", isClosed, 20*time.Minute+time.Second)
	old.override("agent", isClosed, 20*time.Minute+time.Second)
	k.becomesOverridden("agent", isOpen, "")
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
	opened.becomesOverridden("agent", isClosed, isOpen)
	closed.becomesOverridden("agent", isOpen, isClosed)
	defer e.watchAll(agrees)()

	e.must(e.admin.Delete(t.Context(), ng))
	opened.becomes("agent", isNone, keyA)
	closed.becomes("agent", isNone, keyA)
}

// Gates do not close on a node that is created with the opt-out label. A closed node that
// opts out is released, and a new node that opts in is closed. Kubelets cannot opt their
// nodes out: NodeRestriction denies them the label, and the label that they can set is
// ignored.
func TestOptOut(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	out := e.kubelet("n1")
	node := out.newNode()
	node.Labels[v1alpha1.OptOutLabel] = v1alpha1.OptOutValue
	if err := out.api.Create(t.Context(), node.DeepCopy()); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet registered a node with label %s: %v, want Forbidden", v1alpha1.OptOutLabel, err)
	}
	e.must(e.admin.Create(t.Context(), node))
	if hasTaint(node, keyA) || len(records(node)) > 0 {
		t.Errorf("created with taints %v and annotations %v", keys(node), node.Annotations)
	}
	in := e.kubelet("n2")
	in.register()
	e.must(in.is("agent", isClosed, keyA))
	plain := e.kubelet("plain")
	plain.register(func(n *corev1.Node) { n.Labels[v1alpha1.PlainOptOutLabel] = v1alpha1.OptOutValue })
	plainLater := e.kubelet("plain-later")
	plainLater.register()
	e.must(plainLater.patchAsKubelet(`{"metadata":{"labels":{"`+v1alpha1.PlainOptOutLabel+`":"true"}}}`, false))
	if err := plainLater.patchAsKubelet(optOut, false); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet labelled its node %s: %v, want Forbidden", v1alpha1.OptOutLabel, err)
	}
	defer e.watchAll(agrees)()
	in.patch(optOut)
	in.becomes("agent", isNone, keyA)
	e.must(out.is("agent", isNone, keyA))
	e.settled()
	e.must(plain.is("agent", isClosed, keyA))
	e.must(plainLater.is("agent", isClosed, keyA))
	e.tells(e.ask(e.cluster.Admin(), "why", "plain"), 1, "label nodegate.dev/opt-out is ignored")

	out.patch(strings.Replace(optOut, `"true"`, "null", 1))
	out.becomes("agent", isClosed, keyA)
}

// optOut is a patch that sets the opt-out label.
const optOut = `{"metadata":{"labels":{"` + v1alpha1.OptOutLabel + `":"true"}}}`

// If the administrator allows it, the label that kubelets can set also opts a node out.
func TestPlainOptOut(t *testing.T) {
	e := newEnv(t)
	options := installation
	options.PlainOptOut = true
	e.must(e.applyAs(t.Context(), options))
	t.Cleanup(func() { e.must(e.apply(context.Background())) })
	e.runController(func(p *controller.Process) { p.Options.PlainOptOut = true })
	e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	e.eventually("a node is created without the taint", func() error { // once the API server enforces the policy
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
