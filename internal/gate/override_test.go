// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strings"
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// masked changes a record to one of a gate that has been overridden to the other state
// for half an hour.
func masked(state string) func(*Record) {
	return func(r *Record) { r.Override, r.OverrideSince = state, epoch.Add(-30*time.Minute) }
}

// overriddenOpen returns a node on which the gate is closed, but overridden open.
func overriddenOpen(gates ...Gate) *sim {
	return aNode(gates...).record("cni", v1alpha1.StateClosed, masked(v1alpha1.StateOpen))
}

// overriddenClosed returns a node on which the gate is open, but overridden closed.
func overriddenClosed(gates ...Gate) *sim {
	return aNode(gates...).record("cni", v1alpha1.StateOpen, masked(v1alpha1.StateClosed)).taint(cniTaint)
}

func TestOverrideOpens(t *testing.T) {
	cni, bad := aGate("cni"), follower("cni")
	check(t, map[string]spec{
		"a closed gate":                                      {aNode(cni).closed("cni").override("cni", "Open", time.Hour), "write [] cni:Closed>Open(Overridden) override=Open/Closed"},
		"on a new node":                                      {aNode(cni).age(time.Second).override("cni", "Open", time.Hour), "write [] cni:->Open(Overridden) override=Open/Closed"},
		"on an unreachable node":                             {aNode(cni).closed("cni").ready("Unknown").override("cni", "Open", time.Hour), "write [] cni:Closed>Open(Overridden) blocked=NodeSilent override=Open/Closed"},
		"on a node that is being set up":                     {aNode(cni).closed("cni").taint("karpenter.sh/unregistered:NoExecute").override("cni", "Open", time.Hour), "write [karpenter.sh/unregistered:NoExecute] cni:Closed>Open(Overridden) blocked=NodeSetup override=Open/Closed"},
		"a gate that is not accepted":                        {aNode(aGate("cni", refused)).closed("cni").override("cni", "Open", time.Hour), "write [] cni:Closed>Open(Overridden) override=Open/Closed"},
		"a closed closeWhen gate":                            {aNode(bad).closed("cni").flag("cni", "holds").override("cni", "Open", time.Hour), "write [] cni:Closed>Open(Overridden) override=Open/Closed"},
		"a gate with reopen Manual":                          {aNode(follower("cni", manual)).closed("cni").flag("cni", "holds").override("cni", "Open", time.Hour), "write [] cni:Closed>Open(Overridden) override=Open/Closed"},
		"an out-of-service gate":                             {aNode(spot()).armed().outOfService().silent(time.Hour).override("spot", "Open", time.Hour), "write [] spot:Closed>Open(Overridden) override=Open/Closed"},
		"an out-of-service gate stays open":                  {aNode(spot()).armed().record("spot", "Closed", masked("Open"), spotTaint).silent(time.Hour).override("spot", "Open", time.Hour), "[] spot:Open>Open(Overridden) override=Open/Closed"},
		"an out-of-service gate, ends: closes":               {aNode(spot()).armed().record("spot", "Closed", masked("Open"), spotTaint).silent(time.Hour), "write [" + gone + "] spot:Open>Closed(OverrideEnded) override=-/Closed"},
		"an out-of-service gate, ends: needs budget":         {aNode(spot()).flag("spot", "holds").record("spot", "Closed", masked("Open"), spotTaint).silent(time.Hour), "write [] spot:Open>Open(SignalsCleared) override=-/Open wants=Budget"},
		"an out-of-service gate, ends: needs unreachability": {aNode(spot()).armed().record("spot", "Closed", masked("Open"), spotTaint).silent(time.Second), "write [] spot:Open>Open(SignalsCleared) override=-/Open"},

		"stays open":                          {overriddenOpen(cni).override("cni", "Open", time.Hour), "[] cni:Open>Open(Overridden) override=Open/Closed"},
		"stays open across a reboot":          {overriddenOpen(cni).boot("b").override("cni", "Open", time.Hour), "write [] cni:Open>Open(Overridden) override=Open/Closed"},
		"reopen Manual: stays overridden":     {overriddenOpen(follower("cni", manual)).override("cni", "Open", time.Hour), "[] cni:Open>Open(Overridden) blocked=ReopenedByHand override=Open/Closed"},
		"a foreign writer's taint is removed": {overriddenOpen(cni).taint(cniTaint).override("cni", "Open", time.Hour), "write [] cni:Open>Open(Overridden) override=Open/Closed"},
		"a gate that opens by its signals":    {overriddenOpen(cni).flag("cni", "holds").override("cni", "Open", time.Hour), "write [] cni:Open>Open(SignalsHold) override=Open/Open"},
		"a gate that is open":                 {aNode(cni).open("cni").override("cni", "Open", time.Hour), "[] cni:Open>Open(Birth) override=Open/Open"},
		"a node that is not a member":         {aNode(cni).override("cni", "Open", time.Hour), "[] cni:->- override=Open/-"},
		"a gate that would close":             {aNode(cni).open("cni").boot("b").override("cni", "Open", time.Hour), "write [] cni:Open>Open(Overridden) override=Open/Closed"},

		"ends: closes again":                       {overriddenOpen(cni), "write [" + cniTaint + "] cni:Open>Closed(OverrideEnded) override=-/Closed"},
		"ends, and the signals hold":               {overriddenOpen(cni).flag("cni", "holds"), "write [] cni:Open>Open(SignalsHold) override=-/Open"},
		"ends by itself":                           {overriddenOpen(cni).override("cni", "Open", 0), "write [" + cniTaint + "] cni:Open>Closed(OverrideEnded) override=-/Closed withdrawn:cni"},
		"ends automatically, without effect":       {aNode(cni).open("cni").override("cni", "Open", -time.Hour), "write [] cni:Open>Open(Birth) withdrawn:cni"},
		"ends, closeWhen":                          {overriddenOpen(bad).flag("cni", "holds"), "write [" + cniTaint + "] cni:Open>Closed(OverrideEnded) override=-/Closed"},
		"ends, closeWhen, and the signals cleared": {overriddenOpen(bad), "write [] cni:Open>Open(SignalsCleared) override=-/Open"},
		"ends, reopen Manual":                      {overriddenOpen(follower("cni", manual)), "write [" + cniTaint + "] cni:Open>Closed(OverrideEnded) blocked=ReopenedByHand override=-/Closed"},
		"ends, not accepted":                       {overriddenOpen(aGate("cni", refused)), "[] cni:Open>Open(Overridden) override=Open/Closed"},
		"ends by itself, not accepted":             {overriddenOpen(aGate("cni", refused)).override("cni", "Open", 0), "write [] cni:Open>Open(Overridden) override=Open/Closed withdrawn:cni"},
		"ends, not accepted, and the signals hold": {overriddenOpen(aGate("cni", refused)).flag("cni", "holds"), "write [] cni:Open>Open(SignalsHold) override=-/Open"},
		"ends, reopen Manual, not accepted":        {overriddenOpen(follower("cni", manual, refused)).flag("cni", "holds"), "[] cni:Open>Open(Overridden) override=Open/Closed"},
		"turns to closed, not accepted":            {overriddenOpen(aGate("cni", refused)).override("cni", "Closed", time.Hour), "[] cni:Open>Open(Overridden) override=Open/Closed ignored:cni"},
		"turns to closed":                          {overriddenOpen(cni).override("cni", "Closed", time.Hour), "write [" + cniTaint + "] cni:Open>Closed(OverrideEnded) blocked=Overridden override=Closed/Closed"},

		"what was fought over": {aNode(cni).record("cni", "Closed", foughtOver).override("cni", "Open", time.Hour), "write [] cni:Closed>Open(Overridden) override=Open/Closed"},

		"the gate is deleted":           {overriddenOpen().override("cni", "Open", time.Hour), "write [] cni:Open>-(GateDeleted) ignored:cni"},
		"the gate is invisible":         {overriddenOpen().invisible().override("cni", "Open", time.Hour), "[] cni:Open>Open(Overridden) held override=Open/Closed ignored:cni"},
		"the node leaves":               {overriddenOpen(aGate("cni", selecting("a=b"))).override("cni", "Open", time.Hour).left("cni"), "write [] cni:Open>-(NotSelected) ignored:cni"},
		"the gate is edited":            {overriddenOpen(aGate("cni", tainting("new.example/x:NoSchedule"))).override("cni", "Open", time.Hour), "write [] cni:Open>Open(Overridden) override=Open/Closed"},
		"the gate is edited as it ends": {overriddenOpen(aGate("cni", tainting("new.example/x:NoSchedule"))), "write [new.example/x:NoSchedule] cni:Open>Closed(OverrideEnded) override=-/Closed"},
	})
}

func TestOverrideCloses(t *testing.T) {
	cni, bad := aGate("cni"), follower("cni")
	check(t, map[string]spec{
		"an open gate":                        {aNode(cni).open("cni").flag("cni", "holds").override("cni", "Closed", time.Hour), "write [" + cniTaint + "] cni:Open>Closed(Overridden) blocked=Overridden override=Closed/Open"},
		"a node that is not a member, closes": {aNode(cni).override("cni", "Closed", time.Hour), "write [" + cniTaint + "] cni:->Closed(Overridden) blocked=Overridden override=Closed/-"},
		"a closeWhen gate":                    {aNode(bad).override("cni", "Closed", time.Hour), "write [" + cniTaint + "] cni:Open>Closed(Overridden) blocked=Overridden override=Closed/Open"},
		"not a gate that is not accepted":     {aNode(aGate("cni", refused)).open("cni").override("cni", "Closed", time.Hour), "[] cni:Open>Open(Birth) ignored:cni"},
		"a gate that is closed":               {aNode(cni).closed("cni").override("cni", "Closed", time.Hour), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=Overridden override=Closed/Closed"},
		"a gate that would open":              {aNode(cni).closed("cni").flag("cni", "holds").override("cni", "Closed", time.Hour), "write [" + cniTaint + "] cni:Closed>Closed(Overridden) blocked=Overridden override=Closed/Open"},
		"a closeWhen gate that would open":    {aNode(bad).closed("cni").override("cni", "Closed", time.Hour), "write [" + cniTaint + "] cni:Closed>Closed(Overridden) blocked=Overridden override=Closed/Open"},

		"stays closed":                                   {overriddenClosed(cni).flag("cni", "holds").override("cni", "Closed", time.Hour), "[" + cniTaint + "] cni:Closed>Closed(Overridden) blocked=Overridden override=Closed/Open"},
		"a taint that another writer removed":            {overriddenClosed(cni).untaint(cniTaint).flag("cni", "holds").override("cni", "Closed", time.Hour), "write [" + cniTaint + "] cni:Closed>Closed(Overridden) blocked=Overridden override=Closed/Open"},
		"a gate that closes by itself":                   {overriddenClosed(cni).boot("b").override("cni", "Closed", time.Hour), "write [" + cniTaint + "] cni:Closed>Closed(Rebooted) blocked=Overridden override=Closed/Closed"},
		"a gate that is no longer accepted stays closed": {overriddenClosed(aGate("cni", refused)).override("cni", "Closed", time.Hour), "[" + cniTaint + "] cni:Closed>Closed(Overridden) blocked=Overridden override=Closed/Open"},

		"what was fought over": {aNode(cni).record("cni", "Open", foughtOver).taint("cni.example/not-ready=x:NoSchedule").override("cni", "Closed", time.Hour), "write [" + cniTaint + "] cni:Open>Closed(Overridden) blocked=Overridden override=Closed/Open"},

		"ends: opens":                   {overriddenClosed(cni), "write [] cni:Closed>Open(OverrideEnded) override=-/Open"},
		"ends by itself":                {overriddenClosed(cni).override("cni", "Closed", 0), "write [] cni:Closed>Open(OverrideEnded) override=-/Open withdrawn:cni"},
		"ends on a node that reboots":   {overriddenClosed(cni).boot("b"), "write [" + cniTaint + "] cni:Closed>Closed(Rebooted) override=-/Closed"},
		"ends, closeWhen":               {overriddenClosed(bad), "write [] cni:Closed>Open(OverrideEnded) override=-/Open"},
		"ends, not a member":            {aNode(cni).raw("cni", nonMemberRecord).taint(cniTaint), "write [] cni:Closed>-(OverrideEnded) override=-/-"},
		"ends, not a member, closeWhen": {aNode(bad).raw("cni", nonMemberRecord).taint(cniTaint), "write [] cni:Closed>Open(OverrideEnded) override=-/Open"},
		"turns to open":                 {overriddenClosed(cni).override("cni", "Open", time.Hour), "write [] cni:Closed>Open(OverrideEnded) override=Open/Open"},

		"the gate is deleted":                        {overriddenClosed().override("cni", "Closed", time.Hour), "write [] cni:Closed>-(GateDeleted) ignored:cni"},
		"the gate is invisible":                      {overriddenClosed().invisible().override("cni", "Closed", time.Hour), "[" + cniTaint + "] cni:Closed>Closed(Overridden) held override=Closed/Open ignored:cni"},
		"not a member, the gate is deleted":          {aNode().raw("cni", nonMemberRecord).taint(cniTaint), "write [] cni:Closed>-(GateDeleted)"},
		"not a member, the gate is invisible":        {aNode().raw("cni", nonMemberRecord).taint(cniTaint).invisible(), "[" + cniTaint + "] cni:Closed>Closed(Overridden) held override=Closed/-"},
		"the node leaves":                            {overriddenClosed(aGate("cni", selecting("a=b"))).override("cni", "Closed", time.Hour).left("cni"), "write [] cni:Closed>-(NotSelected) ignored:cni"},
		"the gate is edited":                         {overriddenClosed(aGate("cni", tainting("new.example/x:NoSchedule"))).override("cni", "Closed", time.Hour), "write [new.example/x:NoSchedule] cni:Closed>Closed(Overridden) blocked=Overridden override=Closed/Open"},
		"out of service: never closes":               {aNode(spot()).silent(time.Hour).override("spot", "Closed", time.Hour), "[] spot:Open>Open ignored:spot"},
		"out of service: a record does not close it": {aNode(spot()).record("spot", "Open", masked("Closed"), spotTaint).taint(gone).override("spot", "Closed", time.Hour), "write [] spot:Closed>Open(OverrideEnded) override=-/Open ignored:spot"},
		"out of service: unknown gate":               {aNode().record("spot", "Open", masked("Closed"), spotTaint).taint(gone).invisible(), "write [] spot:Closed>-(NodeReturned)"},
	})
}

func foughtOver(r *Record) { r.Fought, r.FoughtAt = 3, epoch.Add(-time.Second) }

func spotTaint(r *Record) { r.Taint = gone }

// keys sets the taint keys that nodegate may change.
func (s *sim) keys(keys ...string) *sim {
	s.facts.Allowed = allowed(keys...)
	return s
}

// nonMemberRecord is the record of a node that is not a member and is overridden closed.
const nonMemberRecord = `{"state":"Open","since":"2026-11-20T11:30:00Z","reason":"Overridden","taint":"cni.example/not-ready:NoSchedule","source":"crd","override":"Closed","overrideSince":"2026-11-20T11:30:00Z"}`

func TestOverridesThatAreIgnored(t *testing.T) {
	closed := func() *sim { return aNode(aGate("cni")).closed("cni") }
	const ignored = "[" + cniTaint + "] cni:Closed>Closed(Birth) ignored:cni"
	const refused = "write [" + cniTaint + "] cni:Closed>Closed(Birth) withdrawn:cni(refused)"
	raw := func(text string) *sim { return closed().overrideRaw("cni", text) }
	check(t, map[string]spec{
		"of another Node":            {raw(`{"state":"Open","until":"2026-11-20T13:00:00Z","reason":"x","uid":"uid-2"}`), ignored},
		"without a uid":              {raw(`{"state":"Open","until":"2026-11-20T13:00:00Z","reason":"x"}`), ignored},
		"not JSON":                   {raw(`Open`), ignored},
		"more than JSON":             {raw(`{"state":"Open","until":"2026-11-20T13:00:00Z","reason":"x","uid":"uid-1"} {}`), ignored},
		"nothing":                    {raw(``), ignored},
		"another state":              {raw(`{"state":"Ajar","until":"2026-11-20T13:00:00Z","reason":"x","uid":"uid-1"}`), ignored},
		"no end":                     {raw(`{"state":"Open","reason":"x","uid":"uid-1"}`), ignored},
		"no time":                    {raw(`{"state":"Open","until":"tomorrow","reason":"x","uid":"uid-1"}`), ignored},
		"a time out of range":        {raw(`{"state":"Open","until":"9999-12-31T23:59:59-23:00","reason":"x","uid":"uid-1"}`), ignored},
		"no reason":                  {raw(`{"state":"Open","until":"2026-11-20T13:00:00Z","reason":"","uid":"uid-1"}`), ignored},
		"too long a reason":          {raw(`{"state":"Open","until":"2026-11-20T13:00:00Z","reason":"` + strings.Repeat("é", 257) + `","uid":"uid-1"}`), ignored},
		"an unknown field":           {raw(`{"state":"Open","until":"2026-11-20T13:00:00Z","reason":"x","uid":"uid-1","for":"1h"}`), ignored},
		"for an unknown gate":        {closed().override("cin", "Open", time.Hour), "[" + cniTaint + "] cni:Closed>Closed(Birth) ignored:cin"},
		"for an unknown gate, ended": {closed().override("cin", "Open", 0), "write [" + cniTaint + "] cni:Closed>Closed(Birth) withdrawn:cin"},
		"a key that is not allowed": {closed().keys("x").override("cni", "Open", time.Hour),
			"[" + cniTaint + "] cni:Closed>Closed(Birth) held ignored:cni"},
		"too long":                     {closed().override("cni", "Open", 7*24*time.Hour+clockSkew+1), refused},
		"forever":                      {closed().override("cni", "Open", 200*365*24*time.Hour), refused},
		"the longest":                  {closed().override("cni", "Open", 7*24*time.Hour), "write [] cni:Closed>Open(Overridden) override=Open/Closed"},
		"the longest of reasons":       {raw(`{"state":"Open","until":"2026-11-20T13:00:00Z","reason":"` + strings.Repeat("é", 256) + `","uid":"uid-1"}`), "write [] cni:Closed>Open(Overridden) override=Open/Closed"},
		"a time zone":                  {raw(`{"state":"Open","until":"2026-11-20T14:30:00+02:00","reason":"x","uid":"uid-1"}`), "write [] cni:Closed>Open(Overridden) override=Open/Closed"},
		"a record without an override": {overriddenOpen(aGate("cni")), "write [" + cniTaint + "] cni:Open>Closed(OverrideEnded) override=-/Closed"},
		"another gate's override":      {aNode(aGate("cni"), aGate("dns")).closed("cni", "dns").override("dns", "Open", time.Hour), "write [" + cniTaint + "] cni:Closed>Closed(Birth) dns:Closed>Open(Overridden) override=Open/Closed"},
	})
}

func TestOptOut(t *testing.T) {
	cni, plain := aGate("cni"), aGate("cni", func(g *Gate) { g.PlainOptOut = true })
	check(t, map[string]spec{
		"a closed node is opened":                  {aNode(cni).closed("cni").label(v1alpha1.OptOutLabel, "true"), "write [] cni:Closed>-(OptedOut)"},
		"an open node loses its record":            {aNode(cni).open("cni").label(v1alpha1.OptOutLabel, "true"), "write [] cni:Open>-(OptedOut)"},
		"a new node is not closed":                 {aNode(cni).age(0).label(v1alpha1.OptOutLabel, "true"), "[]"},
		"a carried taint is kept":                  {aNode(cni).taint(cniTaint).label(v1alpha1.OptOutLabel, "true"), "[" + cniTaint + "]"},
		"a closeWhen gate":                         {aNode(follower("cni")).closed("cni").flag("cni", "holds").label(v1alpha1.OptOutLabel, "true"), "write [] cni:Closed>-(OptedOut)"},
		"an overridden gate":                       {overriddenClosed(cni).override("cni", "Closed", time.Hour).label(v1alpha1.OptOutLabel, "true"), "write [] cni:Closed>-(OptedOut) ignored:cni"},
		"the label that kubelets can set":          {aNode(cni).closed("cni").label(v1alpha1.PlainOptOutLabel, "true"), "[" + cniTaint + "] cni:Closed>Closed(Birth)"},
		"the label that kubelets can set, allowed": {aNode(plain).closed("cni").label(v1alpha1.PlainOptOutLabel, "true"), "write [] cni:Closed>-(OptedOut)"},
		"another value":                            {aNode(cni).closed("cni").label(v1alpha1.OptOutLabel, "yes"), "[" + cniTaint + "] cni:Closed>Closed(Birth)"},
		"opted in again, new":                      {aNode(cni).age(time.Minute).label(v1alpha1.OptOutLabel, "false"), "write [" + cniTaint + "] cni:->Closed(Birth)"},
		"opted in again, not new":                  {aNode(cni).label(v1alpha1.OptOutLabel, ""), "[] cni:->-"},
		"an unknown gate":                          {aNode().closed("cni").invisible().label(v1alpha1.OptOutLabel, "true"), "[" + cniTaint + "] cni:Closed>Closed(Birth) held"},
	})
}

func dueIn90m(g *Gate) { g.Deadline = Deadline{Ready: 90 * time.Minute, Open: true} }

// While an override keeps a gate open, neither the deadline nor the closed time runs,
// and pods that start do not count.
func TestNothingCountsWhileOverriddenOpen(t *testing.T) {
	s := aNode(aGate("cni", dueIn90m)).closed("cni").override("cni", "Open", 2*time.Hour)
	expect := func(what, want string) {
		t.Helper()
		if got := show(s.run(t)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", what, got, want)
		}
	}
	expect("a user opens it, half an hour before its deadline", "write [] cni:Closed>Open(Overridden) override=Open/Closed")
	s.after(90 * time.Minute)
	expect("the deadline does not pass", "[] cni:Open>Open(Overridden) override=Open/Closed")
	s.ready("Unknown").after(30 * time.Minute)
	expect("it closes, on an unreachable node", "write ["+cniTaint+"] cni:Open>Closed(OverrideEnded) blocked=NodeSilent override=-/Closed withdrawn:cni")
	s.after(time.Hour).ready("True")
	s.run(t)
	s.after(90*time.Minute - time.Second)
	expect("unreachable time does not count either", "["+cniTaint+"] cni:Closed>Closed(OverrideEnded)")
	s.after(time.Second)
	expect("its deadline passes", "write [] cni:Closed>Open(DeadlinePassed) passed")
}

func TestNoDeadlinePassesWhileOverriddenOpen(t *testing.T) {
	late := func(r *Record) { r.Overdue = true }
	s := aNode(aGate("cni", func(g *Gate) { g.Deadline.Ready = time.Minute })).record("cni", "Closed", late).taint(cniTaint).override("cni", "Open", time.Hour)
	if got, want := show(s.run(t)), "write [] cni:Closed>Open(Overridden) override=Open/Closed"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if raw := s.facts.Node.Records["cni"]; strings.Contains(raw, "overdue") {
		t.Errorf("the record is %s", raw)
	}
	s.after(time.Hour)
	if got, want := show(s.run(t)), "write ["+cniTaint+"] cni:Open>Closed(OverrideEnded) override=-/Closed withdrawn:cni"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// Pods are considered from the time at which the gate was actually closed.
func TestBypassOfAnOverriddenGate(t *testing.T) {
	closure := func(s *sim) *Closure { return s.run(t).Verdicts[0].Closure }
	s := aNode(aGate("cni")).closed("cni").override("cni", "Open", time.Hour)
	if c := closure(s); c != nil {
		t.Errorf("overridden open: pods that started in %+v are considered", c)
	}
	fit := *s
	if c := closure(fit.after(time.Minute).flag("cni", "holds")); c != nil {
		t.Errorf("signals hold while overridden open: pods that started in %+v are considered", c)
	}
	end := s.now.Add(time.Hour)
	s.after(time.Hour).run(t)
	if c := closure(s.after(time.Minute).flag("cni", "holds")); c == nil || c.From.Before(end) {
		t.Errorf("closed again, then signals hold: pods that started in %+v are considered, want those since %s", c, end)
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
		t.Errorf("rebooted while overridden open: pods that started in %+v are considered, want those since %s", c, end)
	}
	rebooted.boot("c").run(t)
	if c := closure(rebooted.after(time.Minute).flag("cni", "holds")); c == nil || !c.NewBoot {
		t.Errorf("rebooted after that: pods that started in %+v are considered, want all of the new boot", c)
	}
	if c := closure(aNode(aGate("cni")).closed("cni").flag("cni", "holds").override("cni", "Closed", time.Hour)); c != nil {
		t.Errorf("overridden closed: pods that started in %+v are considered", c)
	}
}

// The minimum closed time starts when the override ends, also if it was unknown before how
// long the node had carried the taint.
func TestMinClosedAfterAnOverride(t *testing.T) {
	for _, reason := range []v1alpha1.Reason{v1alpha1.ReasonBirth, v1alpha1.ReasonAdopted} {
		s := aNode(aGate("cni", closedForAtLeast(10*time.Minute))).closed("cni").override("cni", "Open", time.Minute)
		s.record("cni", v1alpha1.StateClosed, func(r *Record) { r.Reason = reason }).run(t)
		s.after(time.Minute).run(t)
		s.flag("cni", "holds").after(10*time.Minute - time.Second)
		if got, want := show(s.run(t)), "["+cniTaint+"] cni:Closed>Closed(OverrideEnded) blocked=MinClosed"; got != want {
			t.Errorf("%s:\n got %s\nwant %s", reason, got, want)
		}
	}
}

// Another writer that reverts an override's state is contended with like one that
// reverts the gate's own state. The change by an override itself is not contention.
func TestContentionDuringAnOverride(t *testing.T) {
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
				t.Errorf("%s, reverted %d times: contended is %t", state, i, got)
			}
			if state == "Closed" != (s.facts.Node.taint("cni.example/not-ready", "NoSchedule") >= 0) {
				t.Errorf("%s, reverted %d times: %s", state, i, show(d))
			}
			s.after(15 * time.Second)
			undo()
		}
		if d := s.run(t); d.Changes || !d.Verdicts[0].Contended {
			t.Errorf("%s: does not back off: %s", state, show(d))
		}
	}
}

// A verdict contains the time since which the node has been overridden, and the gate
// that still keeps the taint.
func TestVerdictOfAnOverride(t *testing.T) {
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
		t.Errorf("override %+v in %+v", o, v)
	}

	s = overriddenClosed(aGate("cni"))
	if v := s.run(t).Verdicts[0]; !v.ClosedSince.Equal(epoch.Add(-30 * time.Minute)) {
		t.Errorf("overridden closed half an hour ago, but ClosedSince is %s", v.ClosedSince)
	}
}

// Contention for one of a gate's taints does not affect its other taint, which another
// gate has on the node. It is removed together with that gate, or when its override
// ends.
func TestContentionKeepsNoOtherGatesTaint(t *testing.T) {
	lost := aGate("dns", tainting("dns.example/x:NoSchedule"), recloseTainting(cniTaint))
	fights := func(r *Record) {
		r.Taint, r.Fought, r.FoughtAt = "dns.example/x:NoSchedule", 3, epoch.Add(-time.Second)
	}
	check(t, map[string]spec{
		"an override ends": {aNode(aGate("cni"), lost).raw("cni", nonMemberRecord).taint(cniTaint).record("dns", "Closed", fights),
			"write [] cni:Closed>-(OverrideEnded) override=-/- dns:Closed>Closed(Birth) contended"},
		"a gate is deleted": {aNode(lost).closed("cni").record("dns", "Closed", fights),
			"write [] cni:Closed>-(GateDeleted) dns:Closed>Closed(Birth) contended"},
		"a gate opens": {aNode(aGate("cni"), lost).closed("cni").flag("cni", "holds").record("dns", "Open", fights).taint("dns.example/x:NoSchedule"),
			"write [dns.example/x:NoSchedule] cni:Closed>Open(SignalsHold) dns:Open>Open(Birth) contended"},
		"no gate accounts for it": {aNode(lost).taint(cniTaint).record("dns", "Closed", fights),
			"[" + cniTaint + "] dns:Closed>Closed(Birth) contended"},
	})
}
