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

// checkParts checks that after a decision that left nothing to do except on the node,
// the decisions about the parts are the same as the decision about all gates.
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
				t.Fatalf("separately:\n%+v\ntogether:\n%+v", v, whole)
			}
		}
		for _, taint := range slices.Concat(all.Taints, some.Taints, facts.Node.Taints) {
			other := all.Taints
			if part, owned := parts.keys[taint.Key]; !owned || part != i {
				other = facts.Node.Taints // does not concern the part
			}
			if contains := slices.Contains(other, taint); contains != slices.Contains(some.Taints, taint) {
				t.Fatalf("the taint %s: %v in %s, separately: %s", coreText(taint), contains, show(all), show(some))
			}
		}
	}
	if verdicts != len(all.Verdicts) || records != len(all.Records) {
		t.Fatalf("the parts have %d verdicts and write %d records, together: %s", verdicts, records, show(all))
	}
}

// counted is a signal that has the given needs and counts how often it is read.
type counted struct {
	Signal
	needs Needs
	reads *int
}

func (s counted) Read(in Input) Reading     { *s.reads++; return s.Signal.Read(in) }
func (s counted) Needs(*DaemonSets) Needs   { return s.needs }
func counting(n Needs, reads *int) []Signal { return []Signal{counted{flagSignal("fit"), n, reads}} }

// A change causes a decision about the gates that read it and those that share a taint
// key with one of them, or about all gates.
func TestWhatAChangeTouches(t *testing.T) {
	all := []Gate{
		aGate("annotated", waitingFor(counting(Needs{Annotations: []string{"k"}}, nil)...)),
		aGate("broken", func(g *Gate) { g.Broken, g.Taint, g.RecloseTaint = true, v1alpha1.Taint{}, v1alpha1.Taint{Key: "lost"} }),
		aGate("disk", waitingFor(counting(Needs{Conditions: []string{"Disk"}}, nil)...)),
		aGate("fresh", waitingFor(counting(Needs{Conditions: []string{"Disk"}, Heartbeats: true}, nil)...), tainting("karpenter.sh/unregistered:NoSchedule"), refused),
		aGate("pattern", waitingFor(counting(Needs{AllConditions: true}, nil)...)),
		aGate("pods", waitingFor(agent("x")), tainting("shared:NoSchedule")),
		aGate("shares", tainting("shares:NoSchedule"), recloseTainting("shared:NoExecute")),
		aGate("taints", waitingFor(counting(Needs{Taints: true}, nil)...)),
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
		{Aspect{Kind: AspectRecord, Name: "orphan"}, everything},
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
			t.Errorf("%s affects only some gates", name)
		}
	}
	inDryRun(&all[0])
	if got := touchedNames(Divide(all, nil).Touched(two)); got != everything {
		t.Errorf("with a dry run, a change touches %q", got)
	}
	if _, some := (*Parts)(nil).Touched(two); some {
		t.Error("without parts, a change affects only some gates")
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

// Changes are values: combining them does not modify them.
func TestChangesAreValues(t *testing.T) {
	of := func(name string) Change { return ChangeOf(Aspect{Kind: AspectCondition, Name: name}) }
	base := of("a").And(of("b")).And(of("c"))
	one, other := base.And(of("x")), base.And(of("y"))
	if !slices.Contains(one.aspects, of("x").aspects[0]) || slices.Contains(one.aspects, of("y").aspects[0]) || len(other.aspects) != 4 {
		t.Errorf("%v and %v share memory", one, other)
	}
	if again := one.And(one); len(again.aspects) != 4 {
		t.Errorf("the same twice is %v", again)
	}
	if !(Change{}).IsNothing() || !(Change{}).And(Change{}).IsNothing() || base.IsNothing() || !base.And(Everything()).IsEverything() {
		t.Error("IsNothing is wrong")
	}
}

// If each of a hundred gates reads its own condition, one signal is read when one
// condition changes.
func TestOnlyAffectedSignalsAreRead(t *testing.T) {
	s := aNode()
	reads := make([]int, 100)
	for i := range reads {
		name := fmt.Sprintf("g%02d", i)
		s.gates = append(s.gates, aGate(name, reclosing(v1alpha1.RecloseOnRegression), waitingFor(counting(Needs{Conditions: []string{name}}, &reads[i])...)))
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

// knowing makes all gates treat the taint of a gate as transient.
func (s *sim) knowing(gateName string) *sim {
	s.facts.Transient.GateKeys = map[string]bool{aGate(gateName).Taint.Key: true}
	return s
}

// TestWhatIsSettled checks after which decisions the parts may be decided separately.
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
		"an open gate":                                  {aNode(aGate("a")).open("a"), true},
		"a closed gate":                                 {aNode(aGate("a")).closed("a"), true},
		"a gate that opens":                             {aNode(aGate("a")).flag("a", "holds").closed("a"), true},
		"no gate":                                       {aNode(), true},
		"a paused gate":                                 {aNode(aGate("a", paused)).closed("a"), true},
		"a gate that is not accepted":                   {aNode(aGate("a", refused)).closed("a").knowing("a"), true},
		"a gate that may not use its key":               {aNode(aGate("a", refused)).closed("a"), false},
		"a paused gate that is not accepted":            {aNode(aGate("a", paused, refused)).closed("a").knowing("a"), true},
		"a paused gate that may not use its key":        {aNode(aGate("a", paused, refused)).closed("a"), false},
		"a paused gate with another gate's taint":       {aNode(aGate("a", paused)).record("a", "Closed", elsewhere), false},
		"a gate that waits for budget":                  {regressing(), false},
		"a gate that was granted budget":                {regressing().granting("a"), true},
		"a dry run":                                     {aNode(aGate("a", inDryRun)), false},
		"a record whose gate may exist":                 {aNode().closed("a").invisible(), false},
		"a record of a deleted gate":                    {aNode().closed("a"), false},
		"an override":                                   {aNode(aGate("a")).open("a").override("a", "Closed", time.Hour), false},
		"an override that ends":                         {aNode(aGate("a")).record("a", "Closed", func(r *Record) { r.Override, r.OverrideSince = "Open", r.Since }), false},
		"an edited gate that changes its taint":         {aNode(aGate("a")).record("a", "Closed", elsewhere), true},
		"an edited gate that must not change its taint": {aNode(aGate("a", refused)).record("a", "Closed", elsewhere), false},
		"a gate that cannot be read":                    {aNode(aGate("a", func(g *Gate) { g.Broken = true })).closed("a"), false},
	} {
		if d := test.node.decide(); d.Settled != test.want {
			t.Errorf("%s: settled is %v: %s", name, d.Settled, show(d))
		}
	}
}
