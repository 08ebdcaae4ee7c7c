// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodegate/nodegate/testcluster/components"
)

// claims is the number of nodes that the pods of a test need: one pod fits on a node.
const claims = 3

// A gate closes on the nodes that Karpenter creates. If Karpenter knows that the taint is
// temporary, it creates no second node for the same pods while the gate is closed, and nothing
// disrupts a node because of a gate.
func TestKarpenter(t *testing.T) {
	for name, test := range map[string]struct {
		key, startupTaints string
		reason             string // why a node is not initialized
	}{
		"startup-taints": {keyA, "[{key: " + keyA + ", effect: NoSchedule}]", "StartupTaintsExist"},
		"readiness":      {keyReadiness, "[]", "KnownEphemeralTaintsExist"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newKarpenter(t)
			gate := "karpenter-" + name
			s.declare(gate, test.key)
			s.pool(gate, test.startupTaints, claims)
			s.workload(gate, gate, claims, "[]")
			nodes := s.awaitRegistered(claims)
			s.bornClosed(nodes, test.key)

			// While the gate is closed, Karpenter waits.
			s.program.awaitLogged(provisioning, 5)
			s.claimed(claims)
			for _, c := range s.nodeClaims(t.Context()) {
				if got := c.condition("Initialized"); got.Status != "Unknown" || got.Reason != test.reason {
					t.Errorf("while the gate is closed, NodeClaim %s has the condition %+v, want reason %s", c.Metadata.Name, got, test.reason)
				}
			}
			if bound := s.boundPods(gate); len(bound) > 0 {
				t.Errorf("pods %v are bound to closed nodes", bound)
			}

			// When it opens, the nodes are initialized, and the pods that they were made for run there.
			for _, node := range nodes {
				s.setReady(node, true)
			}
			s.awaitCondition("Initialized", claims)
			running := s.awaitRunning(gate, claims)
			s.claimed(claims)

			// When it closes on a node in use, the node and its pods stay.
			s.setReady(nodes[0], false)
			s.awaitGate(nodes[0], gate, test.key, true)
			s.awaitDisruption(3)
			s.notDisrupted()
			if now := s.awaitRunning(gate, claims); !slices.Equal(now, running) {
				t.Errorf("pods were %v, and are %v", running, now)
			}
		})
	}
}

// If Karpenter does not know that the taint is temporary, it creates nodes for the same pods again
// and again.
func TestKarpenterDoesNotKnowTheTaint(t *testing.T) {
	s := newKarpenter(t)
	const gate, limit = "karpenter-unlisted", 4 * claims
	s.declare(gate, keyA)
	s.pool(gate, "[]", limit)
	s.workload(gate, gate, claims, "[]")
	s.eventually("Karpenter to create nodes for the same pods again", func(context.Context) error {
		if created := s.created(); created < 2*claims {
			return fmt.Errorf("%d NodeClaims were created", created)
		}
		return nil
	})
	s.program.awaitLogged(provisioning, 5)
	s.Logf("without startupTaints, Karpenter created %d NodeClaims for %d pods while the gate was closed, and deleted %d", s.created(), claims, s.deleted())
	if bound := s.boundPods(gate); len(bound) > 0 {
		t.Errorf("pods %v are bound to closed nodes", bound)
	}
	// When the gate opens, the pods run.
	s.eventually("the pods to run", func(ctx context.Context) error {
		for _, node := range s.poolNodes(ctx) {
			node.Labels[readyLabel] = "true"
			// Karpenter may change or delete the node at the same time.
			if err := s.client.Update(ctx, &node); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		if bound := s.boundPods(gate); len(bound) < claims {
			return fmt.Errorf("%d pods are bound", len(bound))
		}
		return nil
	})
	s.awaitRunning(gate, claims)
}

// bornClosed checks, in the audit log, that the nodes had a taint when they were created.
func (s *karpenter) bornClosed(nodes []string, key string) {
	s.Helper()
	missing := slices.Clone(nodes)
	for _, event := range s.requests(s.since, karpenterUser, "create", "nodes", "") {
		var node corev1.Node
		s.must(json.Unmarshal(event.ResponseObject.Raw, &node))
		if hasTaint(&node, key) {
			missing = slices.DeleteFunc(missing, func(name string) bool { return name == node.Name })
		}
	}
	if len(missing) > 0 {
		s.Errorf("nodes %v were created without the taint", missing)
	}
}

// claimed checks that Karpenter has created n NodeClaims and has deleted none.
func (s *karpenter) claimed(n int) {
	s.Helper()
	if created, deleted := s.created(), s.deleted(); created != n || deleted != 0 {
		s.Errorf("Karpenter has created %d NodeClaims and deleted %d, want %d and none", created, deleted, n)
	}
}

// notDisrupted checks that Karpenter disrupts no node, and does not intend to.
func (s *karpenter) notDisrupted() {
	s.Helper()
	s.claimed(claims)
	for _, c := range s.nodeClaims(s.Context()) {
		for _, kind := range []string{"Drifted", "DisruptionReason"} {
			if got := c.condition(kind); got.Status == "True" {
				s.Errorf("NodeClaim %s has the condition %s: %+v", c.Metadata.Name, kind, got)
			}
		}
	}
	if evicted := s.evicted(s.since, karpenterUser); len(evicted) > 0 {
		s.Errorf("Karpenter evicted %v", slices.Collect(maps.Keys(evicted)))
	}
}

// newKarpenter returns a site on which Karpenter runs.
func newKarpenter(t *testing.T) *karpenter {
	t.Helper()
	s := &karpenter{site: newSite(t, components.Karpenter)}
	s.install()
	return s
}
