// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/install"
)

// publishingGate returns a gate that publishes an overdue node after two seconds.
func publishingGate() *v1alpha1.NodeGate {
	ng := newGate("agent", keyA, byLabel("fit"))
	ng.Spec.Deadline = &v1alpha1.Deadline{ReadySeconds: new(int32(2)), Condition: v1alpha1.DeadlineConditionPublish}
	ng.Spec.Budget.MaxReclosed = percent("100%")
	return ng
}

// published returns the condition of gate agent on the node; nil if there is none.
func (k *kubelet) published() *corev1.NodeCondition {
	k.Helper()
	return nodeCondition(k.node(), "deadline.nodegate.dev/agent")
}

func nodeCondition(n *corev1.Node, kind string) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if string(n.Status.Conditions[i].Type) == kind {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// becomesPublished waits until the node has the condition, or no longer has it.
func (k *kubelet) becomesPublished(want bool) {
	k.Helper()
	k.eventually(fmt.Sprintf("the condition exists on node %s: %t", k.name, want), func() error {
		return errUnless((k.published() != nil) == want, fmt.Sprintf("condition %+v", k.published()))
	})
}

// publishedAgain waits until the node has lost the condition because of a change, and has it
// again. That takes only the two seconds of publishingGate, so all states of the node count.
func (k *kubelet) publishedAgain(change func()) {
	k.Helper()
	lost := k.watchFor(func(n *corev1.Node) bool {
		return n.Name == k.name && nodeCondition(n, "deadline.nodegate.dev/agent") == nil
	})
	before := k.published().LastTransitionTime
	change()
	k.eventually("the condition exists again", func() error {
		c := k.published()
		return errUnless(c != nil && before.Before(&c.LastTransitionTime), fmt.Sprintf("condition %+v", c))
	})
	if lost() == 0 {
		k.Error("the condition was replaced without having been absent")
	}
}

// allowConditions applies the objects that 'nodegate manifests --node-conditions' adds.
func (e *env) allowConditions() {
	e.Helper()
	e.allow("--node-conditions", func(o *install.Options) { o.NodeConditions = true })
}

// unhealthyFor evaluates an entry of unhealthyNodeConditions as MachineHealthCheck and
// NodeHealthCheck do: a node is unhealthy if it has the condition with this status for at
// least the timeout.
func unhealthyFor(n *corev1.Node, kind string, status corev1.ConditionStatus, timeout time.Duration, now time.Time) bool {
	c := nodeCondition(n, kind)
	return c != nil && c.Status == status && !now.Before(c.LastTransitionTime.Add(timeout))
}

// The condition appears after the deadline, stays during heartbeats and a change of the
// leader, and is gone when the gate opens, after a reboot, when the gate is paused, and
// when it is deleted. Remediation controllers see an unhealthy node in the meantime.
func TestOverdueNodeIsPublished(t *testing.T) {
	e := newEnv(t)
	e.allowConditions()
	stop := e.startController(0)
	ng := e.declare(publishingGate())
	k := e.registered("n1")[0]
	k.becomesPublished(true)
	c := k.published()
	if c.Status != corev1.ConditionTrue || c.Reason != "DeadlinePassed" || !strings.Contains(c.Message, "gate agent is closed on this node and its deadline has passed; it waits for: signal ") {
		t.Errorf("condition %+v", c)
	}
	since := c.LastTransitionTime.Time
	for after, want := range map[time.Duration]bool{0: false, 5 * time.Minute: true} {
		if got := unhealthyFor(k.node(), "deadline.nodegate.dev/agent", corev1.ConditionTrue, 5*time.Minute, since.Add(after)); got != want {
			t.Errorf("unhealthy after %s: %t, want %t", after, got, want)
		}
	}
	k.report(corev1.ConditionTrue, "")
	stop()
	e.startReconciled(0, "agent", 1)
	if now := k.published(); now == nil || !now.LastTransitionTime.Equal(&c.LastTransitionTime) {
		t.Errorf("after a change of the leader: %+v, want %+v", now, c)
	}
	e.eventually("the gate reports the node", func() error {
		return e.messageContains("agent", v1alpha1.ConditionOverdue, "with condition deadline.nodegate.dev/agent: n1")
	})
	k.label("fit")
	k.becomes("agent", isOpen, keyA)
	k.becomesPublished(false)
	if c := nodeCondition(k.node(), "Ready"); c == nil || c.Status != corev1.ConditionTrue {
		t.Errorf("condition Ready is %+v", c)
	}

	k.unlabel("fit")
	k.reboot()
	k.becomes("agent", isClosed, keyA)
	k.becomesPublished(true)
	k.publishedAgain(k.reboot)
	e.edit(ng, func() { ng.Spec.Mode = v1alpha1.ModePaused })
	k.becomesPublished(false)
	e.must(k.is("agent", isClosed, keyA))
	e.edit(ng, func() { ng.Spec.Mode = v1alpha1.ModeEnforce })
	k.becomesPublished(true)
	e.must(e.admin.Delete(t.Context(), ng))
	k.becomes("agent", isNone, keyA)
	k.becomesPublished(false)
}

// Of ten overdue nodes in one zone, as many have the condition as the budget allows. When
// one of them opens, another one gets it.
func TestPublishedNodesAreLimited(t *testing.T) {
	e := newEnv(t)
	e.allowConditions()
	e.startController(0)
	ng := publishingGate()
	ng.Spec.Budget.MaxReclosed = percent("20%")
	e.declare(ng)
	fleet := e.fleet(10)
	published := func() (all []*kubelet) {
		for _, k := range fleet {
			if k.published() != nil {
				all = append(all, k)
			}
		}
		return all
	}
	limited := func() error {
		if n := len(published()); n > 2 {
			t.Fatalf("%d nodes have the condition, want at most 2", n)
		}
		return errors.Join(
			e.messageContains("agent", v1alpha1.ConditionOverdue, "waiting for this condition, because budget.maxReclosed (20%) does not allow it on more nodes"),
			errUnless(len(published()) == 2, "fewer nodes have the condition"))
	}
	e.eventually("two nodes have the condition, and the gate reports the others", limited)
	first := published()[0]
	first.label("fit")
	first.becomesPublished(false)
	e.eventually("another node has the condition", limited)
}

// Without a running nodegate, the release command removes the condition together with the taint
// and the record.
func TestReleaseRemovesTheCondition(t *testing.T) {
	e := newEnv(t)
	e.allowConditions()
	stop := e.startController(0)
	ng := e.declare(publishingGate())
	k := e.registered("n1")[0]
	k.becomesPublished(true)
	stop()
	e.must(e.admin.Delete(t.Context(), ng))
	for _, mode := range []string{"client", "server"} {
		e.tells(e.ask(e.cluster.Admin(), "release", "n1", "--dry-run="+mode), 0, "node/n1 released from agent")
	}
	if k.published() == nil {
		t.Error("a dry run removed the condition")
	}
	e.tells(e.ask(e.cluster.Admin(), "release", "n1"), 0, "node/n1 released from agent")
	k.becomesPublished(false)
	e.must(k.is("agent", isNone, keyA))
}

// Without the permission, the gate reports what is missing, and the API server gets no
// requests that it denies.
func TestPublishingWithoutThePermission(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	gate := publishingGate()
	gate.Spec.Deadline.Condition = v1alpha1.DeadlineConditionNone // otherwise it is never ready
	e.declare(gate)
	k := e.registered("n1")[0]
	e.edit(gate, func() { gate.Spec.Deadline.Condition = v1alpha1.DeadlineConditionPublish })
	e.eventually("the gate reports the missing permission", func() error {
		return e.condition("agent", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPermissionMissing)
	})
	e.must(e.messageContains("agent", v1alpha1.ConditionReady, "--node-conditions"))
	e.eventually("the node is overdue", func() error { return k.overdue("agent") })
	e.allowConditions()
	k.becomesPublished(true)
}

// With the permission to patch nodes/status, a stolen token can write nothing but
// conditions of gates.
func TestStolenTokenThatMayPublish(t *testing.T) {
	e := newEnv(t)
	e.allowConditions()
	a := newAttacker(e, installation.Namespace, installation.ServiceAccount)
	status := func(conditions string) string { return `{"status":{"conditions":[` + conditions + `]}}` }
	own := func(kind, status string) string {
		return fmt.Sprintf(`{"type":%q,"status":%q,"reason":"DeadlinePassed"}`, kind, status)
	}
	for what, attack := range map[string]struct{ change, want string }{
		"a condition of the kubelet":    {status(own("Ready", "False")), "may change only conditions under deadline.nodegate.dev/"},
		"a condition of another writer": {status(own("nodegate.dev/other", "True")), "may change only conditions under deadline.nodegate.dev/"},
		"a condition without a gate":    {status(own("deadline.nodegate.dev/", "True")), "must have the type deadline.nodegate.dev/GATE"},
		"the status False":              {status(own("deadline.nodegate.dev/g", "False")), "the status True"},
		"another reason":                {status(`{"type":"deadline.nodegate.dev/g","status":"True","reason":"Other"}`), "the reason DeadlinePassed"},
		"the allocatable resources":     {`{"status":{"allocatable":{"cpu":"1"}}}`, "may change only conditions under deadline.nodegate.dev/"},
		"the boot ID":                   {`{"status":{"nodeInfo":{"bootID":"x"}}}`, "may change only conditions under deadline.nodegate.dev/"},
		"a label":                       {`{"metadata":{"labels":{"x":"y"}}}`, "may not change a Node's metadata by a write to nodes/status"},
		"a record":                      {`{"metadata":{"annotations":{"gate.nodegate.dev/g":"{}"}}}`, "may not change a Node's metadata by a write to nodes/status"},
	} {
		node := a.node(what)
		a.refused(what, a.patchNodeStatus(node, attack.change, v1alpha1.FieldManager), attack.want)
		a.untouched(node)
	}
	node := a.node("its own condition")
	a.refused("another field manager", a.patchNodeStatus(node, status(own("deadline.nodegate.dev/g", "True")), "kubelet"), "only as field manager")
	e.must(a.patchNodeStatus(node, status(own("deadline.nodegate.dev/g", "True")), v1alpha1.FieldManager))
	e.must(a.patchNodeStatus(node, status(`{"type":"deadline.nodegate.dev/g","$patch":"delete"}`), v1alpha1.FieldManager))
	a.untouched(node)
}
