// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/printer"
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

// nodesByZone returns the numbers of the gate's nodes in zones.
func (s *subject) nodesByZone() map[string]int {
	nodes := make(map[string]int)
	for _, n := range s.nodes {
		nodes[n.Zone()]++
	}
	return nodes
}

// zones returns the sizes of zones with more than one of the gate's nodes of which so many may
// be closed at a time, by name. A zone with one node does not count, because any budget allows
// this node.
func (s *subject) zones(mayClose func(allowed, nodes int) bool) (sizes []string) {
	nodes := s.nodesByZone()
	for _, zone := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[zone]
		if n == 1 || !mayClose(gate.MaxReclosed(s.Spec.Budget.MaxReclosed, n), n) {
			continue
		}
		name := "zone " + zone
		if zone == "" {
			name = "nodes without a zone"
		}
		sizes = append(sizes, fmt.Sprintf("%s (%d of the gate's nodes)", name, n))
	}
	return sizes
}

// percentage returns the budget as a percentage, and whether it is one and not a number of nodes.
func (s *subject) percentage() (percent int, is bool) {
	budget := s.Spec.Budget.MaxReclosed
	return gate.MaxReclosed(budget, 100), budget == nil || budget.Type == intstr.String
}

// evictsWidely reports percentages whatever the nodes are; with few nodes, any budget is half of
// them. What a number means depends on the nodes.
func evictsWidely(_ *checker, s *subject) []hit {
	if s.TaintInUse().Effect != corev1.TaintEffectNoExecute || !s.closesInUse() {
		return nil
	}
	text := fmt.Sprintf("the taint is NoExecute, and budget.maxReclosed is %s", s.budgetText())
	if percent, is := s.percentage(); is {
		if percent < 50 {
			return nil
		}
		return []hit{{"", text}}
	}
	half := s.zones(func(allowed, nodes int) bool { return 2*allowed >= nodes })
	if len(half) == 0 {
		return nil
	}
	return []hit{{"", fmt.Sprintf("%s, half or more of %s", text, printer.Some(half, namesMax))}}
}

// budgetIsAll finds budgets that allow all nodes of a zone to be closed.
func budgetIsAll(_ *checker, s *subject) []hit {
	if !s.closesInUse() {
		return nil
	}
	if percent, is := s.percentage(); is && percent >= 100 {
		return []hit{{"", fmt.Sprintf("budget.maxReclosed is %s of the gate's nodes in a zone", s.budgetText())}}
	}
	all := s.zones(func(allowed, nodes int) bool { return allowed >= nodes })
	if len(all) == 0 {
		return nil
	}
	return []hit{{"", fmt.Sprintf("budget.maxReclosed is %s, which is all of %s", s.budgetText(), printer.Some(all, namesMax))}}
}

func budgetIsNone(_ *checker, s *subject) []hit {
	if !s.closesInUse() || gate.MaxReclosed(s.Spec.Budget.MaxReclosed, 1) > 0 {
		return nil
	}
	return []hit{{"", fmt.Sprintf("budget.maxReclosed is %s", s.budgetText())}}
}
