// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// closesInUse reports whether the gate can close on a node in use, apart from reboots. These
// are the reasons that require budget.
func (s *subject) closesInUse() bool {
	if s.Mode == v1alpha1.ModePaused {
		return false
	}
	return s.CloseWhen || s.Reclose == v1alpha1.RecloseOnRegression || closesExisting(s) || s.Together != nil && s.Together.Closes
}

// closesOnLostNodes reports whether the gate closes only on unreachable nodes. These already have
// a taint of Kubernetes, and other controllers treat them as failed.
func (s *subject) closesOnLostNodes() bool { return s.Taint.Key == v1alpha1.TaintOutOfService }

func (s *subject) budgetText() string {
	if s.Spec.Budget.MaxReclosed == nil {
		return "20%"
	}
	return s.Spec.Budget.MaxReclosed.String()
}

// share returns how many of 100 nodes in a zone may be closed at a time.
func (s *subject) share() int { return gate.MaxReclosed(s.Spec.Budget.MaxReclosed, 100) }

func evictsWidely(_ *checker, s *subject) []hit {
	if s.TaintInUse().Effect != corev1.TaintEffectNoExecute || !s.closesInUse() || s.share() < 50 {
		return nil
	}
	return []hit{{"", fmt.Sprintf("the taint is NoExecute, and budget.maxReclosed is %s", s.budgetText())}}
}

// budgetIsAll finds budgets that allow all nodes of a zone to be closed. Zones with one
// node do not count, because any budget allows this node.
func budgetIsAll(j *checker, s *subject) []hit {
	if !s.closesInUse() {
		return nil
	}
	zones := make(map[string]int)
	largest := ""
	for _, n := range s.nodes {
		if zones[n.Zone()]++; zones[n.Zone()] > zones[largest] {
			largest = n.Zone()
		}
	}
	switch n := zones[largest]; {
	case s.share() >= 100 && gate.MaxReclosed(s.Spec.Budget.MaxReclosed, 1000) >= 1000:
		return []hit{{"", fmt.Sprintf("budget.maxReclosed is %s of the gate's nodes in a zone", s.budgetText())}}
	case n > 1 && j.Unread[Nodes] == nil && gate.MaxReclosed(s.Spec.Budget.MaxReclosed, n) >= n:
		return []hit{{"", fmt.Sprintf("budget.maxReclosed is %s, and the largest zone has %d of the gate's nodes", s.budgetText(), n)}}
	}
	return nil
}

func budgetIsNone(_ *checker, s *subject) []hit {
	if !s.closesInUse() || s.share() > 0 {
		return nil
	}
	return []hit{{"", fmt.Sprintf("budget.maxReclosed is %s", s.budgetText())}}
}
