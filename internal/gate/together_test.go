// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// inGroups makes a gate open on the nodes of a rack together.
func inGroups(atLeast intstr.IntOrString, change ...func(*Together)) func(*Gate) {
	return func(g *Gate) {
		g.Together = &Together{LabelKey: "rack", AtLeast: atLeast}
		if atLeast.Type == intstr.String {
			g.Together.SizeLabelKey = "size"
		}
		for _, c := range change {
			c(g.Together)
		}
	}
}

func closesTogether(t *Together) { t.Closes = true }

// others sets what is known about the other nodes of the group of gate g.
func (s *sim) others(fit int, unfit ...string) *sim {
	s.facts.Groups = map[string]Group{"g": {Fit: fit, Unfit: unfit, UnfitCount: len(unfit), Known: true}}
	return s
}

// verdict runs a decision, and returns the verdict about gate g.
func (s *sim) verdict(t failer) *Verdict {
	t.Helper()
	d := s.run(t)
	return d.Verdict("g")
}

// rack returns a node of rack r1 on which gate g is closed, and whose signals hold.
func rack(g Gate) *sim { return aNode(g).closed("g").label("rack", "r1").flag("g", "holds") }

// A gate opens on a fit node when its group is complete.
func TestOpenTogether(t *testing.T) {
	four := inGroups(intstr.FromInt32(4))
	g := aGate("g", four)
	silent := func(r *Record) { r.Reason = v1alpha1.ReasonNodeSilent }
	for name, c := range map[string]struct {
		node *sim
		want string
		fit  bool
	}{
		"the last node of its group":         {rack(g).others(3), "write [] g:Closed>Open(SignalsHold)", true},
		"more than enough":                   {rack(g).others(7), "write [] g:Closed>Open(SignalsHold)", true},
		"one of the others is not fit":       {rack(g).others(2, "n4"), "[g.example/not-ready:NoSchedule] g:Closed>Closed(Birth) blocked=GroupIncomplete", true},
		"nothing is known of the others":     {rack(g), "[g.example/not-ready:NoSchedule] g:Closed>Closed(Birth) blocked=GroupIncomplete", true},
		"the node itself is not fit":         {rack(g).others(9).flag("g", ""), "[g.example/not-ready:NoSchedule] g:Closed>Closed(Birth) reads=NotYet", false},
		"its signals are unknown":            {rack(g).others(9).flag("g", "unknown"), "[g.example/not-ready:NoSchedule] g:Closed>Closed(Birth) reads=Unknown", false},
		"it is unreachable":                  {rack(g).others(9).ready("Unknown"), "[g.example/not-ready:NoSchedule] g:Closed>Closed(Birth) blocked=NodeSilent", false},
		"it has not soaked":                  {rack(aGate("g", four, soaking(time.Hour))).others(9), "[g.example/not-ready:NoSchedule] g:Closed>Closed(Birth) blocked=OpenAfter", false},
		"it has not been closed long enough": {rack(aGate("g", four, closedForAtLeast(48*time.Hour))).others(9), "[g.example/not-ready:NoSchedule] g:Closed>Closed(Birth) blocked=MinClosed", false},
		"it has no group":                    {rack(g).others(9).label("rack", ""), "[g.example/not-ready:NoSchedule] g:Closed>Closed(Birth) blocked=GroupUnknown", true},
		"it has another gate without group":  {aNode(aGate("g", four), aGate("h")).closed("g", "h").label("rack", "r1").flag("g", "holds").flag("h", "holds").others(0), "write [g.example/not-ready:NoSchedule] g:Closed>Closed(Birth) blocked=GroupIncomplete h:Closed>Open(SignalsHold)", true},
		"a new node joins a complete group":  {aNode(g).age(time.Minute).label("rack", "r1").flag("g", "holds").others(3), "write [] g:->Open(SignalsHold)", true},
		"a new node joins an incomplete one": {aNode(g).age(time.Minute).label("rack", "r1").flag("g", "holds").others(2), "write [g.example/not-ready:NoSchedule] g:->Closed(Birth) blocked=GroupIncomplete", true},
		"not a member":                       {aNode(aGate("g", four, createdAgo(time.Hour))).label("rack", "r1").others(0), "[] g:->-", true},
		"adopted as open":                    {aNode(aGate("g", four, existing(v1alpha1.ExistingAdopt), createdAgo(time.Hour))).label("rack", "r1").flag("g", "holds").others(0).granting("g"), "write [] g:->Open(Adopted)", true},
		"the group is lost while it is open": {aNode(g).open("g").label("rack", "r1").others(0, "n2", "n3", "n4"), "[] g:Open>Open(Birth)", true},
		"it returns unchanged":               {rack(g).record("g", v1alpha1.StateClosed, silent).others(0), "write [] g:Closed>Open(SignalsHold)", true},
		"it returns unchanged, closing too":  {rack(aGate("g", inGroups(intstr.FromInt32(4), closesTogether))).record("g", v1alpha1.StateClosed, silent).others(0), "[g.example/not-ready:NoSchedule] g:Closed>Closed(NodeSilent) blocked=GroupIncomplete", true},
		"it returns in another boot":         {rack(g).record("g", v1alpha1.StateClosed, silent).boot("b").others(0), "write [g.example/not-ready:NoSchedule] g:Closed>Closed(Rebooted) blocked=GroupIncomplete", true},
		"it reboots while the group is open": {aNode(g).open("g").label("rack", "r1").flag("g", "holds").boot("b").others(3), "write [] g:Open>Open(SignalsHold)", true},
		"paused":                             {rack(aGate("g", four, inPause)).others(9), "[g.example/not-ready:NoSchedule] g:Closed>Closed(Birth) blocked=Paused", false},
		"paused and open":                    {aNode(aGate("g", four, inPause)).open("g").label("rack", "r1").others(0), "[] g:Open>Open(Birth)", true},
		"not selected":                       {rack(aGate("g", four, selecting("pool=gpu"))).others(9), "[g.example/not-ready:NoSchedule] g:Closed>Closed(Birth)", false},
	} {
		t.Run(name, func(t *testing.T) {
			d := c.node.decide()
			v := d.Verdict("g")
			got := showTogether(d)
			if got != c.want || v.Fit != c.fit {
				t.Errorf("%s, fit %v; want %s, fit %v", got, v.Fit, c.want, c.fit)
			}
			if v.Selected && v.Group == nil {
				t.Error("the verdict does not describe the group")
			}
		})
	}
}

// showTogether is show, with the state of the first signal that does not hold.
func showTogether(d Decision) string {
	text := show(d)
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if at := v.Waiting(false); at >= 0 && v.Blocked == "" && v.After == v1alpha1.StateClosed && !strings.Contains(text, "reads=") {
			text += " reads=" + v.Readings[at].State.String()
		}
	}
	return text
}

// A percentage refers to the largest size that a node of the group declares.
func TestGroupSize(t *testing.T) {
	for name, c := range map[string]struct {
		atLeast  string
		own      string
		others   Group
		needed   int
		obstacle v1alpha1.ReadingReason
	}{
		"all":                          {"100%", "4", Group{Fit: 3, Size: 4}, 4, ""},
		"one is not fit":               {"100%", "4", Group{Fit: 2, Size: 4}, 4, v1alpha1.ReadingGroupIncomplete},
		"three quarters":               {"75%", "4", Group{Fit: 2, Size: 4}, 3, ""},
		"rounded up":                   {"90%", "18", Group{Fit: 15}, 17, v1alpha1.ReadingGroupIncomplete},
		"at least one":                 {"1%", "2", Group{}, 1, ""},
		"another node declares more":   {"100%", "2", Group{Fit: 2, Size: 4}, 4, v1alpha1.ReadingGroupIncomplete},
		"only other nodes declare it":  {"100%", "", Group{Fit: 3, Size: 4}, 4, ""},
		"no node declares it":          {"100%", "", Group{Fit: 3}, 0, v1alpha1.ReadingGroupSizeUnknown},
		"it is not a number":           {"100%", "four", Group{Fit: 3}, 0, v1alpha1.ReadingGroupSizeUnknown},
		"it is zero":                   {"100%", "0", Group{Fit: 3}, 0, v1alpha1.ReadingGroupSizeUnknown},
		"it is negative":               {"100%", "-4", Group{Fit: 3}, 0, v1alpha1.ReadingGroupSizeUnknown},
		"it is larger than any group":  {"100%", "5001", Group{Fit: 3}, 0, v1alpha1.ReadingGroupSizeUnknown},
		"it is the largest of a group": {"100%", "5000", Group{Fit: 4999}, 5000, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := rack(aGate("g", inGroups(intstr.FromString(c.atLeast)))).label("size", c.own)
			c.others.Known = true
			s.facts.Groups = map[string]Group{"g": c.others}
			d := s.decide()
			v := d.Verdict("g")
			if v.Blocked != c.obstacle || v.Group.Needed != c.needed || (v.After == v1alpha1.StateOpen) != (c.obstacle == "") || !v.Fit {
				t.Errorf("%s, group %+v", show(d), v.Group)
			}
		})
	}
}

// The obstacle of a waiting node names the nodes that it waits for.
func TestGroupMessage(t *testing.T) {
	for want, group := range map[string]Group{
		"the node's group is incomplete: group r1 has 1 fit node and needs 4; nodes that have not joined the group: 3 (openTogether.atLeast)":                  {Known: true},
		"the node's group is incomplete: group r1 has 3 fit nodes and needs 4; not fit: n4 (openTogether.atLeast)":                                             {Fit: 2, Unfit: []string{"n4"}, UnfitCount: 1, Known: true},
		"the node's group is incomplete: group r1 has 1 fit node and needs 4; not fit: n2, n3; nodes that have not joined the group: 1 (openTogether.atLeast)": {Unfit: []string{"n2", "n3"}, UnfitCount: 2, Known: true},
		"the node's group is incomplete: group r1 has 2 fit nodes and needs 4; not fit: n2, n3, n4 and 9 more (openTogether.atLeast)":                          {Fit: 1, Unfit: []string{"n2", "n3", "n4"}, UnfitCount: 12, Known: true},
		"the node's group is incomplete: group r1 has 2 fit nodes and needs 4; not fit: n4; not all of its nodes are known (openTogether.atLeast)":             {Fit: 1, Unfit: []string{"n4"}, UnfitCount: 1},
	} {
		s := rack(aGate("g", inGroups(intstr.FromInt32(4))))
		s.facts.Groups = map[string]Group{"g": group}
		d := s.decide()
		o := d.Verdict("g").Obstacle()
		if got := o.Message(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// A node that is not fit itself has joined its group.
func TestGroupOfUnfitNode(t *testing.T) {
	s := rack(aGate("g", inGroups(intstr.FromInt32(4)))).flag("g", "").others(2, "n4")
	d := s.decide()
	if got := d.Verdict("g").Group.String(); got != "group r1 has 2 fit nodes and needs 4; not fit: n4" {
		t.Error(got)
	}
}

// An incomplete group closes an open gate only if closeTogether requires it, after
// closeAfter, and under the budget.
func TestCloseTogether(t *testing.T) {
	closes := inGroups(intstr.FromInt32(4), closesTogether)
	g := aGate("g", closes)
	open := func(g Gate) *sim { return aNode(g).open("g").ready("True").label("rack", "r1").flag("g", "holds") }
	lapsed := func(r *Record) { r.Reason = v1alpha1.ReasonDeadlinePassed }
	lost := func(s *sim) *sim { return s.others(2, "n4") }
	for name, c := range map[string]struct {
		node *sim
		// waits reports whether the gate closes after two minutes, if it is granted budget.
		waits bool
	}{
		"a node is lost":                      {lost(open(g)), true},
		"its own signal does not hold either": {lost(open(g)).flag("g", ""), true},
		"the group is complete":               {open(g).others(3), false},
		"closeTogether is Never":              {lost(open(aGate("g", inGroups(intstr.FromInt32(4))))), false},
		"a gate that never closes again":      {lost(open(aGate("g", closes, reclosing(v1alpha1.RecloseNever)))), false},
		"the others are not known":            {open(g), false},
		"the node has no group":               {lost(open(g)).label("rack", ""), false},
		"the size is not known":               {lost(open(aGate("g", inGroups(intstr.FromString("100%"), closesTogether)))), false},
		"its deadline opened it":              {lost(open(aGate("g", closes, dueBy(0, time.Hour, true))).record("g", v1alpha1.StateOpen, lapsed)), false},
		"it is not accepted":                  {lost(open(aGate("g", closes, refused))), false},
		"paused":                              {lost(open(aGate("g", closes, inPause))), false},
		"an override keeps it open":           {lost(open(g)).override("g", v1alpha1.StateOpen, time.Hour), true},
		"an override closes this node":        {open(g).others(3).override("g", v1alpha1.StateClosed, time.Hour), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.node
			s.run(t)
			d := s.after(2*time.Minute - 1).run(t)
			if v := d.Verdict("g"); v.Wants != "" || v.GroupWait.Since.IsZero() == c.waits || c.waits && !d.Recheck.Equal(s.now.Add(1)) && v.Overridden == nil {
				t.Fatalf("too early: %s, since %s, recheck %s", show(d), v.GroupWait.Since, d.Recheck)
			}
			d = s.after(1).run(t)
			v := d.Verdict("g")
			if own := v.After; c.waits != (v.Wants == WantBudget) || v.Overridden == nil && own != v1alpha1.StateOpen {
				t.Fatalf("without budget: %s", show(d))
			}
			if v := s.granting("g").verdict(t); c.waits {
				r := mustParse(t, s, "g")
				if r.State != v1alpha1.StateClosed || r.Reason != v1alpha1.ReasonGroupIncomplete || !IsBudgeted(r.Reason) || !r.Reclosed {
					t.Fatalf("with budget: %s, record %+v", showVerdict(v), r)
				}
			} else if v.Closed() {
				t.Fatalf("with budget, it closes: %s", showVerdict(v))
			}
		})
	}
}

// The wait before an incomplete group closes the gate ends when the group is complete
// again, and is neither started nor stopped while the others are not known.
func TestGroupSince(t *testing.T) {
	s := aNode(aGate("g", inGroups(intstr.FromInt32(4), closesTogether))).open("g").ready("True").label("rack", "r1").flag("g", "holds")
	since := func() time.Time { return s.verdict(t).GroupWait.Since }
	s.facts.Groups = map[string]Group{"g": {Fit: 2}}
	if d := s.run(t); !d.Verdict("g").GroupWait.Since.IsZero() || !d.Recheck.Equal(s.now.Add(groupRecheck)) {
		t.Fatalf("while others are not known: %s, recheck %s", show(d), d.Recheck)
	}
	s.others(2, "n4")
	began := s.now
	if at := since(); !at.Equal(began) {
		t.Errorf("since %s, want %s", at, began)
	}
	s.after(time.Minute).facts.Groups = map[string]Group{"g": {Fit: 1}}
	if at := since(); !at.Equal(began) {
		t.Errorf("while others are not known, since %s, want %s", at, began)
	}
	s.label("rack", "")
	if at := since(); !at.Equal(began) {
		t.Errorf("without a label, since %s, want %s", at, began)
	}
	s.after(time.Minute).label("rack", "r2").others(2, "x")
	if at := since(); !at.Equal(s.now) {
		t.Errorf("in another group, since %s, want %s", at, s.now)
	}
	s.label("rack", "r1").others(3)
	if at := since(); !at.IsZero() {
		t.Errorf("with a complete group, since %s", at)
	}
}

// A group whose size is a percentage of what its nodes declare does not open before all nodes
// have been decided: one of the others may declare a larger size.
func TestGroupSizeIsNotKnownYet(t *testing.T) {
	s := rack(aGate("g", inGroups(intstr.FromString("100%")))).label("size", "3")
	s.facts.Groups = map[string]Group{"g": {Fit: 2, Size: 3}}
	d := s.decide()
	v := d.Verdict("g")
	if o := v.Obstacle(); v.After != v1alpha1.StateClosed || !d.Recheck.Equal(s.now.Add(groupRecheck)) || o.Message() != "the size of group r1 is not observed yet" {
		t.Errorf("%s: %s", show(d), o.Message())
	}
	s.facts.Groups = map[string]Group{"g": {Fit: 2, Size: 3, Known: true}}
	if v := s.verdict(t); !v.Opened() {
		t.Error(showVerdict(v))
	}
}

// A node that is fit, and that a user has closed, is not reported to remediation controllers.
func TestConditionOfOverriddenGroup(t *testing.T) {
	g := aGate("g", inGroups(intstr.FromInt32(4)), dueBy(0, time.Minute, false), func(g *Gate) { g.Deadline.Publish = true })
	for _, flag := range []string{"holds", ""} {
		s := rack(g).ready("True").flag("g", flag).others(3).override("g", v1alpha1.StateClosed, time.Hour)
		s.run(t)
		d := s.granting("g").run(t)
		if v := d.Verdict("g"); v.Published != (flag == "") {
			t.Errorf("flag %q: %s, published %v", flag, showVerdict(v), v.Published)
		}
	}
}

// A gate that closed for its group opens with it, and its node stays fit meanwhile.
func TestOpensAfterGroupIncomplete(t *testing.T) {
	s := aNode(aGate("g", inGroups(intstr.FromInt32(4), closesTogether))).open("g").ready("True").label("rack", "r1").flag("g", "holds")
	s.others(2, "n4").run(t)
	if v := s.after(time.Hour).granting("g").verdict(t); !v.Closed() || !v.Fit || v.Blocked != v1alpha1.ReadingGroupIncomplete {
		t.Fatalf("%s, fit %v", showVerdict(v), v.Fit)
	}
	if v := s.others(3).verdict(t); !v.Opened() || !v.Fit {
		t.Fatalf("%s, fit %v", showVerdict(v), v.Fit)
	}
}

// The deadline applies to a node that waits for its group. If it opens the gate, the
// exception ends when the group is complete.
func TestDeadlineOfGroup(t *testing.T) {
	four := inGroups(intstr.FromInt32(4), closesTogether)
	keeps := rack(aGate("g", four, dueBy(0, time.Minute, false))).ready("True").others(2, "n4")
	if v := keeps.verdict(t); !v.Overdue || v.After != v1alpha1.StateClosed || v.Blocked != v1alpha1.ReadingGroupIncomplete || !v.Fit {
		t.Errorf("KeepClosed: %s, fit %v", showVerdict(v), v.Fit)
	}
	s := rack(aGate("g", four, dueBy(0, time.Minute, true))).ready("True").others(2, "n4")
	if v := s.verdict(t); !v.Opened() || v.Reason != v1alpha1.ReasonDeadlinePassed || !v.PassedDeadline {
		t.Fatalf("Open: %s", showVerdict(v))
	}
	if v := s.after(time.Hour).granting("g").verdict(t); v.Closed() || v.Reason != v1alpha1.ReasonDeadlinePassed || !v.Fit {
		t.Errorf("before the group is complete: %s, fit %v", showVerdict(v), v.Fit)
	}
	if v := s.flag("g", "").verdict(t); v.Fit {
		t.Errorf("without its signals, the node that the deadline opened is fit: %s", showVerdict(v))
	}
	if v := s.flag("g", "holds").others(3).verdict(t); v.Reason != v1alpha1.ReasonSignalsHold || !v.Fit {
		t.Errorf("with a complete group: %s, fit %v", showVerdict(v), v.Fit)
	}
	soaks := rack(aGate("g", four, soaking(24*time.Hour), dueBy(0, time.Minute, true))).ready("True").others(0)
	if v := soaks.verdict(t); v.Reason != v1alpha1.ReasonDeadlinePassed {
		t.Errorf("the signals hold, but not for long enough: %s", showVerdict(v))
	}
}

// A node that is overdue only because of its group is not published, so that a remediation
// controller does not replace it. The node that is not fit is published.
func TestConditionOfGroup(t *testing.T) {
	g := aGate("g", inGroups(intstr.FromInt32(4)), dueBy(0, time.Minute, false), func(g *Gate) { g.Deadline.Publish = true })
	for _, fit := range []string{"holds", ""} {
		s := rack(g).ready("True").flag("g", fit).others(2, "n4")
		s.run(t)
		d := s.granting("g").run(t)
		if v := d.Verdict("g"); !v.Overdue || v.Published == (fit == "holds") {
			t.Errorf("flag %q: %s, overdue %v, published %v", fit, showVerdict(v), v.Overdue, v.Published)
		}
	}
}

// An override determines whether a node is fit, because it determines whether pods can run
// there.
func TestOverridesInGroups(t *testing.T) {
	g := aGate("g", inGroups(intstr.FromInt32(4)))
	for name, c := range map[string]struct {
		node *sim
		fit  bool
		own  string
	}{
		"closed and not fit, overridden open":     {rack(g).flag("g", "").others(3).override("g", v1alpha1.StateOpen, time.Hour), true, v1alpha1.StateClosed},
		"open, overridden closed":                 {aNode(g).open("g").label("rack", "r1").others(3).override("g", v1alpha1.StateClosed, time.Hour), false, v1alpha1.StateOpen},
		"closed and fit, overridden closed":       {rack(g).others(3).override("g", v1alpha1.StateClosed, time.Hour), false, v1alpha1.StateClosed},
		"the same, and the others are sufficient": {rack(g).others(4).override("g", v1alpha1.StateClosed, time.Hour), false, v1alpha1.StateOpen},
		"closed and fit, overridden open":         {rack(g).others(2).override("g", v1alpha1.StateOpen, time.Hour), true, v1alpha1.StateClosed},
	} {
		if v := c.node.verdict(t); v.Fit != c.fit || v.Overridden == nil || v.Overridden.Own != c.own {
			t.Errorf("%s: %s, fit %v, override %+v", name, showVerdict(v), v.Fit, v.Overridden)
		}
	}
}

// A node on which the gate was closed before it entered dry run is not fit until the dry run
// has started there.
func TestDryRunOfGroupsBegins(t *testing.T) {
	s := rack(aGate("g", inGroups(intstr.FromInt32(4)), inDryRun)).flag("g", "").others(3)
	for range 2 {
		d := s.decide()
		if v := d.Verdict("g"); v.Fit {
			t.Errorf("%s, fit", show(d))
		}
		s.apply(d)
	}
}

// A dry run predicts what happens to groups.
func TestDryRunOfGroups(t *testing.T) {
	s := aNode(aGate("g", inGroups(intstr.FromInt32(4)), inDryRun)).age(time.Minute).label("rack", "r1").flag("g", "holds").others(2, "n4")
	for range 2 { // the second decision starts from the shadow of the first
		d := s.decide()
		if v := d.Verdict("g"); !v.DryRun || v.After != v1alpha1.StateClosed || v.Blocked != v1alpha1.ReadingGroupIncomplete || !v.Fit || d.Changes {
			t.Errorf("%s, fit %v", show(d), v.Fit)
		}
		s.remember(d)
	}
	if v := s.others(3).decide().Verdicts[0]; v.After != v1alpha1.StateOpen || !v.Fit {
		t.Errorf("%s, fit %v", showVerdict(&v), v.Fit)
	}
}

// A partial decision covers the gate whose group has changed.
func TestGroupAspect(t *testing.T) {
	p := Divide([]Gate{aGate("g", inGroups(intstr.FromInt32(4))), aGate("h")}, nil)
	part, some := p.Touched(ChangeOf(Aspect{Kind: AspectGroup, Name: "g"}))
	if !some || len(part.Gates) != 1 || part.Gates[0].Name != "g" {
		t.Errorf("%v, %+v", some, part)
	}
	if _, some := p.Touched(ChangeOf(Aspect{Kind: AspectGroup, Name: "unlisted"})); some {
		t.Error("the group of an unlisted gate touches only some gates")
	}
}

// Birth does not depend on groups.
func TestBirthOfGroups(t *testing.T) {
	n := Node{Name: "n1", Labels: labels.Set{"rack": "r1"}}
	got, want := Birth([]Gate{aGate("g", inGroups(intstr.FromInt32(4)))}, n), Birth([]Gate{aGate("g")}, n)
	if got.Records["g"] != want.Records["g"] || taintTexts(got.Taints) != taintTexts(want.Taints) {
		t.Errorf("%v %s, want %v %s", got.Records, taintTexts(got.Taints), want.Records, taintTexts(want.Taints))
	}
}
