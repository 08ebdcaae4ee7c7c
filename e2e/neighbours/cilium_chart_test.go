// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/recording"
	"github.com/nodegate/nodegate/testcluster"
)

// With operator.removeNodeTaints=false, Cilium's chart removes the operator's permission to patch
// nodes, and leaves the operator's own default, which is to remove the taint. The operator then
// tries again and again, and does not write its condition until the gate has opened for all of its
// signals. One more value disables it.
func TestCiliumChart(t *testing.T) {
	for name, test := range map[string]struct {
		values string
		tries  bool
	}{
		"permission only": {ciliumPermission, true},
		"disabled":        {ciliumDisabled(t), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCilium(t, fmt.Sprintf("cilium-chart-%t", test.tries), test.values)
			s.startOperator()
			s.declareWith(s.gate, ciliumKey, agentSignal+"}, {name: second, "+readySignal)
			node := s.gate + "-new"
			s.createMember(node)
			s.report(node, true)
			if test.tries {
				s.eventually("the operator to try to remove the taint", func(context.Context) error {
					if s.denied() == 0 {
						return fmt.Errorf("no request was denied")
					}
					return nil
				})
			} else {
				s.awaitCiliumIsUp(node)
			}
			s.awaitOperator()
			if isUp := networkUnavailable(s.node(node)).Reason == ciliumIsUp; isUp == test.tries {
				t.Errorf("while the gate is closed, the node has the operator's condition: %t", isUp)
			}
			s.setReady(node, true)
			s.awaitGate(node, s.gate, ciliumKey, false)
			s.awaitCiliumIsUp(node)
			s.reboots(node)
			if denied := s.denied(); denied > 0 != test.tries {
				t.Errorf("%d requests of the operator were denied", denied)
			}
			s.verifyOnlyNodegate(s.since)
			t.Logf("%d requests of the operator were denied", s.denied())
		})
	}
}

// denied returns how many patches of nodes by the operator were denied.
func (s *ciliumSite) denied() (n int) {
	s.Helper()
	s.must(testcluster.ReadAuditFile(s.cluster.AuditLog(), s.since.Logged, func(event *auditv1.Event) error {
		if event.User.Username == ciliumUser && event.Verb == "patch" && event.ObjectRef.Resource == "nodes" && event.ResponseStatus.Code == 403 {
			n++
		}
		return nil
	}))
	return n
}

// verifyOnlyNodegate verifies that only nodegate has removed the taint since a position, and not too
// early.
func (s *ciliumSite) verifyOnlyNodegate(since recording.Position) {
	s.Helper()
	s.awaitOperator()
	h := s.history(since)
	if own := h.by(shared.installation.Username()); own == 0 || own != len(h.removals) || len(h.early()) > 0 {
		s.Errorf("removals of the taint: %+v", h.removals)
	}
	if h.conditions[shared.installation.Username()] {
		s.Error("nodegate changed the condition NetworkUnavailable")
	}
	if message := s.contended(s.Context()); message != "" {
		s.Errorf("the gate reports: %s", message)
	}
}

// A cluster whose kubelets register nodes with the taint, which the operator removes, moves to a
// gate with the same taint, and back. On the way to the gate, no node opens before its agent is
// ready. On the way back, the deletion of the gate opens the nodes on which it is closed, until the
// operator has added the taint again.
func TestCiliumMigration(t *testing.T) {
	s := newCilium(t, "cilium-migration", "")
	old := s.startOperator()
	ready, waiting, joining, late := s.gate+"-ready", s.gate+"-waiting", s.gate+"-joining", s.gate+"-late"
	for _, node := range []string{ready, waiting} {
		s.createMember(node, registrationTaint)
	}
	s.report(ready, true)
	s.awaitUntainted(ready)

	// The page about Cilium: apply the gate, then disable the operator's taint handling.
	s.declareWith(s.gate, ciliumKey, agentSignal, "existingNodes: Adopt")
	s.createMember(joining)
	s.awaitGate(waiting, s.gate, ciliumKey, true)
	s.awaitGate(ready, s.gate, ciliumKey, false)
	s.opens(joining)
	s.install(ciliumDisabled(t))
	old.stop()
	alone := s.now()
	current := s.startOperator()
	s.opens(waiting)
	s.reboots(ready)
	s.createMember(late, registrationTaint)
	s.awaitGate(late, s.gate, ciliumKey, true)
	s.opens(late)
	s.verifyOnlyNodegate(alone)
	if h := s.history(s.since); len(h.early()) > 0 {
		t.Errorf("early removals: %v", h.early())
	} else {
		t.Logf("on the way to the gate, removals of the taint: %+v, additions: %v", h.removals, h.additions)
	}

	// Back: enable the operator's taint handling, then delete the gate.
	s.restarts(waiting)
	s.report(late, false)
	s.awaitGate(late, s.gate, ciliumKey, true)
	s.install("")
	current.stop()
	s.startOperator()
	s.awaitOperator()
	back := s.now()
	s.deleteGate()
	s.eventually("the operator to add the taint to the node whose agent is not ready", func(context.Context) error {
		if node := s.node(late); !hasTaint(node, ciliumKey) || s.patchesOf(back, ciliumUser, late) == 0 {
			return fmt.Errorf("taints: %v", node.Spec.Taints)
		}
		return nil
	})
	h := s.history(back)
	t.Logf("on the way back, removals of the taint: %+v, additions: %v", h.removals, h.additions)
	s.report(late, true)
	s.awaitUntainted(late)
}

// awaitUntainted waits until a node has no taint with Cilium's key.
func (s *ciliumSite) awaitUntainted(name string) {
	s.Helper()
	s.eventually("node "+name+" to lose the taint", func(ctx context.Context) error {
		var node corev1.Node
		if err := s.client.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			return err
		}
		if hasTaint(&node, ciliumKey) {
			return fmt.Errorf("taints: %v", node.Spec.Taints)
		}
		return nil
	})
}

// deleteGate deletes the gate, and waits until nodegate has removed it from all nodes.
func (s *ciliumSite) deleteGate() {
	s.Helper()
	gate := &v1alpha1.NodeGate{}
	gate.Name = s.gate
	s.must(s.client.Delete(s.Context(), gate))
	s.eventually("no node to have a record of the gate", func(ctx context.Context) error {
		var nodes corev1.NodeList
		if err := s.client.List(ctx, &nodes, client.MatchingLabels{siteLabel: s.gate}); err != nil {
			return err
		}
		for i := range nodes.Items {
			if record := nodes.Items[i].Annotations[v1alpha1.RecordAnnotationPrefix+s.gate]; record != "" {
				return fmt.Errorf("node %s has %s", nodes.Items[i].Name, record)
			}
		}
		return nil
	})
}
