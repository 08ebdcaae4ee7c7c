// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func TestEditedTaint(t *testing.T) {
	edited := func(options ...func(*Gate)) Gate {
		return aGate("cni", append(options, tainting("new.example/key=v:NoSchedule"))...)
	}
	check(t, map[string]spec{
		"closed: the old taint is replaced in one write": {
			aNode(edited()).taint("a.b/c:NoSchedule").closed("cni").taint("d.e/f:NoSchedule"),
			"write [a.b/c:NoSchedule d.e/f:NoSchedule new.example/key=v:NoSchedule] cni:Closed>Closed(Birth)"},
		"closed, and opening at the same moment": {
			aNode(edited()).closed("cni").flag("cni", "holds"), "write [] cni:Closed>Open(SignalsHold)"},
		"open: nothing to write": {
			aNode(edited()).open("cni"), "[] cni:Open>Open(Birth)"},
		"unknown whether it exists: the old taint stays": {
			aNode().closed("cni").invisible(), "[" + cniTaint + "] cni:Closed>Closed(Birth) held"},
		"deleted: the old taint is removed": {
			aNode().closed("cni"), "write [] cni:Closed>-(GateDeleted)"},
		"not accepted: the old taint stays": {
			aNode(edited(refused)).closed("cni"), "[" + cniTaint + "] cni:Closed>Closed(Birth)"},
		"only the value: corrected at the same index": {
			aNode(aGate("cni", tainting("cni.example/not-ready=v:NoSchedule"))).closed("cni").taint("d.e/f:NoSchedule"),
			"write [cni.example/not-ready=v:NoSchedule d.e/f:NoSchedule] cni:Closed>Closed(Birth)"},
		"the old taint also belongs to another gate": {
			aNode(edited(), aGate("other", tainting(cniTaint))).closed("cni").record("other", "Closed", func(r *Record) { r.Taint = cniTaint }),
			"write [" + cniTaint + " new.example/key=v:NoSchedule] cni:Closed>Closed(Birth) other:Closed>Closed(Birth)"},
	})
}

// A taint that two gates share is on the node while either of them is closed.
func TestSharedTaint(t *testing.T) {
	a, b := aGate("a", tainting(cniTaint)), aGate("b", tainting(cniTaint))
	s := aNode(a, b).age(time.Second)
	for _, step := range []struct{ a, b, want string }{
		{"no", "no", "write [" + cniTaint + "] a:->Closed(Birth) b:->Closed(Birth)"},
		{"holds", "no", "write [" + cniTaint + "] a:Closed>Open(SignalsHold) b:Closed>Closed(Birth)"},
		{"holds", "no", "[" + cniTaint + "] a:Open>Open(SignalsHold) b:Closed>Closed(Birth)"},
		{"holds", "holds", "write [] a:Open>Open(SignalsHold) b:Closed>Open(SignalsHold)"},
	} {
		s.flag("a", step.a).flag("b", step.b).after(time.Second)
		if got := show(s.run(t)); got != step.want {
			t.Errorf("a %s, b %s\n got %s\nwant %s", step.a, step.b, got, step.want)
		}
	}
}

// Besides the records that it writes, a decision about a shared taint depends on the
// unchanged records of other gates with the taint, and, if a gate closes with a taint
// that is already there, on that taint.
func TestSharedTaintDependsOnOthers(t *testing.T) {
	a, b := aGate("a", tainting(cniTaint)), aGate("b", tainting(cniTaint))
	c := aGate("c")
	s := aNode(a, b, c).age(time.Second).flag("c", "no")
	both := s.flag("a", "no").flag("b", "no").run(t)
	if len(both.DependsOn) > 0 || len(both.Carried) > 0 {
		t.Errorf("two gates that close depend on %v and %v", both.DependsOn, both.Carried)
	}
	if one := s.flag("a", "holds").after(time.Second).run(t); len(one.DependsOn) > 0 {
		t.Errorf("a gate whose taint stays depends on %v", one.DependsOn)
	}
	last := s.flag("b", "holds").after(time.Second).run(t)
	if !slices.Equal(last.DependsOn, []string{"a"}) {
		t.Errorf("the last gate to open depends on the records of %v, want that of a", last.DependsOn)
	}
	late := aNode(a).age(time.Second).flag("a", "no")
	late.run(t)
	late.gates = append(late.gates, b)
	if d := late.flag("b", "no").after(time.Second).run(t); len(d.Carried) != 1 || d.Carried[0].Key != string(cniTaint)[:len(d.Carried[0].Key)] {
		t.Errorf("a gate that closes with the taint of another depends on %v", d.Carried)
	}
}

// A gate that yields to an older one with another value does not contend for the taint.
func TestConflictingValues(t *testing.T) {
	older, younger := aGate("z", tainting("k=1:NoSchedule")), aGate("a", tainting("k=2:NoSchedule"), refused)
	taint := func(text string) func(*Record) { return func(r *Record) { r.Taint = text } }
	s := aNode(older, younger).taint("k=2:NoSchedule").
		record("a", "Closed", taint("k=2:NoSchedule")).record("z", "Closed", taint("k=1:NoSchedule"))
	s.run(t)
	for range 5 {
		if got, want := show(s.after(time.Minute).run(t)), "[k=1:NoSchedule] a:Closed>Closed(Birth) z:Closed>Closed(Birth)"; got != want {
			t.Fatalf("\n got %s\nwant %s", got, want)
		}
	}
	s.gates = []Gate{aGate("a", tainting("k=2:NoSchedule"))} // the older one is deleted
	if got, want := show(s.run(t)), "write [k=2:NoSchedule] a:Closed>Closed(Birth) z:Closed>-(GateDeleted)"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestContention(t *testing.T) {
	for name, c := range map[string]struct {
		start *sim
		undo  func(*sim)
		right string
	}{
		"removed while closed": {aNode(aGate("cni")).closed("cni"), func(s *sim) { s.untaint(cniTaint) }, "[" + cniTaint + "]"},
		"added while open":     {aNode(aGate("cni")).open("cni"), func(s *sim) { s.untaint(cniTaint).taint(cniTaint) }, "[]"},
		"changed while closed": {aNode(aGate("cni")).closed("cni"), func(s *sim) { s.facts.Node.Taints = nil; s.taint("cni.example/not-ready=x:NoSchedule") }, "[" + cniTaint + "]"},
	} {
		t.Run(name, func(t *testing.T) {
			s, writes, waited := c.start, 0, time.Duration(0)
			for range 10 {
				c.undo(s)
				d := s.run(t)
				if !d.Changes { // back off until the recheck
					wait := d.Recheck.Sub(s.now)
					if wait < waited || wait > contentionMaxWait || !d.Verdicts[0].Contended {
						t.Fatalf("after %d writes: waits %s (before: %s), contended %v", writes, wait, waited, d.Verdicts[0].Contended)
					}
					waited = wait
					d = s.after(wait).run(t)
				}
				writes++
				if !d.Changes || taintTexts(d.Taints) != c.right {
					t.Fatalf("write %d: %s", writes, show(d))
				}
				if contended := writes > 1; d.Verdicts[0].Contended != contended {
					t.Errorf("write %d: contended %v", writes, !contended)
				}
				s.after(time.Millisecond)
			}
			if waited != contentionMaxWait-time.Millisecond {
				t.Errorf("waits at most %s", waited)
			}
			d := s.run(t)
			if d.Recheck.IsZero() {
				t.Fatal("no recheck for the end of the contention")
			}
			if d = s.after(d.Recheck.Sub(s.now)).run(t); d.Verdicts[0].Contended || d.Changes {
				t.Errorf("after the contention: %s", show(d))
			}
		})
	}
}

// Two open gates share a taint that another writer keeps adding. Each counts
// separately; the taint is removed when one of them has waited.
func TestContentionOfTwoGates(t *testing.T) {
	fought := func(times int, ago time.Duration) func(*Record) {
		return func(r *Record) { r.Fought, r.FoughtAt = times, epoch.Add(-ago) }
	}
	a, b := aGate("a", tainting(cniTaint)), aGate("b", tainting(cniTaint))
	node := func(agoOfA, agoOfB time.Duration) *sim {
		return aNode(a, b).record("a", "Open", fought(3, agoOfA)).record("b", "Open", fought(1, agoOfB)).taint(cniTaint)
	}
	check(t, map[string]spec{
		"both wait":        {node(39*time.Second, 9*time.Second), "[" + cniTaint + "] a:Open>Open(Birth) contended b:Open>Open(Birth) contended"},
		"the first waits":  {node(39*time.Second, 10*time.Second), "write [] a:Open>Open(Birth) contended b:Open>Open(Birth) contended"},
		"the second waits": {node(40*time.Second, 9*time.Second), "write [] a:Open>Open(Birth) contended b:Open>Open(Birth) contended"},
		"neither waits":    {node(40*time.Second, 10*time.Second), "write [] a:Open>Open(Birth) contended b:Open>Open(Birth) contended"},
		"another is closed": {aNode(a, b).record("a", "Open", fought(3, time.Hour)).record("b", "Closed", func(r *Record) { r.Taint = cniTaint }, fought(3, time.Second)).
			taint("cni.example/not-ready=x:NoSchedule"), "[cni.example/not-ready=x:NoSchedule] a:Open>Open(Birth) b:Closed>Closed(Birth) contended"},
	})
}

func TestContentionInTheFuture(t *testing.T) {
	s := aNode(aGate("cni")).record("cni", "Closed", func(r *Record) { r.Fought, r.FoughtAt = 1<<40, epoch.Add(50*365*day) })
	check(t, map[string]spec{
		"contention in the future": {s, "write [" + cniTaint + "] cni:Closed>Closed(Birth)"},
	})
}

func TestTimeAdded(t *testing.T) {
	g := aGate("cni", tainting("cni.example/not-ready:NoExecute"))
	d := aNode(g).age(time.Second).decide()
	if got := d.Taints[0].TimeAdded; got == nil || !got.Time.Equal(epoch) {
		t.Errorf("NoExecute is added at %v, want %s", got, epoch)
	}
	d = aNode(aGate("cni")).age(time.Second).decide()
	if got := d.Taints[0].TimeAdded; got != nil {
		t.Errorf("NoSchedule is added at %v", got)
	}
	s := aNode(g).closed()
	s.facts.Node.Taints = []corev1.Taint{{Key: "cni.example/not-ready", Value: "x", Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: epoch.Add(-day)}}}
	if got := s.decide().Taints[0]; got.Value != "" || !got.TimeAdded.Time.Equal(epoch.Add(-day)) {
		t.Errorf("an adopted taint gets a new timeAdded: %+v", got)
	}
}

func TestDecideDoesNotModifyFacts(t *testing.T) {
	s := aNode(aGate("cni")).taint("a:NoSchedule").closed("cni").taint("b:NoSchedule").flag("cni", "holds")
	before := slices.Clone(s.facts.Node.Taints)
	s.decide()
	if !slices.Equal(before, s.facts.Node.Taints) || s.facts.Node.Records["cni"] == "" {
		t.Error("Decide modified its arguments")
	}
}

func TestOpensAndOpened(t *testing.T) {
	for name, c := range map[string]struct {
		d             Decision
		opens, opened bool
	}{
		"by its signals":                       {aNode(aGate("cni")).closed("cni").flag("cni", "holds").decide(), true, true},
		"overridden open, signals hold":        {overriddenOpen(aGate("cni")).flag("cni", "holds").override("cni", "Open", time.Hour).decide(), true, false},
		"overridden closed, signals hold":      {aNode(aGate("cni")).closed("cni").flag("cni", "holds").override("cni", "Closed", time.Hour).decide(), true, false},
		"overridden open, signals do not hold": {overriddenOpen(aGate("cni")).override("cni", "Open", time.Hour).decide(), false, false},
		"overridden closed, paused":            {overriddenClosed(aGate("cni", inPause)).decide(), false, false},
		"deleted":                              {aNode().closed("cni").decide(), false, true},
		"deleted while open":                   {aNode().open("cni").decide(), false, false},
		"stays open":                           {aNode(aGate("cni")).open("cni").decide(), false, false},
		"stays open in a new boot":             {aNode(aGate("cni")).open("cni").boot("b").flag("cni", "holds").decide(), true, false},
		"stays open, the boot is not proved":   {aNode(aGate("cni")).open("cni").bootUnobserved("b").flag("cni", "holds").decide(), false, false},
		"held":                                 {aNode().closed("cni").invisible().decide(), false, false},
		"taken over":                           {aNode(aGate("z", tainting(cniTaint), createdAgo(0))).closed("cni").decide(), false, false},
	} {
		opened := false
		for _, v := range c.d.Verdicts {
			opened = opened || v.Opened()
			if v.Opened() && v.Before == v1alpha1.StateClosed && !v.ClosedSince.Equal(epoch.Add(-time.Hour)) {
				t.Errorf("%s: closed since %s", name, v.ClosedSince)
			}
		}
		if c.d.Opens() != c.opens || opened != c.opened {
			t.Errorf("%s: opens %v, opened %v", name, c.d.Opens(), opened)
		}
	}
}
