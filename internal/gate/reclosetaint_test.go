// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

const againTaint = "cni.example/again:NoSchedule"

var again = recloseTainting(againTaint)

// twoTaints is a gate with a startup taint and another for every later close.
func twoTaints(options ...func(*Gate)) Gate { return aGate("cni", append(options, again)...) }

// withAgain is a record of a gate that closed again.
func withAgain(r *Record) {
	r.Reclosed, r.Taint, r.Reason = true, againTaint, v1alpha1.ReasonRegression
}

func TestWhichTaint(t *testing.T) {
	open := func(options ...func(*Gate)) *sim { return aNode(twoTaints(options...)).open("cni") }
	older := existing(v1alpha1.ExistingClose)
	closesAgain := func(why string) string { return "write [" + againTaint + "] cni:Open>Closed(" + why + ")" }
	check(t, map[string]spec{
		"birth":                          {aNode(twoTaints()).age(time.Minute), "write [" + cniTaint + "] cni:->Closed(Birth)"},
		"a reboot before it opened":      {aNode(twoTaints()).closed("cni").boot("b"), "write [" + cniTaint + "] cni:Closed>Closed(Rebooted)"},
		"silence before it opened":       {aNode(twoTaints()).closed("cni").ready("Unknown"), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=NodeSilent"},
		"a reboot":                       {open().boot("b"), closesAgain("Rebooted")},
		"silence":                        {open().ready("Unknown"), closesAgain("NodeSilent") + " blocked=NodeSilent"},
		"shutdown":                       {open().shuttingDown(true), closesAgain("NodeShutdown") + " blocked=NodeShutdown"},
		"a second reboot":                {aNode(twoTaints()).record("cni", "Closed", withAgain).taint(againTaint).boot("b"), "write [" + againTaint + "] cni:Closed>Closed(Rebooted)"},
		"a regression":                   {lost(open(reclosing(onRegression))), closesAgain("Regression")},
		"an existing node":               {aNode(twoTaints(older)).granting("cni"), "write [" + againTaint + "] cni:->Closed(Existing)"},
		"an idle one":                    {aNode(twoTaints(existing(v1alpha1.ExistingCloseIfIdle))).granting("cni").listed(daemonPod), "write [" + againTaint + "] cni:->Closed(ExistingIdle)"},
		"open by hand, which ends":       {openByHand(twoTaints()), "write [" + againTaint + "] cni:Open>Closed(OverrideEnded) override=-/Closed"},
		"opens from either":              {aNode(twoTaints()).record("cni", "Closed", withAgain).taint(againTaint).flag("cni", "holds"), "write [] cni:Closed>Open(SignalsHold)"},
		"a gate of one taint":            {aNode(aGate("cni")).open("cni").boot("b"), "write [" + cniTaint + "] cni:Open>Closed(Rebooted)"},
		"a refused gate keeps its own":   {aNode(twoTaints(refused)).record("cni", "Closed", withAgain).taint(againTaint), "[" + againTaint + "] cni:Closed>Closed(Regression)"},
		"what evicts: silence evicts no": {aNode(aGate("cni", recloseTainting("cni.example/again:NoExecute"))).open("cni").ready("Unknown"), "[] cni:Open>Open(Birth)"},
		"what evicts only at birth":      {open(tainting("cni.example/not-ready:NoExecute")).ready("Unknown"), closesAgain("NodeSilent") + " blocked=NodeSilent"},
	})
}

// lost is a node on which the gate's flag has not held for long enough.
func lost(s *sim) *sim {
	s.granting("cni").flag("cni", "no").facts.LostSince = map[string]time.Time{"cni": epoch.Add(-time.Hour)}
	return s
}

func TestAdoptingOneOfTwoTaints(t *testing.T) {
	old := func() *sim { return aNode(twoTaints()) }
	born := func() *sim { return old().age(time.Minute) }
	check(t, map[string]spec{
		"the first":              {old().taint(cniTaint), "write [" + cniTaint + "] cni:->Closed(Adopted)"},
		"the other":              {old().taint(againTaint), "write [" + againTaint + "] cni:->Closed(Adopted)"},
		"both: the first":        {old().taint(againTaint, cniTaint), "write [" + cniTaint + "] cni:->Closed(Adopted)"},
		"a new node, the other":  {born().taint(againTaint), "write [" + cniTaint + "] cni:->Closed(Birth)"},
		"a new node, both":       {born().taint(againTaint, cniTaint), "write [" + cniTaint + "] cni:->Closed(Birth)"},
		"a damaged record":       {old().raw("cni", "x").taint(againTaint), "write [" + againTaint + "] cni:Closed>Closed(Adopted)"},
		"a damaged record, both": {old().raw("cni", "x").taint(againTaint, cniTaint), "write [" + cniTaint + "] cni:Closed>Closed(Adopted)"},
		"the first is another gate's": {aNode(twoTaints(), aGate("z", tainting(cniTaint))).record("z", "Closed", func(r *Record) { r.Taint = cniTaint }).taint(cniTaint, againTaint),
			"write [" + cniTaint + " " + againTaint + "] cni:->Closed(Adopted) z:Closed>Closed(Birth)"},
	})
	stamped := aNode(twoTaints(stamping("example.com/at"))).taint(againTaint).flag("cni", "holds")
	if d := stamped.run(t); d.Stamps["example.com/at"] == "" || len(d.Taints) > 0 {
		t.Errorf("opened without a stamp: %s", show(d))
	}
	// What is adopted stays what it is.
	s := old().taint(againTaint)
	s.run(t)
	if got, want := show(s.boot("b").run(t)), "write ["+againTaint+"] cni:Closed>Closed(Rebooted)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Either taint may be edited while it is on a node. What was there goes, and what
// is to be there comes, in one write; the one that is not there is no reason for any.
func TestEditingOneOfTwoTaints(t *testing.T) {
	const edited = "cni.example/edited:NoSchedule"
	atBirth := func(g Gate) *sim { return aNode(g).closed("cni") }
	reclosed := func(g Gate) *sim { return aNode(g).record("cni", "Closed", withAgain).taint(againTaint) }
	swapped := aGate("cni", tainting(againTaint), recloseTainting(cniTaint))
	birth, regression := "] cni:Closed>Closed(Birth)", "] cni:Closed>Closed(Regression)"
	check(t, map[string]spec{
		"the first, closed at birth":       {atBirth(twoTaints(tainting(edited))), "write [" + edited + birth},
		"the other, closed at birth":       {atBirth(aGate("cni", recloseTainting(edited))), "[" + cniTaint + birth},
		"the first, closed again":          {reclosed(twoTaints(tainting(edited))), "[" + againTaint + regression},
		"the other, closed again":          {reclosed(aGate("cni", recloseTainting(edited))), "write [" + edited + regression},
		"the other goes, closed again":     {reclosed(aGate("cni")), "write [" + cniTaint + regression},
		"the other goes, closed at birth":  {atBirth(aGate("cni")), "[" + cniTaint + birth},
		"the other comes, closed at birth": {atBirth(twoTaints()), "[" + cniTaint + birth},
		"the other comes, closed again": {aNode(twoTaints()).record("cni", "Closed", withAgain, func(r *Record) { r.Taint = cniTaint }).taint(cniTaint),
			"write [" + againTaint + regression},
		"they change places, at birth":     {atBirth(swapped), "write [" + againTaint + birth},
		"they change places, closed again": {reclosed(swapped), "write [" + cniTaint + regression},
		"the value of the other":           {reclosed(aGate("cni", recloseTainting("cni.example/again=v:NoSchedule"))), "write [cni.example/again=v:NoSchedule" + regression},
		"the effect of the other":          {reclosed(aGate("cni", recloseTainting("cni.example/again:NoExecute"))), "write [cni.example/again:NoExecute" + regression},
		"while it is open":                 {aNode(twoTaints(tainting(edited))).open("cni"), "[] cni:Open>Open(Birth)"},
		"and forgets the one of before":    {aNode(aGate("cni")).open("cni").taint(againTaint), "[" + againTaint + "] cni:Open>Open(Birth)"},
	})
	d := reclosed(aGate("cni", recloseTainting("cni.example/again:NoExecute"))).decide()
	if added := d.Taints[0].TimeAdded; added == nil || !added.Time.Equal(epoch) {
		t.Errorf("a NoExecute taint is added at %v", added)
	}
}

// Both keys are the gate's, whichever of them it has on the node now.
func TestBothTaintsAreTheGates(t *testing.T) {
	reclosed := func() *sim { return aNode(twoTaints()).record("cni", "Closed", withAgain).taint(againTaint) }
	regression := "] cni:Closed>Closed(Regression)"
	check(t, map[string]spec{
		"open, the first":              {aNode(twoTaints()).open("cni").taint(cniTaint), "write [] cni:Open>Open(Birth)"},
		"open, the other":              {aNode(twoTaints()).open("cni").taint(againTaint), "write [] cni:Open>Open(Birth)"},
		"open, both":                   {aNode(twoTaints()).open("cni").taint(againTaint, cniTaint), "write [] cni:Open>Open(Birth)"},
		"closed at birth, the other":   {aNode(twoTaints()).closed("cni").taint(againTaint), "write [" + cniTaint + "] cni:Closed>Closed(Birth)"},
		"closed again, the first":      {reclosed().taint(cniTaint), "write [" + againTaint + regression},
		"closed again, the other gone": {reclosed().untaint(againTaint), "write [" + againTaint + regression},
		"closed again, they changed":   {reclosed().untaint(againTaint).taint(cniTaint), "write [" + againTaint + regression},
		"opens with both on":           {reclosed().taint(cniTaint).flag("cni", "holds"), "write [] cni:Closed>Open(SignalsHold)"},
		"closes with the first on":     {aNode(twoTaints()).open("cni").taint(cniTaint).boot("b"), "write [" + againTaint + "] cni:Open>Closed(Rebooted)"},
		"neither may be touched where one may not": {forbidding(reclosed().taint(cniTaint), "cni.example/again"),
			"[" + againTaint + " " + cniTaint + regression + " held"},
		"nor where the first may not": {forbidding(reclosed().taint(cniTaint), "cni.example/not-ready"),
			"[" + againTaint + " " + cniTaint + regression + " held"},
		"nor where only another one may not": {forbidding(aNode(twoTaints()).closed("cni").flag("cni", "holds"), "cni.example/again"),
			"[" + cniTaint + "] cni:Closed>Closed(Birth) held"},
		"but one that is refused for it opens what it closed": {forbidding(aNode(twoTaints(refused)).closed("cni").flag("cni", "holds"), "cni.example/again"),
			"write [] cni:Closed>Open(SignalsHold)"},
		"a follower leaves it to who keeps it off": {aNode(twoTaints(), follower("z", tainting(againTaint))).open("cni").taint(againTaint),
			"write [] cni:Open>Open(Birth) z:Open>Open"},
		"the gate is deleted": {gatesGone(reclosed()), "write [] cni:Closed>-(GateDeleted)"},
		"another's first taint is the other": {aNode(twoTaints(), aGate("z", tainting(againTaint))).open("cni").
			record("z", "Closed", func(r *Record) { r.Taint = againTaint }).taint(againTaint), "[" + againTaint + "] cni:Open>Open(Birth) z:Closed>Closed(Birth)"},
		"closed with different ones of the same two": {aNode(twoTaints(), aGate("z", tainting(cniTaint), again)).record("cni", "Closed", withAgain).
			record("z", "Closed", func(r *Record) { r.Taint = cniTaint }).taint(againTaint, cniTaint),
			"[" + againTaint + " " + cniTaint + regression + " z:Closed>Closed(Birth)"},
		"one of them opens": {aNode(twoTaints(), aGate("z", tainting(cniTaint), again)).record("cni", "Closed", withAgain).
			record("z", "Closed", func(r *Record) { r.Taint = cniTaint }).taint(againTaint, cniTaint).flag("z", "holds"),
			"write [" + againTaint + regression + " z:Closed>Open(SignalsHold)"},
	})
}

func forbidding(s *sim, key string) *sim {
	s.facts.Allowed = allowed("cni.example/again", "cni.example/again:NoExecute", "cni.example/not-ready", "cni.example/not-ready:NoExecute")
	maps.DeleteFunc(s.facts.Allowed, func(id TaintID, _ bool) bool { return id.Key == key })
	return s
}

func gatesGone(s *sim) *sim { s.gates = nil; return s }

// A writer that puts the one taint on whenever the gate has the other is fought
// like any other.
func TestFightingForTheOtherTaint(t *testing.T) {
	s := aNode(twoTaints()).record("cni", "Closed", withAgain).taint(againTaint)
	for i, want := range []string{
		"write [" + againTaint + "] cni:Closed>Closed(Regression)",
		"[" + againTaint + " " + cniTaint + "] cni:Closed>Closed(Regression) contended",
	} {
		if got := show(s.taint(cniTaint).after(time.Second).run(t)); got != want {
			t.Errorf("%d:\n got %s\nwant %s", i, got, want)
		}
	}
}

// A deleted gate's record goes to one that has its taint in either role, and the
// taint stays what it is.
func TestTakingOverWithTwoTaints(t *testing.T) {
	orphan := func(heir Gate, record func(*Record)) *sim {
		return aNode(heir).record("gone", "Closed", record)
	}
	birth := func(r *Record) { r.Taint = cniTaint }
	check(t, map[string]spec{
		"renamed, closed at birth": {orphan(twoTaints(), birth).taint(cniTaint), "write [" + cniTaint + "] cni:Closed>Closed(Birth) gone:->-(GateDeleted)"},
		"renamed, closed again":    {orphan(twoTaints(), withAgain).taint(againTaint), "write [" + againTaint + "] cni:Closed>Closed(Regression) gone:->-(GateDeleted)"},
		"its first is the heir's other": {orphan(aGate("cni", recloseTainting(cniTaint), tainting("cni.example/x:NoSchedule")), birth).taint(cniTaint),
			"write [" + cniTaint + "] cni:Closed>Closed(Birth) gone:->-(GateDeleted)"},
		"its other is the heir's first": {orphan(aGate("cni", tainting(againTaint), recloseTainting("cni.example/x:NoSchedule")), withAgain).taint(againTaint),
			"write [" + againTaint + "] cni:Closed>Closed(Regression) gone:->-(GateDeleted)"},
		"its other is the heir's only one": {orphan(aGate("cni", tainting(againTaint)), withAgain).taint(againTaint),
			"write [" + againTaint + "] cni:Closed>Closed(Regression) gone:->-(GateDeleted)"},
		"neither is": {orphan(aGate("cni", tainting("cni.example/x:NoSchedule")), withAgain).taint(againTaint), "write [] cni:->- gone:Closed>-(GateDeleted)"},
	})
}

// The pods that tolerate a taint are those that tolerate the one that was on.
func TestToleratingOneOfTwoTaints(t *testing.T) {
	tolerating := func(key string) BoundPod {
		p := workload
		p.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
		return p
	}
	for name, c := range map[string]struct {
		pod  BoundPod
		want string
	}{
		"the first":          {tolerating("cni.example/not-ready"), "write [] cni:Closed>-(NotIdle)"},
		"the one that is on": {tolerating("cni.example/again"), "write [" + againTaint + "] cni:Closed>Closed(Existing)"},
	} {
		s := aNode(twoTaints(existing(v1alpha1.ExistingCloseIfIdle))).granting("cni").listed(daemonPod)
		s.run(t)
		if got := show(s.after(time.Minute).listed(c.pod).decide()); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
	s := aNode(twoTaints()).record("cni", "Closed", withAgain).taint(againTaint).flag("cni", "holds")
	if got := s.run(t).Verdicts[0].Closure.Taint; TaintText(got) != againTaint {
		t.Errorf("it had been closed with %s", TaintText(got))
	}
}

// A taint that lets every pod in is got past by none.
func TestNobodyBypassesAPreference(t *testing.T) {
	s := aNode(aGate("cni", recloseTainting("cni.example/again:PreferNoSchedule"))).
		record("cni", "Closed", withAgain, func(r *Record) { r.Taint = "cni.example/again:PreferNoSchedule" }).
		taint("cni.example/again:PreferNoSchedule").flag("cni", "holds")
	c := s.run(t).Verdicts[0].Closure
	p := BoundPod{Bound: c.From.Add(time.Minute), Starts: []Start{{At: c.From.Add(time.Minute), Running: true}}}
	if c.Bypassed(&p) {
		t.Error("bypassed")
	}
	if c.Taint.Effect = corev1.TaintEffectNoSchedule; !c.Bypassed(&p) {
		t.Error("that pod bypasses no taint at all")
	}
}

// Records written at birth do not tell the role: a policy writes them.
func TestRecordOfTheRole(t *testing.T) {
	s := aNode(twoTaints()).age(time.Minute)
	for _, step := range []struct {
		change func()
		want   bool
	}{
		{func() {}, false},
		{func() { s.flag("cni", "holds") }, false},
		{func() { s.flag("cni", "no").boot("b") }, true},
		{func() { s.flag("cni", "holds") }, false},
	} {
		step.change()
		s.run(t)
		if raw := s.facts.Node.Records["cni"]; strings.Contains(raw, "reclosed") != step.want {
			t.Errorf("want reclosed %v: %s", step.want, raw)
		}
	}
}
