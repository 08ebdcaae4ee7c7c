// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strings"
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func inDryRun(g *Gate) { g.Mode = v1alpha1.ModeDryRun }
func inPause(g *Gate)  { g.Mode = v1alpha1.ModePaused }

// shadow has a dry run remember a record of an hour ago.
func (s *sim) shadow(name, state string, change ...func(*Record)) *sim {
	with := aNode()
	with.now = s.now
	s.facts.Shadow = with.record(name, state, change...).facts.Node.Records
	return s
}

func TestDryRun(t *testing.T) {
	tried := aGate("cni", inDryRun)
	closes := follower("cni", inDryRun)
	gone := func(r *Record) { r.Taint = gone }
	check(t, map[string]spec{
		"a new node would be closed":              {aNode(tried).age(time.Second), "[] cni:->Closed(Birth) dry"},
		"or be a member at once":                  {aNode(tried).age(time.Second).flag("cni", "holds"), "[] cni:->Open(SignalsHold) dry"},
		"one that was there before would not":     {aNode(tried), "[] cni:->- dry"},
		"nor one that is not selected":            {aNode(aGate("cni", inDryRun, selecting("a=b"))).age(0), "[]"},
		"it would stay closed":                    {aNode(tried).shadow("cni", "Closed"), "[] cni:Closed>Closed(Birth) dry"},
		"it would open":                           {aNode(tried).shadow("cni", "Closed").flag("cni", "holds"), "[] cni:Closed>Open(SignalsHold) dry"},
		"it would not open on a silent node":      {aNode(tried).shadow("cni", "Closed").flag("cni", "holds").ready("Unknown"), "[] cni:Closed>Closed(Birth) dry blocked=NodeSilent"},
		"it would close for a reboot":             {aNode(tried).shadow("cni", "Open").boot("b"), "[] cni:Open>Closed(Rebooted) dry"},
		"it would let go":                         {aNode(aGate("cni", inDryRun, selecting("a=b"))).shadow("cni", "Closed"), "[] cni:Closed>-(NotSelected) dry"},
		"it would ask for budget":                 {aNode(aGate("cni", inDryRun, existing("Close"))), "[] cni:->- dry wants=Budget"},
		"and get it":                              {aNode(aGate("cni", inDryRun, existing("Close"))).granting("cni"), "[] cni:->Closed(Existing) dry"},
		"it would ask to see the pods":            {aNode(aGate("cni", inDryRun, existing("CloseIfIdle"))), "[] cni:->- dry wants=Pods"},
		"a refused gate would do nothing":         {aNode(aGate("cni", inDryRun, refused)).age(0), "[] cni:->- dry"},
		"its deadline would pass":                 {aNode(aGate("cni", inDryRun, func(g *Gate) { g.Deadline = Deadline{Ready: time.Minute} })).shadow("cni", "Closed"), "[] cni:Closed>Closed(Birth) dry overdue passed"},
		"its key need not be allowed":             {aNode(tried).age(0).allowing(), "[] cni:->Closed(Birth) dry"},
		"following, it would close":               {aNode(closes).flag("cni", "holds").granting("cni"), "[] cni:Open>Closed(SignalsHold) dry"},
		"and open":                                {aNode(closes).shadow("cni", "Closed"), "[] cni:Closed>Open(SignalsCleared) dry"},
		"reopened by hand, it would wait":         {aNode(follower("cni", inDryRun, byHand)).shadow("cni", "Closed"), "[] cni:Closed>Closed(Birth) dry blocked=ReopenedByHand"},
		"nothing is taken out of service":         {aNode(spot(inDryRun)).armed().silent(goneAfter), "[] spot:Open>Closed(SignalsHold) dry"},
		"and would be back when it speaks":        {aNode(spot(inDryRun)).armed().shadow("spot", "Closed", gone), "[] spot:Closed>Open(NodeReturned) dry"},
		"somebody's taint stays though it opens":  {aNode(tried).shadow("cni", "Closed").flag("cni", "holds").taint(cniTaint), "[" + cniTaint + "] cni:Closed>Open(SignalsHold) dry"},
		"and after that":                          {aNode(tried).shadow("cni", "Open").flag("cni", "holds").taint(cniTaint), "[" + cniTaint + "] cni:Open>Open(Birth) dry"},
		"and a follower's":                        {aNode(closes).taint(cniTaint), "[" + cniTaint + "] cni:->Open(SignalsCleared) dry"},
		"a node that carries it would be adopted": {aNode(tried).taint(cniTaint), "[" + cniTaint + "] cni:->Closed(Adopted) dry"},
		"another's fight is none of its":          {aNode(tried).shadow("cni", "Closed").taint("cni.example/not-ready=x:NoSchedule"), "[cni.example/not-ready=x:NoSchedule] cni:Closed>Closed(Birth) dry"},
		"a deleted gate's node would be its": {aNode(aGate("new", inDryRun, tainting(cniTaint))).closed("cni"),
			"write [] cni:Closed>-(GateDeleted) new:Closed>Closed(Birth) dry"},
		"one that acts takes it over": {aNode(aGate("a", inDryRun, tainting(cniTaint)), aGate("b", tainting(cniTaint))).closed("cni"),
			"write [" + cniTaint + "] a:Closed>Closed(Birth) dry b:Closed>Closed(Birth) cni:->-(GateDeleted)"},
	})
}

// Coming into a dry run, a gate opens what it held.
func TestEnteringDryRun(t *testing.T) {
	tried := aGate("cni", inDryRun)
	const key = "cni.example/not-ready"
	for name, c := range map[string]spec{
		"what it held is opened":    {aNode(tried).closed("cni").taint("a.example/x:NoSchedule"), "write [a.example/x:NoSchedule] cni:Closed>-(DryRun)"},
		"what it had opened":        {aNode(tried).open("cni"), "write [] cni:Open>-(DryRun)"},
		"somebody's taint stays":    {aNode(tried).open("cni").taint(cniTaint), "write [" + cniTaint + "] cni:Open>-(DryRun)"},
		"whoever it selects":        {aNode(aGate("cni", inDryRun, selecting("a=b"))).closed("cni"), "write [] cni:Closed>-(DryRun)"},
		"even if that is not known": {aNode(aGate("cni", inDryRun, broken, refused)).closed("cni"), "write [] cni:Closed>-(DryRun)"},
		"whatever its taint is now": {aNode(aGate("cni", inDryRun, tainting("new.example/x:NoExecute"))).closed("cni"), "write [] cni:Closed>-(DryRun)"},
		"a follower too":            {aNode(follower("cni", inDryRun, byHand)).closed("cni").flag("cni", "holds"), "write [] cni:Closed>-(DryRun)"},
		"out of service too":        {aNode(spot(inDryRun)).outOfService().armed().silent(time.Hour), "write [] spot:Closed>-(DryRun)"},
		"another gate needs it":     {aNode(tried, aGate("b", tainting(cniTaint))).closed("cni").record("b", "Closed", taintedBy(cniTaint)), "write [" + cniTaint + "] b:Closed>Closed(Birth) cni:Closed>-(DryRun)"},
		"a paused one needs it":     {aNode(tried, aGate("b", inPause, tainting(cniTaint))).closed("cni").record("b", "Closed", taintedBy(cniTaint)), "write [" + cniTaint + "] b:Closed>Closed(Birth) blocked=Paused cni:Closed>-(DryRun)"},
		"one that is open does not": {aNode(tried, aGate("b", tainting(cniTaint))).closed("cni").record("b", "Open"), "write [] b:Open>Open(Birth) cni:Closed>-(DryRun)"},
		"one in dry run does not":   {aNode(tried, aGate("b", inDryRun, tainting(cniTaint))).closed("cni").shadow("b", "Closed", taintedBy(cniTaint)), "write [] b:Closed>Closed(Birth) dry cni:Closed>-(DryRun)"},
		"its key is not allowed":    {aNode(tried).closed("cni").allowing(), "[" + cniTaint + "] cni:Closed>Closed(Birth) held"},
		"its key of before is":      {aNode(aGate("cni", inDryRun, tainting("new.example/x:NoSchedule"))).closed("cni").allowing(key), "write [] cni:Closed>-(DryRun)"},
		"a damaged record goes":     {aNode(tried).raw("cni", "x"), "write [] cni:Open>-(DryRun)"},
	} {
		t.Run(name, func(t *testing.T) {
			d := c.node.decide()
			if got := show(d); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
			c.node.apply(d)
			if again := c.node.decide(); again.Changes {
				t.Errorf("and then %s", show(again))
			}
		})
	}
}

func taintedBy(text string) func(*Record) { return func(r *Record) { r.Taint = text } }

// The dry run goes on where the gate stood, and says so at once. Switched back,
// the gate meets the node anew.
func TestThroughDryRunAndBack(t *testing.T) {
	s := aNode(aGate("cni")).age(time.Hour).closed("cni")
	told := func(want string) {
		t.Helper()
		d := s.decide()
		if got := show(d); got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
		if moves := s.steps(d); moves != d.Recheck.Equal(s.now) {
			t.Errorf("goes a step: %t, recheck %s, now %s", moves, d.Recheck, s.now)
		}
		s.apply(d)
	}
	told("[" + cniTaint + "] cni:Closed>Closed(Birth)")
	s.gates[0].Mode = v1alpha1.ModeDryRun
	told("write [] cni:Closed>-(DryRun)")
	told("[] cni:Closed>Closed(Birth) dry")
	s.flag("cni", "holds").after(time.Minute)
	told("[] cni:Closed>Open(SignalsHold) dry")
	told("[] cni:Open>Open(SignalsHold) dry")
	s.gates[0].Mode = v1alpha1.ModeEnforce
	told("[] cni:->-") // existing, and so ignored
	s.gates[0].Mode = v1alpha1.ModeDryRun
	told("[] cni:->- dry")
}

// Nobody undoes what is not there: whatever value another writer gives the taint.
func TestDryRunFightsNobody(t *testing.T) {
	const theirs = "cni.example/not-ready=x:NoSchedule"
	s := aNode(aGate("cni", inDryRun)).shadow("cni", "Closed").taint(theirs)
	for range 3 {
		if got, want := show(s.run(t)), "["+theirs+"] cni:Closed>Closed(Birth) dry"; got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	}
}

// An opening in a dry run has the patch of other gates rest on no boot.
func TestDryRunGuardsNoWrite(t *testing.T) {
	d := aNode(aGate("a", inDryRun), aGate("b")).age(time.Second).flag("a", "holds").run(t)
	if got, want := show(d), "write [b.example/not-ready:NoSchedule] a:->Open(SignalsHold) dry b:->Closed(Birth)"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if d.Opens() || len(d.Records) != 1 {
		t.Errorf("opens: %t, records %v", d.Opens(), d.Records)
	}
}

func TestPaused(t *testing.T) {
	paused := aGate("cni", inPause)
	b := func(options ...func(*Gate)) Gate { return aGate("b", append(options, tainting(cniTaint))...) }
	shared := func() *sim { return aNode(paused, b()).closed("cni").record("b", "Closed", taintedBy(cniTaint)) }
	longAgo := func(r *Record) { r.Overdue = true }
	check(t, map[string]spec{
		"a new node is not closed":             {aNode(paused).age(time.Second), "[] cni:->-"},
		"nor one that carries its taint":       {aNode(paused).taint(cniTaint), "[" + cniTaint + "] cni:->-"},
		"held stays held":                      {aNode(paused).closed("cni").flag("cni", "holds"), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=Paused"},
		"overdue stays overdue":                {aNode(paused).record("cni", "Closed", longAgo).taint(cniTaint), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=Paused overdue"},
		"open stays open":                      {aNode(aGate("cni", inPause, reclosing(onRegression))).open("cni").boot("b").granting("cni"), "[] cni:Open>Open(Birth)"},
		"silence closes nothing":               {aNode(paused).open("cni").ready("Unknown"), "[] cni:Open>Open(Birth)"},
		"an undone taint is not put back":      {aNode(paused).record("cni", "Closed"), "[] cni:Closed>Closed(Birth) blocked=Paused"},
		"nor is one taken away":                {aNode(paused).open("cni").taint(cniTaint), "[" + cniTaint + "] cni:Open>Open(Birth)"},
		"a node that leaves":                   {aNode(aGate("cni", inPause, selecting("a=b"))).closed("cni"), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=Paused"},
		"an edited taint waits":                {aNode(aGate("cni", inPause, tainting("new.example/x:NoExecute"))).closed("cni"), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=Paused"},
		"a refused gate":                       {aNode(aGate("cni", inPause, refused)).closed("cni").flag("cni", "holds"), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=Paused"},
		"a damaged record is left":             {aNode(paused).raw("cni", "x"), "[] cni:Open>Open(Adopted)"},
		"a follower does not close":            {aNode(follower("cni", inPause)).flag("cni", "holds").granting("cni"), "[] cni:Open>Open"},
		"nor open":                             {aNode(follower("cni", inPause)).closed("cni"), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=Paused"},
		"nor does a hand open it":              {aNode(follower("cni", inPause, byHand)).record("cni", "Closed"), "[] cni:Closed>Closed(Birth) blocked=Paused"},
		"nor adopt":                            {aNode(follower("cni", inPause)).flag("cni", "holds").taint(cniTaint), "[" + cniTaint + "] cni:Open>Open"},
		"but a node that speaks is in service": {aNode(spot(inPause)).outOfService().armed(), "write [] spot:Closed>-(NodeReturned)"},
		"nothing goes out of service":          {aNode(spot(inPause)).armed().silent(time.Hour), "[] spot:Open>Open"},
		"deleted, it opens":                    {aNode().closed("cni"), "write [] cni:Closed>-(GateDeleted)"},
		"it inherits nothing":                  {aNode(b(inPause)).closed("cni"), "write [] b:->- cni:Closed>-(GateDeleted)"},
		"its key is not allowed any more":      {aNode(paused).closed("cni").allowing(), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=Paused"},
		"others open without the taint":        {shared().flag("b", "holds"), "write [" + cniTaint + "] b:Closed>Open(SignalsHold) cni:Closed>Closed(Birth) blocked=Paused"},
		"and leave it":                         {aNode(paused, b()).closed("cni").record("b", "Open").flag("b", "holds"), "[" + cniTaint + "] b:Open>Open(Birth) cni:Closed>Closed(Birth) blocked=Paused"},
		"others put it back":                   {shared().untaint(cniTaint), "write [" + cniTaint + "] b:Closed>Closed(Birth) cni:Closed>Closed(Birth) blocked=Paused"},
		"others close beside an open one":      {aNode(paused, b()).open("cni").age(time.Second).record("cni", "Open", func(r *Record) { r.Since = time.Time{} }), "write [" + cniTaint + "] b:->Closed(Birth) cni:Open>Open(Birth)"},
		"others lift what it would not":        {aNode(paused, follower("b", tainting(cniTaint))).open("cni").taint(cniTaint), "write [] b:->Open(SignalsCleared) cni:Open>Open(Birth)"},
	})
}

// A paused gate goes on where it stood, as after an outage of the controller.
func TestResuming(t *testing.T) {
	s := aNode(aGate("cni", inPause, reclosing(onReboot))).open("cni").flag("cni", "holds")
	s.run(t)
	s.boot("b").flag("cni", "no").after(time.Hour).run(t)
	s.gates[0].Mode = v1alpha1.ModeEnforce
	if got := show(s.run(t)); got != "write ["+cniTaint+"] cni:Open>Closed(Rebooted)" {
		t.Error(got)
	}
	s.gates[0].Mode = v1alpha1.ModePaused
	s.flag("cni", "holds").after(time.Hour).run(t)
	s.gates[0].Mode = v1alpha1.ModeEnforce
	if got := show(s.run(t)); got != "write [] cni:Closed>Open(SignalsHold)" {
		t.Error(got)
	}
}

// While a gate is paused its deadline's clock goes on, and nobody hears of it.
func TestDeadlinePassesInAPause(t *testing.T) {
	g := aGate("cni", inPause)
	g.Deadline = Deadline{Ready: 2 * time.Hour}
	s := aNode(g).closed("cni").after(3 * time.Hour)
	if got := show(s.run(t)); strings.Contains(got, "passed") {
		t.Error(got)
	}
	s.gates[0].Mode = v1alpha1.ModeEnforce
	if got := show(s.run(t)); !strings.HasSuffix(got, "overdue passed") {
		t.Error(got)
	}
}

func TestDryRunsBirth(t *testing.T) {
	for mode, want := range map[v1alpha1.Mode]string{v1alpha1.ModeDryRun: "[]", v1alpha1.ModePaused: "[]", v1alpha1.ModeEnforce: "[" + cniTaint + "]", "": "[" + cniTaint + "]"} {
		d := Birth([]Gate{aGate("cni", func(g *Gate) { g.Mode = mode })}, Node{Name: "n"})
		if got := taintTexts(d.Taints); got != want || d.Changes != (want != "[]") {
			t.Errorf("mode %q: %s %v", mode, got, d.Records)
		}
	}
}
