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

// shadow provides the shadow of a dry run, with a record that is an hour old.
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
		"a new node would be closed":                                     {aNode(tried).age(time.Second), "[] cni:->Closed(Birth) dry"},
		"a new node would become a member, open":                         {aNode(tried).age(time.Second).flag("cni", "holds"), "[] cni:->Open(SignalsHold) dry"},
		"an existing node would not become a member":                     {aNode(tried), "[] cni:->- dry"},
		"a node that is not selected":                                    {aNode(aGate("cni", inDryRun, selecting("a=b"))).age(0), "[]"},
		"it would stay closed":                                           {aNode(tried).shadow("cni", "Closed"), "[] cni:Closed>Closed(Birth) dry"},
		"it would open":                                                  {aNode(tried).shadow("cni", "Closed").flag("cni", "holds"), "[] cni:Closed>Open(SignalsHold) dry"},
		"it would not open on an unreachable node":                       {aNode(tried).shadow("cni", "Closed").flag("cni", "holds").ready("Unknown"), "[] cni:Closed>Closed(Birth) dry blocked=NodeSilent"},
		"it would close for a reboot":                                    {aNode(tried).shadow("cni", "Open").boot("b"), "[] cni:Open>Closed(Rebooted) dry"},
		"it would open because it is no longer selected":                 {aNode(aGate("cni", inDryRun, selecting("a=b"))).shadow("cni", "Closed").left("cni"), "[] cni:Closed>-(NotSelected) dry"},
		"it would request budget":                                        {aNode(aGate("cni", inDryRun, existing("Close"))), "[] cni:->- dry wants=Budget"},
		"it would be granted budget":                                     {aNode(aGate("cni", inDryRun, existing("Close"))).granting("cni"), "[] cni:->Closed(Existing) dry"},
		"it would request the pods":                                      {aNode(aGate("cni", inDryRun, existing("CloseIfIdle"))), "[] cni:->- dry wants=Pods"},
		"a gate that is not accepted would do nothing":                   {aNode(aGate("cni", inDryRun, refused)).age(0), "[] cni:->- dry"},
		"its deadline would pass":                                        {aNode(aGate("cni", inDryRun, func(g *Gate) { g.Deadline = Deadline{Ready: time.Minute} })).shadow("cni", "Closed"), "[] cni:Closed>Closed(Birth) dry overdue passed"},
		"its key need not be allowed":                                    {aNode(tried).age(0).allowing(), "[] cni:->Closed(Birth) dry"},
		"closeWhen: it would close":                                      {aNode(closes).flag("cni", "holds").granting("cni"), "[] cni:Open>Closed(SignalsHold) dry"},
		"closeWhen: it would open":                                       {aNode(closes).shadow("cni", "Closed"), "[] cni:Closed>Open(SignalsCleared) dry"},
		"reopen Manual: it would stay closed":                            {aNode(follower("cni", inDryRun, manual)).shadow("cni", "Closed"), "[] cni:Closed>Closed(Birth) dry blocked=ReopenedByHand"},
		"out of service: the node is not changed":                        {aNode(spot(inDryRun)).armed().silent(goneAfter), "[] spot:Open>Closed(SignalsHold) dry"},
		"out of service: it would open when the node is reporting again": {aNode(spot(inDryRun)).armed().shadow("spot", "Closed", gone), "[] spot:Closed>Open(NodeReturned) dry"},
		"it would open: another writer's taint stays":                    {aNode(tried).shadow("cni", "Closed").flag("cni", "holds").taint(cniTaint), "[" + cniTaint + "] cni:Closed>Open(SignalsHold) dry"},
		"it would be open: another writer's taint stays":                 {aNode(tried).shadow("cni", "Open").flag("cni", "holds").taint(cniTaint), "[" + cniTaint + "] cni:Open>Open(Birth) dry"},
		"closeWhen: another writer's taint stays":                        {aNode(closes).taint(cniTaint), "[" + cniTaint + "] cni:->Open(SignalsCleared) dry"},
		"a node that carries it would be adopted":                        {aNode(tried).taint(cniTaint), "[" + cniTaint + "] cni:->Closed(Adopted) dry"},
		"another writer's value stays":                                   {aNode(tried).shadow("cni", "Closed").taint("cni.example/not-ready=x:NoSchedule"), "[cni.example/not-ready=x:NoSchedule] cni:Closed>Closed(Birth) dry"},
		"it would take over a deleted gate's record": {aNode(aGate("new", inDryRun, tainting(cniTaint))).closed("cni"),
			"write [] cni:Closed>-(GateDeleted) new:Closed>Closed(Birth) dry"},
		"a gate that acts takes the record over instead": {aNode(aGate("a", inDryRun, tainting(cniTaint)), aGate("b", tainting(cniTaint))).closed("cni"),
			"write [" + cniTaint + "] a:Closed>Closed(Birth) dry b:Closed>Closed(Birth) cni:->-(GateDeleted)"},
	})
}

// A gate that enters dry run opens what it held.
func TestEnteringDryRun(t *testing.T) {
	tried := aGate("cni", inDryRun)
	const key = "cni.example/not-ready"
	for name, c := range map[string]spec{
		"a closed node is opened":                  {aNode(tried).closed("cni").taint("a.example/x:NoSchedule"), "write [a.example/x:NoSchedule] cni:Closed>-(DryRun)"},
		"an open node":                             {aNode(tried).open("cni"), "write [] cni:Open>-(DryRun)"},
		"another writer's taint stays":             {aNode(tried).open("cni").taint(cniTaint), "write [" + cniTaint + "] cni:Open>-(DryRun)"},
		"even if it no longer selects the node":    {aNode(aGate("cni", inDryRun, selecting("a=b"))).closed("cni"), "write [] cni:Closed>-(DryRun)"},
		"even if its selector is unknown":          {aNode(aGate("cni", inDryRun, broken, refused)).closed("cni"), "write [] cni:Closed>-(DryRun)"},
		"even if its taint was edited":             {aNode(aGate("cni", inDryRun, tainting("new.example/x:NoExecute"))).closed("cni"), "write [] cni:Closed>-(DryRun)"},
		"closeWhen":                                {aNode(follower("cni", inDryRun, manual)).closed("cni").flag("cni", "holds"), "write [] cni:Closed>-(DryRun)"},
		"out of service":                           {aNode(spot(inDryRun)).outOfService().armed().silent(time.Hour), "write [] spot:Closed>-(DryRun)"},
		"another gate needs it":                    {aNode(tried, aGate("b", tainting(cniTaint))).closed("cni").record("b", "Closed", taintedBy(cniTaint)), "write [" + cniTaint + "] b:Closed>Closed(Birth) cni:Closed>-(DryRun)"},
		"a paused one needs it":                    {aNode(tried, aGate("b", inPause, tainting(cniTaint))).closed("cni").record("b", "Closed", taintedBy(cniTaint)), "write [" + cniTaint + "] b:Closed>Closed(Birth) blocked=Paused cni:Closed>-(DryRun)"},
		"an open gate does not need it":            {aNode(tried, aGate("b", tainting(cniTaint))).closed("cni").record("b", "Open"), "write [] b:Open>Open(Birth) cni:Closed>-(DryRun)"},
		"another gate in dry run does not need it": {aNode(tried, aGate("b", inDryRun, tainting(cniTaint))).closed("cni").shadow("b", "Closed", taintedBy(cniTaint)), "write [] b:Closed>Closed(Birth) dry cni:Closed>-(DryRun)"},
		"its key is not allowed":                   {aNode(tried).closed("cni").allowing(), "[" + cniTaint + "] cni:Closed>Closed(Birth) held"},
		"only its previous key is allowed":         {aNode(aGate("cni", inDryRun, tainting("new.example/x:NoSchedule"))).closed("cni").allowing(key), "write [] cni:Closed>-(DryRun)"},
		"a damaged record is removed":              {aNode(tried).raw("cni", "x"), "write [] cni:Open>-(DryRun)"},
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

// The dry run starts from the gate's state. When the gate returns to Enforce, the node
// is new to it.
func TestThroughDryRunAndBack(t *testing.T) {
	s := aNode(aGate("cni")).age(time.Hour).closed("cni")
	expect := func(want string) {
		t.Helper()
		d := s.decide()
		if got := show(d); got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
		if moves := s.steps(d); moves != d.Again {
			t.Errorf("changes its shadow: %t, is repeated: %t", moves, d.Again)
		}
		s.apply(d)
	}
	expect("[" + cniTaint + "] cni:Closed>Closed(Birth)")
	s.gates[0].Mode = v1alpha1.ModeDryRun
	expect("write [] cni:Closed>-(DryRun)")
	expect("[] cni:Closed>Closed(Birth) dry")
	s.flag("cni", "holds").after(time.Minute)
	expect("[] cni:Closed>Open(SignalsHold) dry")
	expect("[] cni:Open>Open(SignalsHold) dry")
	s.gates[0].Mode = v1alpha1.ModeEnforce
	expect("[] cni:->-") // existingNodes is Ignore
	s.gates[0].Mode = v1alpha1.ModeDryRun
	expect("[] cni:->- dry")
}

// A taint that is not there cannot be contended, whatever value another writer sets.
func TestDryRunIsNotContended(t *testing.T) {
	const theirs = "cni.example/not-ready=x:NoSchedule"
	s := aNode(aGate("cni", inDryRun)).shadow("cni", "Closed").taint(theirs)
	for range 3 {
		if got, want := show(s.run(t)), "["+theirs+"] cni:Closed>Closed(Birth) dry"; got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	}
}

// In a dry run, a taint that an open gate shares with a closed gate that acts stays on the
// node.
func TestDryRunKeepsSharedTaint(t *testing.T) {
	acting, tried := aGate("cni"), aGate("d", inDryRun, tainting(cniTaint))
	reader := follower("e", inDryRun, waitingFor(whileTaint{cniTaint, true}))
	check(t, map[string]spec{
		"another gate has closed with it": {aNode(acting, tried, reader).closed("cni").shadow("d", "Open").granting("e"),
			"[" + cniTaint + "] cni:Closed>Closed(Birth) d:Open>Open(Birth) dry e:Open>Closed(SignalsHold) dry"},
		"the other gate is open": {aNode(acting, tried, reader).open("cni").flag("cni", "holds").shadow("d", "Open").granting("e"),
			"[] cni:Open>Open(Birth) d:Open>Open(Birth) dry e:Open>Open dry"},
		"another program has added it": {aNode(tried, reader).taint(cniTaint).shadow("d", "Open").granting("e"),
			"[" + cniTaint + "] d:Open>Open(Birth) dry e:Open>Open dry"},
	})
}

// A gate that acts restores a taint that it shares, also for another gate that does not
// select the node at the moment. A dry run restores nothing, so a user can open that gate.
func TestDryRunRestoresNoSharedTaint(t *testing.T) {
	hand := follower("hand", manual, selecting("pool=gpu"), tainting(cniTaint))
	for name, c := range map[string]struct {
		node *sim
		want string
	}{
		"it acts": {aNode(aGate("cni"), hand).record("cni", "Closed"),
			"[" + cniTaint + "] cni:Closed>Closed(Birth) hand:Closed>Closed(Birth)"},
		"dry run": {aNode(aGate("cni", inDryRun), hand).shadow("cni", "Closed"),
			"write [] cni:Closed>Closed(Birth) dry hand:Closed>Open(OpenedByHand)"},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.node.record("hand", "Closed", taintedBy(cniTaint)).taint(cniTaint).label("pool", "cpu").flag("hand", "holds")
			s.run(t)
			s.untaint(cniTaint).run(t)
			if got := show(s.after(LeavesAfter/2).label("pool", "gpu").run(t)); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}

// An opening in a dry run does not make the patch of other gates depend on the boot.
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
		"a new node is not closed":                               {aNode(paused).age(time.Second), "[] cni:->-"},
		"a new node that carries its taint is not adopted":       {aNode(paused).taint(cniTaint), "[" + cniTaint + "] cni:->-"},
		"closed stays closed":                                    {aNode(paused).closed("cni").flag("cni", "holds"), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=Paused"},
		"overdue stays overdue":                                  {aNode(paused).record("cni", "Closed", longAgo).taint(cniTaint), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=Paused overdue"},
		"open stays open":                                        {aNode(aGate("cni", inPause, reclosing(onRegression))).open("cni").boot("b").granting("cni"), "[] cni:Open>Open(Birth)"},
		"unreachability does not close it":                       {aNode(paused).open("cni").ready("Unknown"), "[] cni:Open>Open(Birth)"},
		"a removed taint is not restored":                        {aNode(paused).record("cni", "Closed"), "[] cni:Closed>Closed(Birth) blocked=Paused"},
		"an added taint is not removed":                          {aNode(paused).open("cni").taint(cniTaint), "[" + cniTaint + "] cni:Open>Open(Birth)"},
		"a node that is no longer selected":                      {aNode(aGate("cni", inPause, selecting("a=b"))).closed("cni"), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=Paused"},
		"an edited taint waits":                                  {aNode(aGate("cni", inPause, tainting("new.example/x:NoExecute"))).closed("cni"), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=Paused"},
		"a gate that is not accepted":                            {aNode(aGate("cni", inPause, refused)).closed("cni").flag("cni", "holds"), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=Paused"},
		"a damaged record is kept":                               {aNode(paused).raw("cni", "x"), "[] cni:Open>Open(Adopted)"},
		"closeWhen: does not close":                              {aNode(follower("cni", inPause)).flag("cni", "holds").granting("cni"), "[] cni:Open>Open"},
		"closeWhen: does not open":                               {aNode(follower("cni", inPause)).closed("cni"), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=Paused"},
		"closeWhen: a user cannot open it":                       {aNode(follower("cni", inPause, manual)).record("cni", "Closed"), "[] cni:Closed>Closed(Birth) blocked=Paused"},
		"closeWhen: does not adopt a taint":                      {aNode(follower("cni", inPause)).flag("cni", "holds").taint(cniTaint), "[" + cniTaint + "] cni:Open>Open"},
		"out of service: a reporting node is opened":             {aNode(spot(inPause)).outOfService().armed(), "write [] spot:Closed>-(NodeReturned)"},
		"out of service: does not close":                         {aNode(spot(inPause)).armed().silent(time.Hour), "[] spot:Open>Open"},
		"deleted: opens":                                         {aNode().closed("cni"), "write [] cni:Closed>-(GateDeleted)"},
		"does not take over a record":                            {aNode(b(inPause)).closed("cni"), "write [] b:->- cni:Closed>-(GateDeleted)"},
		"its key is no longer allowed":                           {aNode(paused).closed("cni").allowing(), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=Paused"},
		"another gate opens: the shared taint stays":             {shared().flag("b", "holds"), "write [" + cniTaint + "] b:Closed>Open(SignalsHold) cni:Closed>Closed(Birth) blocked=Paused"},
		"another gate is open: the shared taint stays":           {aNode(paused, b()).closed("cni").record("b", "Open").flag("b", "holds"), "[" + cniTaint + "] b:Open>Open(Birth) cni:Closed>Closed(Birth) blocked=Paused"},
		"another gate restores the shared taint":                 {shared().untaint(cniTaint), "write [" + cniTaint + "] b:Closed>Closed(Birth) cni:Closed>Closed(Birth) blocked=Paused"},
		"another gate closes with the shared taint":              {aNode(paused, b()).open("cni").age(time.Second).record("cni", "Open", func(r *Record) { r.Since = time.Time{} }), "write [" + cniTaint + "] b:->Closed(Birth) cni:Open>Open(Birth)"},
		"overridden closed stays closed":                         {overriddenClosed(paused).override("cni", "Closed", time.Hour), "[" + cniTaint + "] cni:Closed>Closed(Overridden) blocked=Paused override=Closed/Open ignored:cni"},
		"overridden closed, its override is gone":                {overriddenClosed(paused), "[" + cniTaint + "] cni:Closed>Closed(Overridden) blocked=Paused override=Closed/Open"},
		"overridden closed, not a member":                        {aNode(paused).raw("cni", nonMemberRecord).taint(cniTaint), "[" + cniTaint + "] cni:Closed>Closed(Overridden) blocked=Paused override=Closed/-"},
		"overridden closed, closeWhen":                           {aNode(follower("cni", inPause)).raw("cni", nonMemberRecord).taint(cniTaint), "[" + cniTaint + "] cni:Closed>Closed(Overridden) blocked=Paused override=Closed/Open"},
		"overridden open stays open":                             {overriddenOpen(paused), "[] cni:Open>Open(Overridden) override=Open/Closed"},
		"another gate removes a taint that no gate accounts for": {aNode(paused, follower("b", tainting(cniTaint))).open("cni").taint(cniTaint), "write [] b:->Open(SignalsCleared) cni:Open>Open(Birth)"},
	})
}

// A paused gate resumes from its state, as after an outage of the controller.
func TestResuming(t *testing.T) {
	s := aNode(aGate("cni", inPause, reclosing(onReboot))).open("cni").flag("cni", "holds")
	s.run(t)
	s.boot("b").flag("cni", "no").after(time.Hour).run(t)
	s.gates[0].Mode = v1alpha1.ModeEnforce
	if got := show(s.granting("cni").run(t)); got != "write ["+cniTaint+"] cni:Open>Closed(RebootedUnobserved)" {
		t.Error(got)
	}
	s.gates[0].Mode = v1alpha1.ModePaused
	s.flag("cni", "holds").after(time.Hour).run(t)
	s.gates[0].Mode = v1alpha1.ModeEnforce
	if got := show(s.run(t)); got != "write [] cni:Closed>Open(SignalsHold)" {
		t.Error(got)
	}
}

// The deadline's clock runs while a gate is paused, but it is not reported that the
// deadline has passed.
func TestDeadlinePassesWhilePaused(t *testing.T) {
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
