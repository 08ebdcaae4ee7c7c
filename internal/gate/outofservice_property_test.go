// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// silenceWatch determines, in plain fields, when a node may be put out of service.
type silenceWatch struct {
	status string    // of Ready
	since  time.Time // of that status
	off    bool      // the cloud's shutdown taint is present
	// foreign is true while another writer's taint is on the node.
	foreign bool
}

func (w *silenceWatch) mayClose(s *sim) bool {
	partitioned := s.facts.Zone.Nodes >= 3 && s.facts.Zone.Silent*100 > s.facts.Zone.Nodes*55
	return w.status == "Unknown" && (w.off || !partitioned && !s.now.Before(w.since.Add(time.Minute)))
}

// For any events on a node and its gates, no decision adds the taint that detaches
// volumes to a node that has not been unreachable for long enough, or keeps the gate's
// taint on a reporting node.
func TestOutOfServiceNeverOnALivingNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gates := []Gate{spot(), follower("hand", tainting(gone), mayDetach, manual), follower("follow1", tainting("shared.example/x:NoExecute"))}
		gates[1].Accepted = rapid.Bool().Draw(t, "refused or not")
		h := newHistory(t, gates, time.Duration(rapid.SampledFrom([]int{0, 100000}).Draw(t, "age"))*time.Second)
		w := &silenceWatch{status: "True", since: h.now}
		actions := h.events()
		h.overriding(actions)
		actions["override spot"] = func(t *rapid.T) {
			h.override("spot", rapid.SampledFrom([]string{"Open", "Closed"}).Draw(t, "state"), time.Minute)
		}
		actions["taint is undone"] = func(*rapid.T) { h.untaint(gone) }
		actions["ready"] = func(t *rapid.T) {
			if is := rapid.SampledFrom([]string{"True", "False", "Unknown", ""}).Draw(t, "is"); is != w.status {
				h.ready(is)
				w.status, w.since = is, h.now
			}
		}
		actions["silence"] = func(t *rapid.T) {
			if w.status != "Unknown" {
				h.ready("Unknown")
				w.status, w.since = "Unknown", h.now
			}
			h.after(time.Duration(rapid.SampledFrom([]int{0, 59, 61}).Draw(t, "seconds")) * time.Second)
		}
		actions["zone"] = func(t *rapid.T) { h.zone(10, rapid.SampledFrom([]int{0, 5, 6}).Draw(t, "silent")) }
		actions["notice"] = func(t *rapid.T) { h.flag("spot", "holds").flag("hand", "holds") }
		actions["cloud"] = func(t *rapid.T) {
			if w.off = rapid.Bool().Draw(t, "off"); !w.off {
				h.untaint(cloudSaysOff)
			} else if h.facts.Node.taint(v1alpha1.TaintCloudShutdown, corev1.TaintEffectNoSchedule) < 0 {
				h.taint(cloudSaysOff)
			}
		}
		actions["grant"] = func(t *rapid.T) {
			h.granting(rapid.SliceOfDistinct(rapid.SampledFrom([]string{"spot", "hand", "follow1"}), rapid.ID).Draw(t, "to")...)
		}
		actions["edit"] = func(t *rapid.T) { h.edit(t) }
		actions["foreign"] = func(*rapid.T) {
			if h.facts.Node.taint(v1alpha1.TaintOutOfService, corev1.TaintEffectNoExecute) < 0 {
				h.taint(gone)
				w.foreign = true
			}
		}
		actions[""] = func(t *rapid.T) {
			h.checkOrder(t)
			d := h.decide()
			h.remember(d)
			h.checkRecheck(t, d)
			h.checkService(t, w, h.run(t))
		}
		t.Repeat(actions)
	})
}

// edit changes a gate in ways that the API rejects, or that an older version of the API
// does not reject.
func (h *history) edit(t *rapid.T) {
	if len(h.gates) == 0 {
		return
	}
	g := &h.gates[rapid.IntRange(0, len(h.gates)-1).Draw(t, "gate")]
	switch rapid.SampledFrom([]string{"accepted", "broken", "follows", "key", "selector"}).Draw(t, "what") {
	case "accepted":
		g.Accepted = !g.Accepted && g.CloseWhen
	case "broken":
		g.Broken = !g.Broken
	case "follows": // this gate is not accepted
		g.CloseWhen = !g.CloseWhen
		g.Accepted = g.Accepted && g.CloseWhen
	case "key":
		g.Taint, _ = parseTaint(rapid.SampledFrom([]string{gone, "shared.example/x:NoExecute"}).Draw(t, "taint"))
	case "selector":
		g.Selector = rapid.SampledFrom([]labels.Selector{labels.Everything(), labels.Nothing()}).Draw(t, "selector")
	}
}

// checkService compares the decision with what is allowed and with the previous state.
func (h *history) checkService(t *rapid.T, w *silenceWatch, d Decision) {
	is := h.facts.Node.taint(v1alpha1.TaintOutOfService, corev1.TaintEffectNoExecute) >= 0
	if !is {
		w.foreign = false
		h.inService = true
		return
	}
	ours := false // a record accounts for the taint
	for _, raw := range h.facts.Node.Records {
		if r, err := ParseRecord(raw); err == nil && r.tainted() && r.Taint == gone {
			ours = true
		}
	}
	switch {
	case w.status != "Unknown" && (ours || !w.foreign):
		t.Fatalf("a node with Ready=%q is out of service: %s", w.status, show(d))
	case ours && h.inService && !w.foreign && !w.mayClose(h.sim):
		t.Fatalf("put out of service after %s of Ready=%q: %s", h.now.Sub(w.since), w.status, show(d))
	}
	h.inService = !ours
}
