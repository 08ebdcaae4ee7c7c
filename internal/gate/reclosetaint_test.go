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

// twoTaints returns a gate with a recloseTaint.
func twoTaints(options ...func(*Gate)) Gate { return aGate("cni", append(options, again)...) }

// withAgain changes a record to one of a gate that closed again.
func withAgain(r *Record) {
	r.Reclosed, r.Taint, r.Reason = true, againTaint, v1alpha1.ReasonRegression
}

func TestWhichTaint(t *testing.T) {
	open := func(options ...func(*Gate)) *sim { return aNode(twoTaints(options...)).open("cni") }
	older := existing(v1alpha1.ExistingClose)
	closesAgain := func(why string) string { return "write [" + againTaint + "] cni:Open>Closed(" + why + ")" }
	check(t, map[string]spec{
		"birth":                           {aNode(twoTaints()).age(time.Minute), "write [" + cniTaint + "] cni:->Closed(Birth)"},
		"a reboot before it opened":       {aNode(twoTaints()).closed("cni").boot("b"), "write [" + cniTaint + "] cni:Closed>Closed(Rebooted)"},
		"unreachability before it opened": {aNode(twoTaints()).closed("cni").ready("Unknown"), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=NodeSilent"},
		"a reboot":                        {open().boot("b"), closesAgain("Rebooted")},
		"unreachability":                  {open().ready("Unknown"), closesAgain("NodeSilent") + " blocked=NodeSilent"},
		"shutdown":                        {open().shuttingDown(true), closesAgain("NodeShutdown") + " blocked=NodeShutdown"},
		"a second reboot":                 {aNode(twoTaints()).record("cni", "Closed", withAgain).taint(againTaint).boot("b"), "write [" + againTaint + "] cni:Closed>Closed(Rebooted)"},
		"a regression":                    {lost(open(reclosing(onRegression))), closesAgain("Regression")},
		"an existing node":                {aNode(twoTaints(older)).granting("cni"), "write [" + againTaint + "] cni:->Closed(Existing)"},
		"an idle one":                     {aNode(twoTaints(existing(v1alpha1.ExistingCloseIfIdle))).granting("cni").listed(daemonPod), "write [" + againTaint + "] cni:->Closed(ExistingIdle)"},
		"an override to open ends":        {overriddenOpen(twoTaints()), "write [" + againTaint + "] cni:Open>Closed(OverrideEnded) override=-/Closed"},
		"closed by a user before it opens": {aNode(twoTaints()).closed("cni").flag("cni", "holds").override("cni", "Closed", time.Hour),
			"write [" + cniTaint + "] cni:Closed>Closed(Overridden) blocked=Overridden override=Closed/Open"},
		"closed by a user after it opened": {open().flag("cni", "holds").override("cni", "Closed", time.Hour),
			"write [" + againTaint + "] cni:Open>Closed(Overridden) blocked=Overridden override=Closed/Open"},
		"closed by a user before it opens, a node that is admitted open": {aNode(twoTaints()).age(time.Minute).flag("cni", "holds").override("cni", "Closed", time.Hour),
			"write [" + cniTaint + "] cni:->Closed(Overridden) blocked=Overridden override=Closed/Open"},
		"opens with the recloseTaint":                           {aNode(twoTaints()).record("cni", "Closed", withAgain).taint(againTaint).flag("cni", "holds"), "write [] cni:Closed>Open(SignalsHold)"},
		"a gate of one taint":                                   {aNode(aGate("cni")).open("cni").boot("b"), "write [" + cniTaint + "] cni:Open>Closed(Rebooted)"},
		"a gate that is not accepted keeps its taint":           {aNode(twoTaints(refused)).record("cni", "Closed", withAgain).taint(againTaint), "[" + againTaint + "] cni:Closed>Closed(Regression)"},
		"NoExecute recloseTaint: unreachability does not close": {aNode(aGate("cni", recloseTainting("cni.example/again:NoExecute"))).open("cni").ready("Unknown"), "[] cni:Open>Open(Birth)"},
		"NoExecute taint: unreachability closes":                {open(tainting("cni.example/not-ready:NoExecute")).ready("Unknown"), closesAgain("NodeSilent") + " blocked=NodeSilent"},
	})
}

// While a user keeps a gate closed, its taint on the node does not change, whatever the
// gate's own state does: neither before the gate first opens on the node nor after.
func TestTaintOfAnOverrideThatKeepsClosed(t *testing.T) {
	for phase, c := range map[string]struct {
		gate  Gate
		node  func(Gate) *sim
		taint string
	}{
		"before it opens": {twoTaints(), func(g Gate) *sim { return aNode(g).closed("cni") }, cniTaint},
		"adopted":         {twoTaints(), func(g Gate) *sim { return aNode(g).taint(againTaint) }, againTaint},
		"after it opened": {aGate("cni", tainting("cni.example/not-ready:NoExecute"), again), func(g Gate) *sim { return aNode(g).open("cni") }, againTaint},
	} {
		for event, happens := range map[string]func(*sim){
			"reboot":                          func(s *sim) { s.boot("b") },
			"reboot, signals do not hold":     func(s *sim) { s.boot("b").flag("cni", "no") },
			"unreachability":                  func(s *sim) { s.ready("Unknown") },
			"shutdown":                        func(s *sim) { s.shuttingDown(true) },
			"regression":                      func(s *sim) { lost(s) },
			"a reboot as the override ends":   func(s *sim) { s.boot("b").flag("cni", "no").endOverride("cni") },
			"a shutdown as the override ends": func(s *sim) { s.shuttingDown(true).endOverride("cni") },
		} {
			t.Run(phase+", "+event, func(t *testing.T) {
				g := c.gate
				g.Reclose = onRegression
				s := c.node(g).flag("cni", "holds").override("cni", "Closed", time.Hour)
				s.run(t)
				happens(s)
				for range 2 { // the second time, the gate's own state may be closed already
					if d := s.run(t); taintTexts(d.Taints) != "["+c.taint+"]" {
						t.Errorf("want [%s]: %s", c.taint, show(d))
					}
					s.after(time.Second)
				}
				s.endOverride("cni").ready("True").shuttingDown(false).flag("cni", "holds")
				if d := s.run(t); len(d.Taints) > 0 {
					t.Errorf("it does not open after the override: %s", show(d))
				}
				if d := s.after(time.Second).boot("c").flag("cni", "no").run(t); taintTexts(d.Taints) != "["+againTaint+"]" {
					t.Errorf("it had opened, and closes with another taint: %s", show(d))
				}
			})
		}
	}
}

// lost is a node on which the gate's flag has not held for long enough.
func lost(s *sim) *sim {
	s.granting("cni").flag("cni", "no").facts.Lost = map[string][]Lost{"cni": {{Since: epoch.Add(-time.Hour)}}}
	return s
}

func TestAdoptingOneOfTwoTaints(t *testing.T) {
	old := func() *sim { return aNode(twoTaints()) }
	born := func() *sim { return old().age(time.Minute) }
	check(t, map[string]spec{
		"taint":                    {old().taint(cniTaint), "write [" + cniTaint + "] cni:->Closed(Adopted)"},
		"recloseTaint":             {old().taint(againTaint), "write [" + againTaint + "] cni:->Closed(Adopted)"},
		"both: taint":              {old().taint(againTaint, cniTaint), "write [" + cniTaint + "] cni:->Closed(Adopted)"},
		"a new node, recloseTaint": {born().taint(againTaint), "write [" + cniTaint + "] cni:->Closed(Birth)"},
		"a new node, both":         {born().taint(againTaint, cniTaint), "write [" + cniTaint + "] cni:->Closed(Birth)"},
		"a damaged record":         {old().raw("cni", "x").taint(againTaint), "write [" + againTaint + "] cni:Closed>Closed(Adopted)"},
		"a damaged record, both":   {old().raw("cni", "x").taint(againTaint, cniTaint), "write [" + cniTaint + "] cni:Closed>Closed(Adopted)"},
		"the first is another gate's": {aNode(twoTaints(), aGate("z", tainting(cniTaint))).record("z", "Closed", func(r *Record) { r.Taint = cniTaint }).taint(cniTaint, againTaint),
			"write [" + cniTaint + " " + againTaint + "] cni:->Closed(Adopted) z:Closed>Closed(Birth)"},
	})
	stamped := aNode(twoTaints(stamping("example.com/at"))).taint(againTaint).flag("cni", "holds")
	if d := stamped.run(t); d.Stamps["example.com/at"] == "" || len(d.Taints) > 0 {
		t.Errorf("opened without a stamp: %s", show(d))
	}
	// An adopted taint is kept.
	s := old().taint(againTaint)
	s.run(t)
	if got, want := show(s.boot("b").run(t)), "write ["+againTaint+"] cni:Closed>Closed(Rebooted)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Both taints may be edited while they are on a node. The old taint is replaced by the
// new one in a single write. An edit of the taint that is not on the node causes no
// write.
func TestEditingOneOfTwoTaints(t *testing.T) {
	const edited = "cni.example/edited:NoSchedule"
	atBirth := func(g Gate) *sim { return aNode(g).closed("cni") }
	reclosed := func(g Gate) *sim { return aNode(g).record("cni", "Closed", withAgain).taint(againTaint) }
	swapped := aGate("cni", tainting(againTaint), recloseTainting(cniTaint))
	birth, regression := "] cni:Closed>Closed(Birth)", "] cni:Closed>Closed(Regression)"
	check(t, map[string]spec{
		"taint edited, closed at birth":         {atBirth(twoTaints(tainting(edited))), "write [" + edited + birth},
		"recloseTaint edited, closed at birth":  {atBirth(aGate("cni", recloseTainting(edited))), "[" + cniTaint + birth},
		"taint edited, closed again":            {reclosed(twoTaints(tainting(edited))), "[" + againTaint + regression},
		"recloseTaint edited, closed again":     {reclosed(aGate("cni", recloseTainting(edited))), "write [" + edited + regression},
		"recloseTaint removed, closed again":    {reclosed(aGate("cni")), "write [" + cniTaint + regression},
		"recloseTaint removed, closed at birth": {atBirth(aGate("cni")), "[" + cniTaint + birth},
		"recloseTaint added, closed at birth":   {atBirth(twoTaints()), "[" + cniTaint + birth},
		"recloseTaint added, closed again": {aNode(twoTaints()).record("cni", "Closed", withAgain, func(r *Record) { r.Taint = cniTaint }).taint(cniTaint),
			"write [" + againTaint + regression},
		"taints swapped, closed at birth": {atBirth(swapped), "write [" + againTaint + birth},
		"taints swapped, closed again":    {reclosed(swapped), "write [" + cniTaint + regression},
		"recloseTaint's value edited":     {reclosed(aGate("cni", recloseTainting("cni.example/again=v:NoSchedule"))), "write [cni.example/again=v:NoSchedule" + regression},
		"recloseTaint's effect edited":    {reclosed(aGate("cni", recloseTainting("cni.example/again:NoExecute"))), "write [cni.example/again:NoExecute" + regression},
		"taint edited, open":              {aNode(twoTaints(tainting(edited))).open("cni"), "[] cni:Open>Open(Birth)"},
		"recloseTaint removed, open":      {aNode(aGate("cni")).open("cni").taint(againTaint), "[" + againTaint + "] cni:Open>Open(Birth)"},
	})
	d := reclosed(aGate("cni", recloseTainting("cni.example/again:NoExecute"))).decide()
	if added := d.Taints[0].TimeAdded; added == nil || !added.Time.Equal(epoch) {
		t.Errorf("a NoExecute taint is added at %v", added)
	}
}

// The gate owns both keys, whichever of them is on the node.
func TestBothTaintsAreTheGates(t *testing.T) {
	reclosed := func() *sim { return aNode(twoTaints()).record("cni", "Closed", withAgain).taint(againTaint) }
	regression := "] cni:Closed>Closed(Regression)"
	check(t, map[string]spec{
		"open, taint":                                 {aNode(twoTaints()).open("cni").taint(cniTaint), "write [] cni:Open>Open(Birth)"},
		"open, recloseTaint":                          {aNode(twoTaints()).open("cni").taint(againTaint), "write [] cni:Open>Open(Birth)"},
		"open, both":                                  {aNode(twoTaints()).open("cni").taint(againTaint, cniTaint), "write [] cni:Open>Open(Birth)"},
		"closed at birth, recloseTaint":               {aNode(twoTaints()).closed("cni").taint(againTaint), "write [" + cniTaint + "] cni:Closed>Closed(Birth)"},
		"closed again, taint":                         {reclosed().taint(cniTaint), "write [" + againTaint + regression},
		"closed again, recloseTaint removed":          {reclosed().untaint(againTaint), "write [" + againTaint + regression},
		"closed again, taint instead of recloseTaint": {reclosed().untaint(againTaint).taint(cniTaint), "write [" + againTaint + regression},
		"opens with both":                             {reclosed().taint(cniTaint).flag("cni", "holds"), "write [] cni:Closed>Open(SignalsHold)"},
		"closes with taint":                           {aNode(twoTaints()).open("cni").taint(cniTaint).boot("b"), "write [" + againTaint + "] cni:Open>Closed(Rebooted)"},
		"recloseTaint not allowed: neither is changed": {forbidding(reclosed().taint(cniTaint), "cni.example/again"),
			"[" + againTaint + " " + cniTaint + regression + " held"},
		"taint not allowed: neither is changed": {forbidding(reclosed().taint(cniTaint), "cni.example/not-ready"),
			"[" + againTaint + " " + cniTaint + regression + " held"},
		"the taint that is not on the node is not allowed: no change": {forbidding(aNode(twoTaints()).closed("cni").flag("cni", "holds"), "cni.example/again"),
			"[" + cniTaint + "] cni:Closed>Closed(Birth) held"},
		"not accepted for that reason: still opens": {forbidding(aNode(twoTaints(refused)).closed("cni").flag("cni", "holds"), "cni.example/again"),
			"write [] cni:Closed>Open(SignalsHold)"},
		"a closeWhen gate with the same taint": {aNode(twoTaints(), follower("z", tainting(againTaint))).open("cni").taint(againTaint),
			"write [] cni:Open>Open(Birth) z:Open>Open"},
		"the gate is deleted": {gatesGone(reclosed()), "write [] cni:Closed>-(GateDeleted)"},
		"another gate's taint is this gate's recloseTaint": {aNode(twoTaints(), aGate("z", tainting(againTaint))).open("cni").
			record("z", "Closed", func(r *Record) { r.Taint = againTaint }).taint(againTaint), "[" + againTaint + "] cni:Open>Open(Birth) z:Closed>Closed(Birth)"},
		"closed with different ones of two shared taints": {aNode(twoTaints(), aGate("z", tainting(cniTaint), again)).record("cni", "Closed", withAgain).
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

// A writer that adds one taint whenever the gate has the other is contended with like
// any other.
func TestContentionForTheOtherTaint(t *testing.T) {
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

// A deleted gate's record is taken over by a gate that has its taint in either role.
// The taint does not change.
func TestTakingOverWithTwoTaints(t *testing.T) {
	orphan := func(heir Gate, record func(*Record)) *sim {
		return aNode(heir).record("gone", "Closed", record)
	}
	birth := func(r *Record) { r.Taint = cniTaint }
	check(t, map[string]spec{
		"renamed, closed at birth": {orphan(twoTaints(), birth).taint(cniTaint), "write [" + cniTaint + "] cni:Closed>Closed(Birth) gone:->-(GateDeleted)"},
		"renamed, closed again":    {orphan(twoTaints(), withAgain).taint(againTaint), "write [" + againTaint + "] cni:Closed>Closed(Regression) gone:->-(GateDeleted)"},
		"its taint is the successor's recloseTaint": {orphan(aGate("cni", recloseTainting(cniTaint), tainting("cni.example/x:NoSchedule")), birth).taint(cniTaint),
			"write [" + cniTaint + "] cni:Closed>Closed(Birth) gone:->-(GateDeleted)"},
		"its recloseTaint is the successor's taint": {orphan(aGate("cni", tainting(againTaint), recloseTainting("cni.example/x:NoSchedule")), withAgain).taint(againTaint),
			"write [" + againTaint + "] cni:Closed>Closed(Regression) gone:->-(GateDeleted)"},
		"its recloseTaint is the successor's only taint": {orphan(aGate("cni", tainting(againTaint)), withAgain).taint(againTaint),
			"write [" + againTaint + "] cni:Closed>Closed(Regression) gone:->-(GateDeleted)"},
		"the successor has neither taint": {orphan(aGate("cni", tainting("cni.example/x:NoSchedule")), withAgain).taint(againTaint), "write [] cni:->- gone:Closed>-(GateDeleted)"},
	})
}

// Whether a pod tolerates the gate depends on the taint that was on the node.
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
		"the taint that is not on the node": {tolerating("cni.example/not-ready"), "write [] cni:Closed>-(NotIdle)"},
		"the taint on the node":             {tolerating("cni.example/again"), "write [" + againTaint + "] cni:Closed>Closed(Existing)"},
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

// Pods do not bypass a taint that does not keep pods off the node.
func TestNoPodBypassesPreferNoSchedule(t *testing.T) {
	s := aNode(aGate("cni", recloseTainting("cni.example/again:PreferNoSchedule"))).
		record("cni", "Closed", withAgain, func(r *Record) { r.Taint = "cni.example/again:PreferNoSchedule" }).
		taint("cni.example/again:PreferNoSchedule").flag("cni", "holds")
	c := s.run(t).Verdicts[0].Closure
	p := BoundPod{Bound: c.From.Add(time.Minute), Starts: []Start{{At: c.From.Add(time.Minute), Running: true}}}
	if c.Bypassed(&p) != Impossible {
		t.Error("bypassed")
	}
	if c.Taint.Effect = corev1.TaintEffectNoSchedule; c.Bypassed(&p) != Certain {
		t.Error("this pod must bypass a NoSchedule taint")
	}
}

// Records written at birth do not contain the role, because a policy writes them.
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
