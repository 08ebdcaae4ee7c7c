// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// withFollowers adds closeWhen gates, which may share their taints with the other
// gates.
func withFollowers(t *rapid.T, gates []Gate) []Gate {
	for _, name := range followNames {
		if !rapid.Bool().Draw(t, "has "+name) {
			continue
		}
		key := rapid.SampledFrom([]string{name + ".example/x", "shared.example/x"}).Draw(t, "key")
		effect := rapid.SampledFrom([]string{"NoSchedule", "NoExecute"}).Draw(t, "effect")
		g := follower(name, tainting(key+":"+effect),
			selecting(rapid.SampledFrom([]string{"", "pool=gpu", "pool!=gpu"}).Draw(t, "selector")))
		if g.Manual = name == "hand"; !g.Manual {
			g.MinClosed, g.OpenAfter = randomHold(t), randomSoak(t)
		}
		gates = append(gates, g)
	}
	return gates
}

// The same for closeWhen gates whose taints another tool adds, as long as the gates
// exist to remove them.
func TestFollowingWithAnotherWriter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gates := withFollowers(t, nil)
		for i := range gates {
			gates[i].Selector = labels.Everything()
		}
		h := newHistory(t, gates, time.Hour)
		actions := h.events()
		h.overriding(actions)
		for _, gone := range []string{"invisible", "visible", "gate deleted", "opt out"} {
			delete(actions, gone)
		}
		actions["grant"] = func(t *rapid.T) {
			h.granting(rapid.SliceOfDistinct(rapid.SampledFrom(followNames), rapid.ID).Draw(t, "to")...)
		}
		actions["other writer"] = func(t *rapid.T) {
			if len(gates) == 0 {
				return
			}
			other := gates[rapid.IntRange(0, len(gates)-1).Draw(t, "gate")].Taint
			if h.facts.Node.taint(other.Key, other.Effect) < 0 {
				other.Value = rapid.SampledFrom([]string{"", "other"}).Draw(t, "value")
				h.taint(TaintText(other))
			}
		}
		actions[""] = func(t *rapid.T) {
			h.checkOrder(t)
			d := h.decide()
			for i := range d.Verdicts {
				h.checkFollowing(t, &d.Verdicts[i])
			}
			h.checkTaints(t, h.run(t))
			h.checkRecheck(t, h.decide())
		}
		t.Repeat(actions)
	})
}

// checkFollowing checks that a closeWhen gate closes only while all its signals hold
// and, unless the taint is already there, only with a grant, and that it opens only
// because a signal does not hold or a user opens it.
func (h *history) checkFollowing(t *rapid.T, v *Verdict) {
	g := find(h.gates, v.Gate)
	if g == nil || !g.CloseWhen || !v.Selected || v.Overridden != nil {
		return
	}
	flag := h.facts.Node.Labels["flag/"+v.Gate]
	tainted := h.facts.Node.taint(g.Taint.Key, g.Taint.Effect) >= 0
	switch {
	case v.Closed() && !tainted && (flag != "holds" || !h.facts.Granted[v.Gate]),
		v.Opened() && (flag == "holds" || flag == "unknown") && (!g.Manual || tainted),
		v.After == v1alpha1.StateOpen && flag == "holds" && h.facts.Granted[v.Gate] && !g.Manual,
		v.After == v1alpha1.StateClosed && flag != "holds" && flag != "unknown" && !g.Manual && v.Blocked != v1alpha1.ReadingMinClosed && v.Blocked != v1alpha1.ReadingOpenAfter,
		v.Blocked == v1alpha1.ReadingOpenAfter && g.OpenAfter == 0,
		v.Blocked == v1alpha1.ReadingMinClosed && g.MinClosed == 0:
		t.Fatalf("flag is %q: %s", flag, showVerdict(v))
	}
}
