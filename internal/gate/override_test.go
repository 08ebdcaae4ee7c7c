// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strings"
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// masked is the record of a gate that a person had in the other state for half an
// hour.
func masked(state string) func(*Record) {
	return func(r *Record) { r.Override, r.OverrideSince = state, epoch.Add(-30*time.Minute) }
}

// openByHand is a node on which the gate is closed, and has been opened by hand.
func openByHand(gates ...Gate) *sim {
	return aNode(gates...).record("cni", v1alpha1.StateClosed, masked(v1alpha1.StateOpen))
}

// closedByHand is the opposite.
func closedByHand(gates ...Gate) *sim {
	return aNode(gates...).record("cni", v1alpha1.StateOpen, masked(v1alpha1.StateClosed)).taint(cniTaint)
}

func TestOverrideOpens(t *testing.T) {
	cni, bad := aGate("cni"), follower("cni")
	check(t, map[string]spec{
		"a closed gate":                  {aNode(cni).closed("cni").override("cni", "Open", time.Hour), "write [] cni:Closed>Open(Overridden) override=Open/Closed"},
		"of a new node":                  {aNode(cni).age(time.Second).override("cni", "Open", time.Hour), "write [] cni:->Open(Overridden) override=Open/Closed"},
		"of a silent node":               {aNode(cni).closed("cni").ready("Unknown").override("cni", "Open", time.Hour), "write [] cni:Closed>Open(Overridden) blocked=NodeSilent override=Open/Closed"},
		"of one that is set up":          {aNode(cni).closed("cni").taint("karpenter.sh/unregistered:NoExecute").override("cni", "Open", time.Hour), "write [karpenter.sh/unregistered:NoExecute] cni:Closed>Open(Overridden) blocked=NodeSetup override=Open/Closed"},
		"of a gate that is not accepted": {aNode(aGate("cni", refused)).closed("cni").override("cni", "Open", time.Hour), "write [] cni:Closed>Open(Overridden) override=Open/Closed"},
		"of a closeWhen gate":            {aNode(bad).closed("cni").flag("cni", "holds").override("cni", "Open", time.Hour), "write [] cni:Closed>Open(Overridden) override=Open/Closed"},
		"that is reopened by hand":       {aNode(follower("cni", byHand)).closed("cni").flag("cni", "holds").override("cni", "Open", time.Hour), "write [] cni:Closed>Open(Overridden) override=Open/Closed"},
		"what is out of service":         {aNode(spot()).armed().outOfService().silent(time.Hour).override("spot", "Open", time.Hour), "write [] spot:Closed>Open(Overridden) override=Open/Closed"},
		"and it stays so":                {aNode(spot()).armed().record("spot", "Closed", masked("Open"), spotTaint).silent(time.Hour).override("spot", "Open", time.Hour), "[] spot:Open>Open(Overridden) override=Open/Closed"},
		"it ends: as if never closed":    {aNode(spot()).armed().record("spot", "Closed", masked("Open"), spotTaint).silent(time.Hour), "write [" + gone + "] spot:Open>Closed(OverrideEnded) override=-/Closed"},
		"so it takes budget":             {aNode(spot()).flag("spot", "holds").record("spot", "Closed", masked("Open"), spotTaint).silent(time.Hour), "write [] spot:Open>Open(SignalsCleared) override=-/Open wants=Budget"},
		"and silence":                    {aNode(spot()).armed().record("spot", "Closed", masked("Open"), spotTaint).silent(time.Second), "write [] spot:Open>Open(SignalsCleared) override=-/Open"},

		"stays open":                    {openByHand(cni).override("cni", "Open", time.Hour), "[] cni:Open>Open(Overridden) override=Open/Closed"},
		"over a reboot":                 {openByHand(cni).boot("b").override("cni", "Open", time.Hour), "write [] cni:Open>Open(Overridden) override=Open/Closed"},
		"reopened by hand: it waits on": {openByHand(follower("cni", byHand)).override("cni", "Open", time.Hour), "[] cni:Open>Open(Overridden) blocked=ReopenedByHand override=Open/Closed"},
		"a foreign writer's taint goes": {openByHand(cni).taint(cniTaint).override("cni", "Open", time.Hour), "write [] cni:Open>Open(Overridden) override=Open/Closed"},
		"what opens by itself":          {openByHand(cni).flag("cni", "holds").override("cni", "Open", time.Hour), "write [] cni:Open>Open(SignalsHold) override=Open/Open"},
		"open anyway":                   {aNode(cni).open("cni").override("cni", "Open", time.Hour), "[] cni:Open>Open(Birth) override=Open/Open"},
		"no member anyway":              {aNode(cni).override("cni", "Open", time.Hour), "[] cni:->- override=Open/-"},
		"a member that would close":     {aNode(cni).open("cni").boot("b").override("cni", "Open", time.Hour), "write [] cni:Open>Open(Overridden) override=Open/Closed"},

		"ends: closes again":            {openByHand(cni), "write [" + cniTaint + "] cni:Open>Closed(OverrideEnded) override=-/Closed"},
		"ends, and it is fit":           {openByHand(cni).flag("cni", "holds"), "write [] cni:Open>Open(SignalsHold) override=-/Open"},
		"ends by itself":                {openByHand(cni).override("cni", "Open", 0), "write [" + cniTaint + "] cni:Open>Closed(OverrideEnded) override=-/Closed withdrawn:cni"},
		"ends by itself, without trace": {aNode(cni).open("cni").override("cni", "Open", -time.Hour), "write [] cni:Open>Open(Birth) withdrawn:cni"},
		"ends, closeWhen":               {openByHand(bad).flag("cni", "holds"), "write [" + cniTaint + "] cni:Open>Closed(OverrideEnded) override=-/Closed"},
		"ends, closeWhen, and cleared":  {openByHand(bad), "write [] cni:Open>Open(SignalsCleared) override=-/Open"},
		"ends, reopened by hand":        {openByHand(follower("cni", byHand)), "write [" + cniTaint + "] cni:Open>Closed(OverrideEnded) blocked=ReopenedByHand override=-/Closed"},
		"turns to closed":               {openByHand(cni).override("cni", "Closed", time.Hour), "write [" + cniTaint + "] cni:Open>Closed(OverrideEnded) blocked=Overridden override=Closed/Closed"},

		"what was fought over": {aNode(cni).record("cni", "Closed", foughtOver).override("cni", "Open", time.Hour), "write [] cni:Closed>Open(Overridden) override=Open/Closed"},

		"the gate is deleted":           {openByHand().override("cni", "Open", time.Hour), "write [] cni:Open>-(GateDeleted) ignored:cni"},
		"the gate is invisible":         {openByHand().invisible().override("cni", "Open", time.Hour), "[] cni:Open>Open(Birth) held ignored:cni"},
		"the node leaves":               {openByHand(aGate("cni", selecting("a=b"))).override("cni", "Open", time.Hour), "write [] cni:Open>-(NotSelected) ignored:cni"},
		"the gate is edited":            {openByHand(aGate("cni", tainting("new.example/x:NoSchedule"))).override("cni", "Open", time.Hour), "write [] cni:Open>Open(Overridden) override=Open/Closed"},
		"the gate is edited as it ends": {openByHand(aGate("cni", tainting("new.example/x:NoSchedule"))), "write [new.example/x:NoSchedule] cni:Open>Closed(OverrideEnded) override=-/Closed"},
	})
}

func TestOverrideCloses(t *testing.T) {
	cni, bad := aGate("cni"), follower("cni")
	check(t, map[string]spec{
		"an open gate":               {aNode(cni).open("cni").flag("cni", "holds").override("cni", "Closed", time.Hour), "write [" + cniTaint + "] cni:Open>Closed(Overridden) blocked=Overridden override=Closed/Open"},
		"a node that is no member":   {aNode(cni).override("cni", "Closed", time.Hour), "write [" + cniTaint + "] cni:->Closed(Overridden) blocked=Overridden override=Closed/-"},
		"a closeWhen gate":           {aNode(bad).override("cni", "Closed", time.Hour), "write [" + cniTaint + "] cni:Open>Closed(Overridden) blocked=Overridden override=Closed/Open"},
		"not one that is refused":    {aNode(aGate("cni", refused)).open("cni").override("cni", "Closed", time.Hour), "[] cni:Open>Open(Birth) ignored:cni"},
		"a gate that is closed":      {aNode(cni).closed("cni").override("cni", "Closed", time.Hour), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=Overridden override=Closed/Closed"},
		"a gate that would open":     {aNode(cni).closed("cni").flag("cni", "holds").override("cni", "Closed", time.Hour), "write [" + cniTaint + "] cni:Closed>Closed(Overridden) blocked=Overridden override=Closed/Open"},
		"a closeWhen one that would": {aNode(bad).closed("cni").override("cni", "Closed", time.Hour), "write [" + cniTaint + "] cni:Closed>Closed(Overridden) blocked=Overridden override=Closed/Open"},

		"stays closed":                {closedByHand(cni).flag("cni", "holds").override("cni", "Closed", time.Hour), "[" + cniTaint + "] cni:Closed>Closed(Overridden) blocked=Overridden override=Closed/Open"},
		"what another writer removed": {closedByHand(cni).untaint(cniTaint).flag("cni", "holds").override("cni", "Closed", time.Hour), "write [" + cniTaint + "] cni:Closed>Closed(Overridden) blocked=Overridden override=Closed/Open"},
		"what closes by itself":       {closedByHand(cni).boot("b").override("cni", "Closed", time.Hour), "write [" + cniTaint + "] cni:Closed>Closed(Rebooted) blocked=Overridden override=Closed/Closed"},
		"a refused gate keeps on":     {closedByHand(aGate("cni", refused)).override("cni", "Closed", time.Hour), "[" + cniTaint + "] cni:Closed>Closed(Overridden) blocked=Overridden override=Closed/Open"},

		"what was fought over": {aNode(cni).record("cni", "Open", foughtOver).taint("cni.example/not-ready=x:NoSchedule").override("cni", "Closed", time.Hour), "write [" + cniTaint + "] cni:Open>Closed(Overridden) blocked=Overridden override=Closed/Open"},

		"ends: opens":             {closedByHand(cni), "write [] cni:Closed>Open(OverrideEnded) override=-/Open"},
		"ends by itself":          {closedByHand(cni).override("cni", "Closed", 0), "write [] cni:Closed>Open(OverrideEnded) override=-/Open withdrawn:cni"},
		"ends where it reboots":   {closedByHand(cni).boot("b"), "write [" + cniTaint + "] cni:Closed>Closed(Rebooted) override=-/Closed"},
		"ends, closeWhen":         {closedByHand(bad), "write [] cni:Closed>Open(OverrideEnded) override=-/Open"},
		"ends, no member":         {aNode(cni).raw("cni", guest).taint(cniTaint), "write [] cni:Closed>-(OverrideEnded) override=-/-"},
		"ends, no member, follow": {aNode(bad).raw("cni", guest).taint(cniTaint), "write [] cni:Closed>Open(OverrideEnded) override=-/Open"},
		"turns to open":           {closedByHand(cni).override("cni", "Open", time.Hour), "write [] cni:Closed>Open(OverrideEnded) override=Open/Open"},

		"the gate is deleted":       {closedByHand().override("cni", "Closed", time.Hour), "write [] cni:Closed>-(GateDeleted) ignored:cni"},
		"the gate is invisible":     {closedByHand().invisible().override("cni", "Closed", time.Hour), "[" + cniTaint + "] cni:Closed>Closed(Birth) held ignored:cni"},
		"no member, it is deleted":  {aNode().raw("cni", guest).taint(cniTaint), "write [] cni:Closed>-(GateDeleted)"},
		"no member, it's invisible": {aNode().raw("cni", guest).taint(cniTaint).invisible(), "[" + cniTaint + "] cni:Closed>Closed(Overridden) held"},
		"the node leaves":           {closedByHand(aGate("cni", selecting("a=b"))).override("cni", "Closed", time.Hour), "write [] cni:Closed>-(NotSelected) ignored:cni"},
		"the gate is edited":        {closedByHand(aGate("cni", tainting("new.example/x:NoSchedule"))).override("cni", "Closed", time.Hour), "write [new.example/x:NoSchedule] cni:Closed>Closed(Overridden) blocked=Overridden override=Closed/Open"},
		"out of service: never":     {aNode(spot()).silent(time.Hour).override("spot", "Closed", time.Hour), "[] spot:Open>Open ignored:spot"},
		"nor does a record":         {aNode(spot()).record("spot", "Open", masked("Closed"), spotTaint).taint(gone).override("spot", "Closed", time.Hour), "write [] spot:Closed>Open(OverrideEnded) override=-/Open ignored:spot"},
		"nor of a gate unknown":     {aNode().record("spot", "Open", masked("Closed"), spotTaint).taint(gone).invisible(), "write [] spot:Closed>-(NodeReturned)"},
	})
}

func foughtOver(r *Record) { r.Fought, r.FoughtAt = 3, epoch.Add(-time.Second) }

func spotTaint(r *Record) { r.Taint = gone }

// keys are those that nodegate may change.
func (s *sim) keys(keys ...string) *sim {
	s.facts.Allowed = allowed(keys...)
	return s
}

// guest is the record of a node that is no member and is closed by hand.
const guest = `{"state":"Open","since":"2026-11-20T11:30:00Z","reason":"Overridden","taint":"cni.example/not-ready:NoSchedule","source":"crd","override":"Closed","overrideSince":"2026-11-20T11:30:00Z"}`

func TestOverridesThatAreNotHeeded(t *testing.T) {
	closed := func() *sim { return aNode(aGate("cni")).closed("cni") }
	const ignored = "[" + cniTaint + "] cni:Closed>Closed(Birth) ignored:cni"
	const refused = "write [" + cniTaint + "] cni:Closed>Closed(Birth) withdrawn:cni(refused)"
	raw := func(text string) *sim { return closed().overrideRaw("cni", text) }
	check(t, map[string]spec{
		"of another Node":           {raw(`{"state":"Open","until":"2026-11-20T13:00:00Z","reason":"x","uid":"uid-2"}`), ignored},
		"of none":                   {raw(`{"state":"Open","until":"2026-11-20T13:00:00Z","reason":"x"}`), ignored},
		"no JSON":                   {raw(`Open`), ignored},
		"more than JSON":            {raw(`{"state":"Open","until":"2026-11-20T13:00:00Z","reason":"x","uid":"uid-1"} {}`), ignored},
		"nothing":                   {raw(``), ignored},
		"another state":             {raw(`{"state":"Ajar","until":"2026-11-20T13:00:00Z","reason":"x","uid":"uid-1"}`), ignored},
		"no end":                    {raw(`{"state":"Open","reason":"x","uid":"uid-1"}`), ignored},
		"no time":                   {raw(`{"state":"Open","until":"tomorrow","reason":"x","uid":"uid-1"}`), ignored},
		"no reason":                 {raw(`{"state":"Open","until":"2026-11-20T13:00:00Z","reason":"","uid":"uid-1"}`), ignored},
		"too long a reason":         {raw(`{"state":"Open","until":"2026-11-20T13:00:00Z","reason":"` + strings.Repeat("é", 257) + `","uid":"uid-1"}`), ignored},
		"more than there is to say": {raw(`{"state":"Open","until":"2026-11-20T13:00:00Z","reason":"x","uid":"uid-1","for":"1h"}`), ignored},
		"of no gate":                {closed().override("cin", "Open", time.Hour), "[" + cniTaint + "] cni:Closed>Closed(Birth) ignored:cin"},
		"of no gate, over":          {closed().override("cin", "Open", 0), "write [" + cniTaint + "] cni:Closed>Closed(Birth) withdrawn:cin"},
		"a key that may not be touched": {closed().keys("x").override("cni", "Open", time.Hour),
			"[" + cniTaint + "] cni:Closed>Closed(Birth) held ignored:cni"},
		"too long":                {closed().override("cni", "Open", 7*24*time.Hour+clockSkew+1), refused},
		"for ever":                {closed().override("cni", "Open", 200*365*24*time.Hour), refused},
		"the longest":             {closed().override("cni", "Open", 7*24*time.Hour), "write [] cni:Closed>Open(Overridden) override=Open/Closed"},
		"the longest of reasons":  {raw(`{"state":"Open","until":"2026-11-20T13:00:00Z","reason":"` + strings.Repeat("é", 256) + `","uid":"uid-1"}`), "write [] cni:Closed>Open(Overridden) override=Open/Closed"},
		"a zone of the world":     {raw(`{"state":"Open","until":"2026-11-20T14:30:00+02:00","reason":"x","uid":"uid-1"}`), "write [] cni:Closed>Open(Overridden) override=Open/Closed"},
		"a record alone is none":  {openByHand(aGate("cni")), "write [" + cniTaint + "] cni:Open>Closed(OverrideEnded) override=-/Closed"},
		"another gate's override": {aNode(aGate("cni"), aGate("dns")).closed("cni", "dns").override("dns", "Open", time.Hour), "write [" + cniTaint + "] cni:Closed>Closed(Birth) dns:Closed>Open(Overridden) override=Open/Closed"},
	})
}

func TestOptOut(t *testing.T) {
	cni := aGate("cni")
	check(t, map[string]spec{
		"a closed node is opened":  {aNode(cni).closed("cni").label(v1alpha1.OptOutLabel, "true"), "write [] cni:Closed>-(OptedOut)"},
		"an open one is forgotten": {aNode(cni).open("cni").label(v1alpha1.OptOutLabel, "true"), "write [] cni:Open>-(OptedOut)"},
		"a new one is left alone":  {aNode(cni).age(0).label(v1alpha1.OptOutLabel, "true"), "[]"},
		"whatever it carries":      {aNode(cni).taint(cniTaint).label(v1alpha1.OptOutLabel, "true"), "[" + cniTaint + "]"},
		"closeWhen too":            {aNode(follower("cni")).closed("cni").flag("cni", "holds").label(v1alpha1.OptOutLabel, "true"), "write [] cni:Closed>-(OptedOut)"},
		"and what is overridden":   {closedByHand(cni).override("cni", "Closed", time.Hour).label(v1alpha1.OptOutLabel, "true"), "write [] cni:Closed>-(OptedOut) ignored:cni"},
		"no other value":           {aNode(cni).closed("cni").label(v1alpha1.OptOutLabel, "yes"), "[" + cniTaint + "] cni:Closed>Closed(Birth)"},
		"in again, and new":        {aNode(cni).age(time.Minute).label(v1alpha1.OptOutLabel, "false"), "write [" + cniTaint + "] cni:->Closed(Birth)"},
		"in again, and not":        {aNode(cni).label(v1alpha1.OptOutLabel, ""), "[] cni:->-"},
		"a gate nobody knows":      {aNode().closed("cni").invisible().label(v1alpha1.OptOutLabel, "true"), "[" + cniTaint + "] cni:Closed>Closed(Birth) held"},
	})
}

func dueIn90m(g *Gate) { g.Deadline = Deadline{Ready: 90 * time.Minute, Open: true} }

// What happens while a person has a gate open does not count: no deadline passes,
// no time of being closed, no pod that starts.
func TestNothingCountsWhileOpenByHand(t *testing.T) {
	s := aNode(aGate("cni", dueIn90m)).closed("cni").override("cni", "Open", 2*time.Hour)
	expect := func(what, want string) {
		t.Helper()
		if got := show(s.run(t)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", what, got, want)
		}
	}
	expect("a person opens it, half an hour before its deadline", "write [] cni:Closed>Open(Overridden) override=Open/Closed")
	s.after(90 * time.Minute)
	expect("the deadline does not pass", "[] cni:Open>Open(Overridden) override=Open/Closed")
	s.ready("Unknown").after(30 * time.Minute)
	expect("it closes, on a silent node", "write ["+cniTaint+"] cni:Open>Closed(OverrideEnded) blocked=NodeSilent override=-/Closed withdrawn:cni")
	s.after(time.Hour).ready("True")
	s.run(t)
	s.after(90*time.Minute - time.Second)
	expect("silence does not count either", "["+cniTaint+"] cni:Closed>Closed(OverrideEnded)")
	s.after(time.Second)
	expect("its deadline passes", "write [] cni:Closed>Open(DeadlinePassed) passed")
}

func TestNoDeadlineIsOverdueByHand(t *testing.T) {
	late := func(r *Record) { r.Overdue = true }
	s := aNode(aGate("cni", func(g *Gate) { g.Deadline.Ready = time.Minute })).record("cni", "Closed", late).taint(cniTaint).override("cni", "Open", time.Hour)
	if got, want := show(s.run(t)), "write [] cni:Closed>Open(Overridden) override=Open/Closed"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if raw := s.facts.Node.Records["cni"]; strings.Contains(raw, "overdue") {
		t.Errorf("the record says %s", raw)
	}
	s.after(time.Hour)
	if got, want := show(s.run(t)), "write ["+cniTaint+"] cni:Open>Closed(OverrideEnded) override=-/Closed withdrawn:cni"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// Pods are judged by when the gate was closed for them.
func TestBypassOfAnOverriddenGate(t *testing.T) {
	closure := func(s *sim) *Closure { return s.run(t).Verdicts[0].Closure }
	s := aNode(aGate("cni")).closed("cni").override("cni", "Open", time.Hour)
	if c := closure(s); c != nil {
		t.Errorf("opened by hand: pods that started in %+v are judged", c)
	}
	fit := *s
	if c := closure(fit.after(time.Minute).flag("cni", "holds")); c != nil {
		t.Errorf("fit while open by hand: pods that started in %+v are judged", c)
	}
	end := s.now.Add(time.Hour)
	s.after(time.Hour).run(t)
	if c := closure(s.after(time.Minute).flag("cni", "holds")); c == nil || c.From.Before(end) {
		t.Errorf("closed again, and then fit: pods that started in %+v are judged, want those since %s", c, end)
	}
	s = aNode(aGate("cni")).closed("cni").override("cni", "Open", time.Hour)
	s.run(t)
	s.boot("b").run(t)
	end = s.now.Add(time.Hour)
	s.after(time.Hour).run(t)
	s.override("cni", "Closed", time.Minute).run(t)
	s.after(time.Minute)
	rebooted := *s
	if c := closure(s.flag("cni", "holds")); c == nil || c.From.Before(end) || c.NewBoot {
		t.Errorf("rebooted while open by hand: pods that started in %+v are judged, want those since %s", c, end)
	}
	rebooted.boot("c").run(t)
	if c := closure(rebooted.after(time.Minute).flag("cni", "holds")); c == nil || !c.NewBoot {
		t.Errorf("rebooted after that: pods that started in %+v are judged, want all of the new boot", c)
	}
	if c := closure(aNode(aGate("cni")).closed("cni").flag("cni", "holds").override("cni", "Closed", time.Hour)); c != nil {
		t.Errorf("closed by hand: pods that started in %+v are judged", c)
	}
}

// The least time of being closed begins when a person lets go of the gate.
func TestMinClosedAfterAnOverride(t *testing.T) {
	s := aNode(aGate("cni", closedForAtLeast(10*time.Minute))).closed("cni").override("cni", "Open", time.Minute)
	s.run(t)
	s.after(time.Minute).run(t)
	s.flag("cni", "holds").after(10*time.Minute - time.Second)
	if got, want := show(s.run(t)), "["+cniTaint+"] cni:Closed>Closed(OverrideEnded) blocked=MinClosed"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// Another writer is fought for what a person wants as it is for what a gate wants,
// and what a person does is nobody's fight.
func TestFightsUnderAnOverride(t *testing.T) {
	for _, state := range []string{"Open", "Closed"} {
		s := aNode(aGate("cni")).open("cni").override("cni", state, 24*time.Hour)
		undo := func() { s.untaint(cniTaint) }
		if state == "Open" {
			s = aNode(aGate("cni")).closed("cni").override("cni", state, 24*time.Hour)
			undo = func() { s.taint(cniTaint) }
		}
		for i, want := range []string{"", "", "contended"} {
			d := s.run(t)
			if got := d.Verdicts[0].Contended; got != (want != "") {
				t.Errorf("%s, undone %d times: contended is %t", state, i, got)
			}
			if state == "Closed" != (s.facts.Node.taint("cni.example/not-ready", "NoSchedule") >= 0) {
				t.Errorf("%s, undone %d times: %s", state, i, show(d))
			}
			s.after(15 * time.Second)
			undo()
		}
		if d := s.run(t); d.Changes || !d.Verdicts[0].Contended {
			t.Errorf("%s: fights on at once: %s", state, show(d))
		}
	}
}

// Who tells of a gate: its log says since when, and what holds the node yet.
func TestWhatAnOverrideTells(t *testing.T) {
	share := tainting("shared.example/x:NoSchedule")
	s := aNode(aGate("cni", share), aGate("dns", share))
	for _, name := range []string{"cni", "dns"} {
		s.record(name, "Closed", func(r *Record) { r.Taint = "shared.example/x:NoSchedule" })
	}
	s.taint("shared.example/x:NoSchedule").override("dns", "Open", time.Hour)
	closedAt := s.now.Add(-time.Hour)
	d := s.run(t)
	if got, want := show(d), "write [shared.example/x:NoSchedule] cni:Closed>Closed(Birth) dns:Closed>Open(Overridden) override=Open/Closed,held by cni"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	v := d.Verdicts[1]
	if o := v.Overridden; o.Because != "so" || !o.Until.Equal(s.now.Add(time.Hour)) || o.OwnReason != v1alpha1.ReasonBirth || !v.ClosedSince.Equal(closedAt) || !v.Since.Equal(s.now) {
		t.Errorf("tells %+v of %+v", o, v)
	}

	s = closedByHand(aGate("cni"))
	if v := s.run(t).Verdicts[0]; !v.ClosedSince.Equal(epoch.Add(-30 * time.Minute)) {
		t.Errorf("closed by hand half an hour ago, and it says %s", v.ClosedSince)
	}
}

// A fight over one of a gate's taints is none over the other, which another gate
// has on the node: it goes with that gate, be it that an override ends.
func TestAFightHoldsNoOtherGatesTaint(t *testing.T) {
	lost := aGate("dns", tainting("dns.example/x:NoSchedule"), recloseTainting(cniTaint))
	fights := func(r *Record) {
		r.Taint, r.Fought, r.FoughtAt = "dns.example/x:NoSchedule", 3, epoch.Add(-time.Second)
	}
	check(t, map[string]spec{
		"an override ends": {aNode(aGate("cni"), lost).raw("cni", guest).taint(cniTaint).record("dns", "Closed", fights),
			"write [] cni:Closed>-(OverrideEnded) override=-/- dns:Closed>Closed(Birth) contended"},
		"a gate is deleted": {aNode(lost).closed("cni").record("dns", "Closed", fights),
			"write [] cni:Closed>-(GateDeleted) dns:Closed>Closed(Birth) contended"},
		"a gate opens": {aNode(aGate("cni"), lost).closed("cni").flag("cni", "holds").record("dns", "Open", fights).taint("dns.example/x:NoSchedule"),
			"write [dns.example/x:NoSchedule] cni:Closed>Open(SignalsHold) dns:Open>Open(Birth) contended"},
		"nobody has it": {aNode(lost).taint(cniTaint).record("dns", "Closed", fights),
			"[" + cniTaint + "] dns:Closed>Closed(Birth) contended"},
	})
}
