// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/printer"
)

// grouped returns the gate's nodes by the name of their group. Nodes without a group are
// under the empty name. It is nil if the gate does not open together.
func (s *subject) grouped() map[string][]*gate.Node {
	if s.Together == nil {
		return nil
	}
	groups := make(map[string][]*gate.Node)
	for _, n := range s.nodes {
		name := s.Together.Name(n.Labels)
		groups[name] = append(groups[name], n)
	}
	return groups
}

// groupNames returns the names of the gate's groups, sorted.
func groupNames(groups map[string][]*gate.Node) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(groups)), func(name string) bool { return name == "" })
}

// declaredSizes returns the largest and the smallest size that nodes of a group declare, or
// zero if none does.
func (s *subject) declaredSizes(nodes []*gate.Node) (largest, smallest int) {
	for _, n := range nodes {
		size := s.Together.DeclaredSize(n.Labels)
		if largest = max(largest, size); size > 0 && (smallest == 0 || size < smallest) {
			smallest = size
		}
	}
	return largest, smallest
}

func groupLabelMissing(_ *checker, s *subject) []hit {
	var without []string
	for _, n := range s.grouped()[""] {
		without = append(without, n.Name)
	}
	if len(without) == 0 {
		return nil
	}
	return []hit{{"", fmt.Sprintf("%d of %d selected nodes do not have the label %s: %s", len(without), len(s.nodes), s.Together.LabelKey, printer.Some(without, namesMax))}}
}

func groupTooSmall(_ *checker, s *subject) []hit {
	var small []string
	groups := s.grouped()
	for _, name := range groupNames(groups) {
		size, _ := s.declaredSizes(groups[name])
		if needed := s.Together.Needed(size); len(groups[name]) < needed {
			small = append(small, fmt.Sprintf("%s (%d of %d)", name, len(groups[name]), needed))
		}
	}
	if len(small) == 0 {
		return nil
	}
	return []hit{{"", fmt.Sprintf("%d of %d groups have fewer nodes than openTogether.atLeast (%s) requires: %s",
		len(small), len(groupNames(groups)), s.Together.AtLeast.String(), printer.Some(small, namesMax))}}
}

func groupSizeUnclear(_ *checker, s *subject) (hits []hit) {
	groups := s.grouped()
	if groups == nil || s.Together.SizeLabelKey == "" {
		return nil
	}
	var unknown, differing []string
	for _, name := range groupNames(groups) {
		switch largest, smallest := s.declaredSizes(groups[name]); {
		case largest == 0:
			unknown = append(unknown, name)
		case largest != smallest:
			differing = append(differing, fmt.Sprintf("%s (%d to %d)", name, smallest, largest))
		}
	}
	if len(unknown) > 0 {
		hits = append(hits, hit{"", fmt.Sprintf("in %d groups, no node declares the size, a number from 1 to 5000, with the label %s: %s", len(unknown), s.Together.SizeLabelKey, printer.Some(unknown, namesMax))})
	}
	if len(differing) > 0 {
		hits = append(hits, hit{"", fmt.Sprintf("in %d groups, nodes declare different sizes with the label %s: %s", len(differing), s.Together.SizeLabelKey, printer.Some(differing, namesMax))})
	}
	return hits
}

// groupExceedsBudget finds groups with more nodes in a zone than the gate may close there.
func groupExceedsBudget(_ *checker, s *subject) []hit {
	groups := s.grouped()
	if groups == nil || !s.Together.Closes {
		return nil
	}
	zones := s.nodesByZone()
	var exceeding []string
	for _, name := range groupNames(groups) {
		inZone := make(map[string]int)
		for _, n := range groups[name] {
			inZone[n.Zone()]++
		}
		for _, zone := range slices.Sorted(maps.Keys(inZone)) {
			if allowed := gate.MaxReclosed(s.Spec.Budget.MaxReclosed, zones[zone]); inZone[zone] > allowed {
				exceeding = append(exceeding, fmt.Sprintf("%s (%d nodes, budget %d)", name, inZone[zone], allowed))
				break
			}
		}
	}
	if len(exceeding) == 0 {
		return nil
	}
	return []hit{{"", fmt.Sprintf("budget.maxReclosed is %s, and %d groups have more nodes in a zone than that: %s", s.budgetText(), len(exceeding), printer.Some(exceeding, namesMax))}}
}
