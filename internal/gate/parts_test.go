// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// checkParts: once a decision left nothing to do but on the node, what is decided about
// each part alone is what is decided about all.
func (s *sim) checkParts(t failer, last Decision) {
	if !last.Settled {
		return
	}
	all, facts := s.decide(), s.facts
	facts.Part = true
	parts := Divide(s.gates, facts.DaemonSets)
	verdicts, records := 0, 0
	for i := range parts.parts {
		some := Decide(parts.parts[i].Gates, &facts, s.now)
		verdicts, records = verdicts+len(some.Verdicts), records+len(some.Records)
		for j := range some.Verdicts {
			v := &some.Verdicts[j]
			if whole := all.Verdict(v.Gate); !reflect.DeepEqual(v, whole) || some.Records[v.Gate] != all.Records[v.Gate] {
				t.Fatalf("alone:\n%+v\ntogether:\n%+v", v, whole)
			}
		}
		for _, taint := range slices.Concat(all.Taints, some.Taints, facts.Node.Taints) {
			other := all.Taints
			if part, owned := parts.keys[taint.Key]; !owned || part != i {
				other = facts.Node.Taints // is nothing to it
			}
			if contains := slices.Contains(other, taint); contains != slices.Contains(some.Taints, taint) {
				t.Fatalf("the taint %s: %v of %s, alone: %s", coreText(taint), contains, show(all), show(some))
			}
		}
	}
	if verdicts != len(all.Verdicts) || records != len(all.Records) {
		t.Fatalf("the parts say %d things and write %d, together %s", verdicts, records, show(all))
	}
}

// counted is a signal that looks at what it says, and counts how often it is read.
type counted struct {
	Signal
	needs Needs
	reads *int
}

func (s counted) Read(in Input) Reading    { *s.reads++; return s.Signal.Read(in) }
func (s counted) Needs(*DaemonSets) Needs  { return s.needs }
func looking(n Needs, reads *int) []Signal { return []Signal{counted{flagSignal("fit"), n, reads}} }

// Which gates are decided about when something changes: those that look at it, those
// that share a taint key with one of them, or all.
func TestWhatAChangeTouches(t *testing.T) {
	all := []Gate{
		aGate("annotated", waitingFor(looking(Needs{Annotations: []string{"k"}}, nil)...)),
		aGate("broken", func(g *Gate) { g.Broken, g.Taint, g.RecloseTaint = true, v1alpha1.Taint{}, v1alpha1.Taint{Key: "lost"} }),
		aGate("disk", waitingFor(looking(Needs{Conditions: []string{"Disk"}}, nil)...)),
		aGate("fresh", waitingFor(looking(Needs{Conditions: []string{"Disk"}, Heartbeats: true}, nil)...), tainting("karpenter.sh/unregistered:NoSchedule")),
		aGate("pattern", waitingFor(looking(Needs{AllConditions: true}, nil)...)),
		aGate("pods", waitingFor(agent("x")), tainting("shared:NoSchedule")),
		aGate("shares", tainting("shares:NoSchedule"), recloseTainting("shared:NoExecute")),
		aGate("taints", waitingFor(looking(Needs{Taints: true}, nil)...)),
	}
	everything := "everything"
	for _, test := range []struct {
		what Aspect
		want string
	}{
		{Aspect{Kind: AspectCondition, Name: "Disk"}, "disk fresh pattern"},
		{Aspect{Kind: AspectCondition, Name: "Other"}, "pattern"},
		{Aspect{Kind: AspectHeartbeats}, "fresh"},
		{Aspect{Kind: AspectAnnotation, Name: "k"}, "annotated"},
		{Aspect{Kind: AspectAnnotation, Name: "other"}, ""},
		{Aspect{Kind: AspectPods, Pods: agent("x").query()}, "pods shares"},
		{Aspect{Kind: AspectPods, Pods: agent("y").query()}, ""},
		{Aspect{Kind: AspectCSINode}, ""},
		{Aspect{Kind: AspectRecord, Name: "shares"}, "pods shares"},
		{Aspect{Kind: AspectRecord, Name: "nobody's"}, everything},
		{Aspect{Kind: AspectTaint, Name: "disk.example/not-ready"}, "disk taints"},
		{Aspect{Kind: AspectTaint, Name: "foreign"}, everything},
		{Aspect{Kind: AspectTaint, Name: "lost"}, everything},
		{Aspect{Kind: AspectTaint, Name: "karpenter.sh/unregistered"}, everything},
	} {
		if got := touchedNames(Divide(all, nil).Touched(ChangeOf(test.what))); got != test.want {
			t.Errorf("%+v touches %q, want %q", test.what, got, test.want)
		}
	}
	two := ChangeOf(Aspect{Kind: AspectHeartbeats}).And(ChangeOf(Aspect{Kind: AspectAnnotation, Name: "k"}))
	if got := touchedNames(Divide(all, nil).Touched(two)); got != "annotated fresh" {
		t.Errorf("two changes touch %q", got)
	}
	for name, c := range map[string]Change{"everything": Everything(), "and more": two.And(Everything()), "too much": tooMuch()} {
		if _, some := Divide(all, nil).Touched(c); some {
			t.Errorf("%s touches only some", name)
		}
	}
	inDryRun(&all[0])
	if got := touchedNames(Divide(all, nil).Touched(two)); got != everything {
		t.Errorf("with a dry run, a change touches %q", got)
	}
	if _, some := (*Parts)(nil).Touched(two); some {
		t.Error("where nothing is divided, a change touches only some")
	}
}

func tooMuch() (c Change) {
	for i := range aspectsMax + 1 {
		c = c.And(ChangeOf(Aspect{Kind: AspectAnnotation, Name: fmt.Sprint(i)}))
	}
	return c
}

func touchedNames(p Part, some bool) string {
	if !some {
		return "everything"
	}
	text := ""
	for i := range p.Gates {
		text += p.Gates[i].Name + " "
	}
	return text[:max(len(text)-1, 0)]
}

// Changes are values: what is made of one is no part of another.
func TestChangesAreValues(t *testing.T) {
	of := func(name string) Change { return ChangeOf(Aspect{Kind: AspectCondition, Name: name}) }
	base := of("a").And(of("b")).And(of("c"))
	one, other := base.And(of("x")), base.And(of("y"))
	if !slices.Contains(one.aspects, of("x").aspects[0]) || slices.Contains(one.aspects, of("y").aspects[0]) || len(other.aspects) != 4 {
		t.Errorf("%v and %v share what they should not", one, other)
	}
	if again := one.And(one); len(again.aspects) != 4 {
		t.Errorf("the same twice is %v", again)
	}
	if !(Change{}).IsNothing() || !(Change{}).And(Change{}).IsNothing() || base.IsNothing() || !base.And(Everything()).IsEverything() {
		t.Error("nothing is something, or something nothing")
	}
}

// Of a hundred gates of which each looks at a condition of its own, one signal is read
// when one condition flips.
func TestOnlyWhoLooksIsRead(t *testing.T) {
	s := aNode()
	reads := make([]int, 100)
	for i := range reads {
		name := fmt.Sprintf("g%02d", i)
		s.gates = append(s.gates, aGate(name, reclosing(v1alpha1.RecloseOnRegression), waitingFor(looking(Needs{Conditions: []string{name}}, &reads[i])...)))
		s.open(name)
	}
	if d := s.flag("fit", "holds").run(t); !d.Settled || slices.Contains(reads, 0) {
		t.Fatalf("settled: %v, reads %v", d.Settled, reads)
	}
	clear(reads)
	part, some := Divide(s.gates, nil).Touched(ChangeOf(Aspect{Kind: AspectCondition, Name: "g42"}))
	s.facts.Part = true
	d := Decide(part.Gates, &s.facts, s.now)
	if total := reads[42]; !some || total != 1 || slices.Max(reads) != 1 || len(d.Verdicts) != 1 {
		t.Errorf("some: %v, %d verdicts, reads %v", some, len(d.Verdicts), reads)
	}
	reads[42] = 0
	if slices.Max(reads) != 0 {
		t.Errorf("others were read: %v", reads)
	}
}

// After which decisions the gates may be decided about apart.
func TestWhatIsSettled(t *testing.T) {
	elsewhere := func(r *Record) { r.Taint = "elsewhere:NoSchedule" }
	regressing := func() *sim {
		return aNode(aGate("a", reclosing(v1alpha1.RecloseOnRegression), func(g *Gate) { g.CloseAfter = 0 })).flag("a", "no").open("a")
	}
	paused := func(g *Gate) { g.Mode = v1alpha1.ModePaused }
	for name, test := range map[string]struct {
		node *sim
		want bool
	}{
		"an open gate":       {aNode(aGate("a")).open("a"), true},
		"a closed gate":      {aNode(aGate("a")).closed("a"), true},
		"one that opens":     {aNode(aGate("a")).flag("a", "holds").closed("a"), true},
		"none":               {aNode(), true},
		"one that is paused": {aNode(aGate("a", paused)).closed("a"), true},
		"one that is paused with another's taint": {aNode(aGate("a", paused)).record("a", "Closed", elsewhere), false},
		"a gate that waits for budget":            {regressing(), false},
		"one that was granted it":                 {regressing().granting("a"), true},
		"a dry run":                               {aNode(aGate("a", inDryRun)), false},
		"a record whose gate may be there":        {aNode().closed("a").invisible(), false},
		"a record of a gate that is gone":         {aNode().closed("a"), false},
		"an override":                             {aNode(aGate("a")).open("a").override("a", "Closed", time.Hour), false},
		"an override that ends":                   {aNode(aGate("a")).record("a", "Closed", func(r *Record) { r.Override, r.OverrideSince = "Open", r.Since }), false},
		"an edited gate that changes its taint":   {aNode(aGate("a")).record("a", "Closed", elsewhere), true},
		"an edited gate that may not":             {aNode(aGate("a", refused)).record("a", "Closed", elsewhere), false},
		"a gate that cannot be read":              {aNode(aGate("a", func(g *Gate) { g.Broken = true })).closed("a"), false},
	} {
		if d := test.node.decide(); d.Settled != test.want {
			t.Errorf("%s: settled is %v: %s", name, d.Settled, show(d))
		}
	}
}
