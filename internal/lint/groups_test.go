// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/internal/gate"
)

const (
	ofFour = "  openTogether: {labelKey: rack, atLeast: 4}\n"
	ofAll  = "  openTogether: {labelKey: rack, sizeLabelKey: size, atLeast: 100%}\n"
)

// racked replaces the nodes by racks of four, of which change changes the labels.
func racked(racks int, change func(i int, l labels.Set)) func(*World) {
	return func(w *World) {
		w.Nodes = nil
		for i := range racks * 4 {
			l := labels.Set{"rack": fmt.Sprintf("r%d", i/4), "size": "4", corev1.LabelTopologyZone: "a"}
			change(i, l)
			w.Nodes = append(w.Nodes, &gate.Node{Name: fmt.Sprintf("n%d", i), Labels: l})
		}
	}
}

func unchanged(int, labels.Set) {}

// firstLacks removes a label from the first node.
func firstLacks(key string) func(int, labels.Set) {
	return func(i int, l labels.Set) {
		if i == 0 {
			delete(l, key)
		}
	}
}

// firstHas sets a label of the first node.
func firstHas(key, value string) func(int, labels.Set) {
	return func(i int, l labels.Set) {
		if i == 0 {
			l[key] = value
		}
	}
}

var groupCases = map[string]ruleCases{
	"group-label-missing": {
		bad:  map[string]*World{"one node": with([]string{agent(ofFour)}, racked(2, firstLacks("rack")))},
		good: map[string]*World{"none": with([]string{agent(ofFour)}, racked(2, unchanged)), "no groups": with([]string{agent("")})},
	},
	"group-too-small": {
		bad: map[string]*World{
			"by number":     with([]string{agent(ofFour)}, racked(2, firstLacks("rack"))),
			"by percentage": with([]string{agent(ofAll)}, racked(2, firstHas("size", "5"))),
		},
		good: map[string]*World{
			"by number":       with([]string{agent(ofFour)}, racked(2, unchanged)),
			"by percentage":   with([]string{agent(ofAll)}, racked(2, unchanged)),
			"size is unknown": with([]string{agent(ofAll)}, racked(2, func(_ int, l labels.Set) { delete(l, "size") })),
		},
	},
	"group-size-unclear": {
		bad: map[string]*World{
			"unknown":   with([]string{agent(ofAll)}, racked(2, func(_ int, l labels.Set) { l["size"] = "four" })),
			"different": with([]string{agent(ofAll)}, racked(2, firstHas("size", "3"))),
		},
		good: map[string]*World{
			"known":           with([]string{agent(ofAll)}, racked(2, unchanged)),
			"one declares it": with([]string{agent(ofAll)}, racked(1, firstLacks("size"))),
			"not needed":      with([]string{agent(ofFour)}, racked(2, firstHas("size", "3"))),
		},
	},
	"group-exceeds-budget": {
		bad: map[string]*World{
			"by percentage": with([]string{agent(ofFour + "  closeTogether: WhenIncomplete\n")}, racked(3, unchanged)),
			"by number":     with([]string{agent(ofFour + "  closeTogether: WhenIncomplete\n  budget: {maxReclosed: 3}\n")}, racked(4, unchanged)),
		},
		good: map[string]*World{
			"sufficient":          with([]string{agent(ofFour + "  closeTogether: WhenIncomplete\n")}, racked(5, unchanged)),
			"it closes no others": with([]string{agent(ofFour)}, racked(4, unchanged)),
			"spread over zones": with([]string{agent(ofFour + "  closeTogether: WhenIncomplete\n  budget: {maxReclosed: 1}\n")}, racked(1, func(i int, l labels.Set) {
				l[corev1.LabelTopologyZone] = fmt.Sprint(i)
			})),
		},
	},
}

// Findings about groups name the first of them.
func TestGroupFindings(t *testing.T) {
	for id, want := range map[string]string{
		"group-label-missing":  "1 of 8 selected nodes do not have the label rack: n0",
		"group-too-small":      "1 of 2 groups have fewer nodes than openTogether.atLeast (4) requires: r0 (3 of 4)",
		"group-exceeds-budget": "budget.maxReclosed is 20%, and 2 groups have more nodes in a zone than that: r0 (3 nodes, budget 2), r1 (4 nodes, budget 2)",
	} {
		w := with([]string{agent(ofFour + "  closeTogether: WhenIncomplete\n")}, racked(2, firstLacks("rack")))
		if got := strings.Join(found(w, id), "\n"); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
}
