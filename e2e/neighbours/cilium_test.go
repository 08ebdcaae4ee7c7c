// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/recording"
	"github.com/nodegate/nodegate/internal/testbed"
)

// Cilium's operator runs beside a gate with its taint, in all settings of its two flags, while the
// agent starts, is not ready for a moment, is deleted, and while the node reboots. If the operator
// removes the taint, it does so too early when the agent terminates and after a reboot. Otherwise,
// no node opens too early.
func TestCiliumOperator(t *testing.T) {
	for _, remove := range []bool{true, false} {
		for _, set := range []bool{true, false} {
			t.Run(fmt.Sprintf("remove %t set %t", remove, set), func(t *testing.T) {
				s := newCilium(t, fmt.Sprintf("cilium-%t-%t", remove, set), "")
				s.startOperator(fmt.Sprintf("--remove-cilium-node-taints=%t", remove), fmt.Sprintf("--set-cilium-node-taints=%t", set))
				s.declareWith(s.gate, ciliumKey, agentSignal)
				for _, event := range []string{"restart", "terminate", "reboot"} {
					s.createMember(s.gate + "-" + event)
				}
				s.awaitOperator()
				for _, event := range []string{"restart", "terminate", "reboot"} {
					s.opens(s.gate + "-" + event)
				}
				s.restarts(s.gate + "-restart")
				if remove {
					s.terminatesOpen(s.gate + "-terminate")
					s.rebootsOpen(s.gate + "-reboot")
				} else {
					s.terminates(s.gate + "-terminate")
					s.reboots(s.gate + "-reboot")
				}
				s.verify(remove, set)
			})
		}
	}
}

// opens makes the agent ready, and waits until both controllers have written the node.
func (s *ciliumSite) opens(node string) {
	s.Helper()
	s.report(node, true)
	s.awaitGate(node, s.gate, ciliumKey, false)
	s.awaitCiliumIsUp(node)
}

// restarts makes the agent not ready, and ready again.
func (s *ciliumSite) restarts(node string) {
	s.Helper()
	s.report(node, false)
	s.awaitGate(node, s.gate, ciliumKey, true)
	s.awaitOperator()
	s.report(node, true)
	s.awaitGate(node, s.gate, ciliumKey, false)
}

// terminates deletes the agent's pod, and starts another one.
func (s *ciliumSite) terminates(node string) {
	s.Helper()
	end := s.terminate(node)
	s.awaitGate(node, s.gate, ciliumKey, true)
	s.awaitOperator()
	end()
	s.report(node, false)
	s.awaitOperator()
	s.report(node, true)
	s.awaitGate(node, s.gate, ciliumKey, false)
}

// terminatesOpen does the same beside an operator that removes the taint because a terminating pod
// is still ready.
func (s *ciliumSite) terminatesOpen(node string) {
	s.Helper()
	before := s.now()
	end := s.terminate(node)
	s.awaitRemoved(before, node)
	end()
	s.report(node, false)
	s.awaitGate(node, s.gate, ciliumKey, true)
	s.report(node, true)
	s.awaitGate(node, s.gate, ciliumKey, false)
}

// reboots reboots the node. The agent's pod shows its state from before the reboot until the agent
// reports.
func (s *ciliumSite) reboots(node string) {
	s.Helper()
	s.setBootID(node, "boot-2")
	s.awaitGate(node, s.gate, ciliumKey, true)
	s.awaitOperator()
	s.report(node, true)
	s.awaitGate(node, s.gate, ciliumKey, false)
}

// rebootsOpen does the same beside an operator that removes the taint because of the agent's state
// from before the reboot.
func (s *ciliumSite) rebootsOpen(node string) {
	s.Helper()
	before := s.now()
	s.setBootID(node, "boot-2")
	s.awaitRemoved(before, node)
	s.report(node, true)
	s.awaitGate(node, s.gate, ciliumKey, false)
}

// awaitRemoved waits until the operator has removed the taint from a node since a position, and
// nodegate reports this.
func (s *ciliumSite) awaitRemoved(since recording.Position, node string) {
	s.Helper()
	s.eventually("the operator to remove the taint from node "+node+", and nodegate to report it", func(ctx context.Context) error {
		n := s.patchesOf(since, ciliumUser, node)
		if message := s.contended(ctx); n == 0 || !strings.Contains(message, "cilium-operator") {
			return fmt.Errorf("the operator patched the node %d times; %s", n, message)
		}
		return nil
	})
}

// patchesOf returns how often a user has patched a node's metadata or spec since a position.
func (s *ciliumSite) patchesOf(since recording.Position, user, node string) (n int) {
	s.Helper()
	for _, event := range s.requests(since, user, "patch", "nodes", "") {
		if event.ObjectRef.Name == node {
			n++
		}
	}
	return n
}

// contended returns the message of the gate's condition Contended, if it is True.
func (s *ciliumSite) contended(ctx context.Context) string {
	s.Helper()
	gate, err := testbed.GetGate(ctx, shared.applier, s.gate)
	s.must(err)
	if c := meta.FindStatusCondition(gate.Status.Conditions, v1alpha1.ConditionContended); c != nil && c.Status == "True" {
		return c.Message
	}
	return ""
}

// verify verifies who removed the taint and when, and that nodegate did not change the operator's
// condition.
func (s *ciliumSite) verify(remove, set bool) {
	s.Helper()
	s.awaitOperator()
	h := s.history(s.since)
	early := h.early()
	for _, event := range []string{"terminate: its pod is terminating", "reboot: its pod is from before the reboot"} {
		what := fmt.Sprintf("%s on %s-%s", ciliumUser, s.gate, event)
		if (early[what] > 0) != remove {
			s.Errorf("early removals: %v; want one of %q: %t", early, what, remove)
		}
		delete(early, what)
	}
	if len(early) > 0 {
		s.Errorf("early removals: %v", early)
	}
	if n := h.by(ciliumUser); !remove && n > 0 {
		s.Errorf("the operator removed the taint %d times", n)
	}
	if !h.conditions[ciliumUser] || h.conditions[shared.installation.Username()] {
		s.Errorf("users that changed the condition NetworkUnavailable: %v", h.conditions)
	}
	if message := s.contended(s.Context()); !remove && !set && (message != "" || h.reverted() > 0) {
		s.Errorf("nodegate reverted the operator's taint %d times; the gate reports: %s", h.reverted(), message)
	}
	s.Logf("nodegate removed the taint %d times, %d of these from a node with an open gate; the operator %d times, too early: %v; additions: %v; the operator patched nodes %d times, nodegate %d times",
		h.by(shared.installation.Username()), h.reverted(), h.by(ciliumUser), h.early(), h.additions, s.patches(s.since, ciliumUser), s.patches(s.since, shared.installation.Username()))
}
