// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

const (
	gone         = v1alpha1.TaintOutOfService + ":NoExecute"
	cloudSaysOff = v1alpha1.TaintCloudShutdown + ":NoSchedule"
)

func mayDetach(g *Gate) { g.MayDetach = true }
func broken(g *Gate)    { g.Broken = true }

// spot is the gate that takes spot nodes out of service.
func spot(options ...func(*Gate)) Gate {
	return follower("spot", append([]func(*Gate){tainting(gone), mayDetach}, options...)...)
}

// silent is a node that fell silent so long ago, in a zone where others speak.
func (s *sim) silent(ago time.Duration) *sim {
	s.ready("Unknown").zone(10, 1)
	s.facts.Node.Conditions[0].Transition = s.now.Add(-ago)
	return s
}

func (s *sim) armed() *sim { return s.flag("spot", "holds").granting("spot") }

// outOfService is a node on which the gate is closed.
func (s *sim) outOfService() *sim {
	return s.record("spot", "Closed", func(r *Record) { r.Taint = gone }).taint(gone)
}

// The notice arms, silence fires.
func TestOutOfServiceCloses(t *testing.T) {
	node := func() *sim { return aNode(spot()) }
	check(t, map[string]spec{
		"armed and silent for a minute":       {node().armed().silent(goneAfter), "write [" + gone + "] spot:Open>Closed(SignalsHold)"},
		"it asks for budget":                  {node().flag("spot", "holds").silent(goneAfter), "[] spot:Open>Open wants=Budget"},
		"silent, and not armed":               {node().granting("spot").silent(time.Hour), "[] spot:Open>Open"},
		"silent, and nothing is known":        {node().flag("spot", "unknown").granting("spot").silent(time.Hour), "[] spot:Open>Open"},
		"armed and ready":                     {node().armed(), "[] spot:Open>Open"},
		"armed and not ready: it speaks":      {node().armed().ready("False").after(time.Hour), "[] spot:Open>Open"},
		"armed, and nobody tells if it lives": {node().armed().ready(""), "[] spot:Open>Open"},
		"armed and shutting down":             {node().armed().ready("False").shuttingDown(true), "[] spot:Open>Open"},
		"silent for less":                     {node().armed().silent(time.Minute), "[] spot:Open>Open"},
		"silent since nobody knows when":      {node().armed().silent(0).undated(), "[] spot:Open>Open"},
		"the API's clock is ahead":            {node().armed().silent(-time.Hour), "[] spot:Open>Open"},
		"the cloud says off":                  {node().armed().taint(cloudSaysOff).silent(0), "write [" + cloudSaysOff + " " + gone + "] spot:Open>Closed(SignalsHold)"},
		"whatever its clock":                  {node().armed().taint(cloudSaysOff).silent(0).undated(), "write [" + cloudSaysOff + " " + gone + "] spot:Open>Closed(SignalsHold)"},
		"the cloud is no signal":              {node().granting("spot").taint(cloudSaysOff).silent(time.Hour), "[" + cloudSaysOff + "] spot:Open>Open"},
		"nor is its word on a ready node":     {node().armed().taint(cloudSaysOff), "[" + cloudSaysOff + "] spot:Open>Open"},
		"or on one that is not":               {node().armed().taint(cloudSaysOff).ready("False"), "[" + cloudSaysOff + "] spot:Open>Open"},
		"a partition is no death":             {node().armed().silent(time.Hour).zone(10, 6), "[] spot:Open>Open"},
		"half a zone is":                      {node().armed().silent(time.Hour).zone(10, 5), "write [" + gone + "] spot:Open>Closed(SignalsHold)"},
		"unless the cloud says off":           {node().armed().taint(cloudSaysOff).silent(0).zone(10, 10), "write [" + cloudSaysOff + " " + gone + "] spot:Open>Closed(SignalsHold)"},
		"a refused gate":                      {aNode(spot(refused)).armed().silent(time.Hour), "[] spot:->-"},
		"the other effect too": {aNode(spot(tainting(v1alpha1.TaintOutOfService + ":NoSchedule"))).armed().silent(time.Hour),
			"write [" + v1alpha1.TaintOutOfService + ":NoSchedule] spot:Open>Closed(SignalsHold)"},
	})
}

func (s *sim) undated() *sim { s.facts.Node.Conditions[0].Transition = time.Time{}; return s }

// Whatever happens, the taint goes when the node speaks.
func TestOutOfServiceOpens(t *testing.T) {
	node := func(options ...func(*Gate)) *sim { return aNode(spot(options...)).armed().outOfService() }
	check(t, map[string]spec{
		"silent: it stays":              {node().silent(time.Hour), "[" + gone + "] spot:Closed>Closed(Birth)"},
		"it stays in a partition":       {node().silent(time.Hour).zone(10, 10), "[" + gone + "] spot:Closed>Closed(Birth)"},
		"it stays while not known":      {node().flag("spot", "unknown").silent(time.Hour), "[" + gone + "] spot:Closed>Closed(Birth)"},
		"the notice is withdrawn":       {node().flag("spot", "no").silent(time.Hour), "write [] spot:Closed>Open(SignalsCleared)"},
		"the cloud's word is withdrawn": {node().silent(time.Second), "[" + gone + "] spot:Closed>Closed(Birth)"},
		"ready":                         {node(), "write [] spot:Closed>Open(NodeReturned)"},
		"not ready":                     {node().ready("False"), "write [] spot:Closed>Open(NodeReturned)"},
		"not known":                     {node().ready(""), "write [] spot:Closed>Open(NodeReturned)"},
		"though the cloud says off": {aNode(spot()).armed().taint(cloudSaysOff).outOfService(),
			"write [" + cloudSaysOff + "] spot:Closed>Open(NodeReturned)"},
		"though signals are not known": {node().flag("spot", "unknown"), "write [] spot:Closed>Open(NodeReturned)"},
		"though a person should":       {node(byHand), "write [] spot:Closed>-(NodeReturned)"},
		"though the gate is refused":   {node(refused), "write [] spot:Closed>-(NodeReturned)"},
		"though it has no signals":     {node(waitingFor()), "write [] spot:Closed>Open(NodeReturned)"},
		"though another is kept, and open": {aNode(spot(), follower("z", tainting(gone), mayDetach, broken)).armed().outOfService().open("z"),
			"write [] spot:Closed>Open(NodeReturned) z:Open>Open(Birth) held"},
		"though it is broken":            {node(broken), "write [] spot:Closed>-(NodeReturned)"},
		"though it does not follow":      {node(func(g *Gate) { g.CloseWhen = false; g.Accepted = false }), "write [] spot:Closed>-(NodeReturned)"},
		"though nobody knows the gate":   {aNode().outOfService().invisible(), "write [] spot:Closed>-(NodeReturned)"},
		"which stays on a silent node":   {aNode().outOfService().invisible().silent(time.Hour), "[" + gone + "] spot:Closed>Closed(Birth) held"},
		"the gate is deleted":            {aNode().outOfService().silent(time.Hour), "write [] spot:Closed>-(GateDeleted)"},
		"the gate has another taint now": {node(tainting(cniTaint)), "write [" + cniTaint + "] spot:Closed>Closed(Birth)"},
		"its key may not be touched now": {aNode(spot(tainting(cniTaint), refused)).armed().outOfService().allowing(v1alpha1.TaintOutOfService + ":NoExecute"),
			"write [] spot:Closed>-(NodeReturned)"},
		"its key may not be touched": {aNode(spot()).armed().outOfService().allowing("x"),
			"[" + gone + "] spot:Closed>Closed(Birth) held"},
	})
}

func (s *sim) allowing(keys ...string) *sim {
	s.facts.Allowed = allowed(keys...)
	return s
}

// Kubernetes asks people to put this taint on by hand, and to take it off when
// the node is back. Where a gate has its key, the second happens by itself.
func TestOutOfServiceByHand(t *testing.T) {
	node := func() *sim { return aNode(spot()).granting("spot").taint(gone) }
	check(t, map[string]spec{
		"on a silent node it stays":        {node().silent(time.Second), "[" + gone + "] spot:Open>Open"},
		"for as long as it is silent":      {node().silent(time.Hour), "[" + gone + "] spot:Open>Open"},
		"it is the gate's once armed":      {node().armed().silent(time.Hour), "write [" + gone + "] spot:Open>Closed(SignalsHold)"},
		"but not before":                   {node().armed().silent(time.Second), "[" + gone + "] spot:Open>Open"},
		"it goes when the node speaks":     {node(), "write [] spot:->Open(SignalsCleared)"},
		"armed or not":                     {node().armed(), "write [] spot:->Open(SignalsCleared)"},
		"a fight of before is forgotten":   {node().record("spot", "Open", func(r *Record) { r.Taint = gone }).silent(time.Second), "write [" + gone + "] spot:Open>Open"},
		"its other effect is another's":    {aNode(spot()).taint(v1alpha1.TaintOutOfService + ":NoSchedule"), "[" + v1alpha1.TaintOutOfService + ":NoSchedule] spot:Open>Open"},
		"where no gate is it is another's": {aNode().taint(gone), "[" + gone + "]"},
	})
}

// A closed gate that is edited to have this key has it no sooner than another.
func TestOutOfServiceAfterAnEdit(t *testing.T) {
	node := func() *sim {
		return aNode(spot()).armed().record("spot", "Closed", func(r *Record) { r.Taint = cniTaint }).taint(cniTaint)
	}
	check(t, map[string]spec{
		"the node speaks":        {node(), "write [] spot:Closed>Open(SignalsCleared)"},
		"it is silent for less":  {node().silent(time.Second), "write [] spot:Closed>Open(SignalsCleared)"},
		"it is gone":             {node().silent(time.Hour), "write [" + gone + "] spot:Closed>Closed(SignalsHold)"},
		"there is no budget":     {node().granting().silent(time.Hour), "write [] spot:Closed>Open(SignalsCleared) wants=Budget"},
		"a person is waited for": {aNode(spot(byHand)).armed().record("spot", "Closed", func(r *Record) { r.Taint = cniTaint }).taint(cniTaint).silent(0), "write [] spot:Closed>Open(SignalsCleared)"},
	})
}

// A person who takes the taint off a node that has returned means it, also if the
// controller sees neither before the node falls silent again.
func TestOutOfServiceIsTakenOff(t *testing.T) {
	node := func() *sim { return aNode(spot()).armed().outOfService().untaint(gone) }
	check(t, map[string]spec{
		"in a silence that is new":   {node().silent(time.Second), "write [] spot:Closed>Open(OpenedByHand)"},
		"in a partition":             {node().silent(time.Hour).zone(10, 10), "write [] spot:Closed>Open(OpenedByHand)"},
		"while nothing is known":     {node().flag("spot", "unknown").silent(time.Hour), "write [] spot:Closed>Open(OpenedByHand)"},
		"while it is gone: once":     {node().silent(time.Hour), "write [" + gone + "] spot:Closed>Closed(Birth)"},
		"though the gate is refused": {aNode(spot(refused)).armed().outOfService().untaint(gone).silent(0), "write [] spot:Closed>-(OpenedByHand)"},
	})
}

// The minute counts by the API's clock: a restart neither shortens nor prolongs
// it, and it is known in advance when to look again.
func TestOutOfServiceIsLookedAtAgain(t *testing.T) {
	s := aNode(spot()).armed().silent(10 * time.Second)
	d := s.run(t)
	if want := s.now.Add(51 * time.Second); !d.Recheck.Equal(want) {
		t.Fatalf("recheck at %s, want %s", d.Recheck, want)
	}
	s.now = d.Recheck
	if got, want := show(s.run(t)), "write ["+gone+"] spot:Open>Closed(SignalsHold)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if taint := s.facts.Node.Taints[0]; taint.TimeAdded == nil || !taint.TimeAdded.Time.Equal(s.now) {
		t.Errorf("taint: %+v", taint)
	}
}

// A life: notice, silence, a word, silence again, another machine under its name.
func TestOutOfServiceLife(t *testing.T) {
	s := aNode(spot()).granting("spot")
	for _, step := range []struct {
		what   string
		happen func()
		want   string
	}{
		{"the notice", func() { s.flag("spot", "holds") }, "[] spot:Open>Open"},
		{"silence", func() { s.silent(0) }, "[] spot:Open>Open"},
		{"a minute of it", func() { s.after(goneAfter) }, "write [" + gone + "] spot:Open>Closed(SignalsHold)"},
		{"a word", func() { s.ready("False") }, "write [] spot:Closed>Open(NodeReturned)"},
		{"silence again", func() { s.silent(0) }, "[] spot:Open>Open"},
		{"its minute counts anew", func() { s.after(time.Minute) }, "[] spot:Open>Open"},
		{"and is over", func() { s.after(time.Second) }, "write [" + gone + "] spot:Open>Closed(SignalsHold)"},
		{"another machine", func() {
			n := &s.facts.Node
			n.UID, n.Created, n.BootID, n.Taints, n.Records = "uid-2", s.now, "b", nil, map[string]string{}
			s.ready("True")
		}, "[] spot:Open>Open"},
		{"with a taint and a record that it brought along", func() { s.outOfService() }, "write [] spot:->Open(SignalsCleared)"},
	} {
		step.happen()
		if got := show(s.run(t)); got != step.want {
			t.Errorf("%s:\n got %s\nwant %s", step.what, got, step.want)
		}
	}
}

func TestOutOfServiceIsAccepted(t *testing.T) {
	for name, c := range map[string]struct {
		gate Gate
		says string
	}{
		"in force":             {spot(), "in force"},
		"openWhen":             {aGate("spot", tainting(gone), mayDetach), "only a closeWhen gate"},
		"not acknowledged":     {follower("spot", tainting(gone)), "add VolumeDetach to acknowledge"},
		"waiting for a person": {spot(byHand), "remove reopen"},
	} {
		a := Accept([]Gate{c.gate}, KeyPolicy{Allowed: allowed(v1alpha1.TaintOutOfService + ":NoExecute")})["spot"]
		if a.Accepted != (name == "in force") || !strings.Contains(a.Message, c.says) {
			t.Errorf("%s: %+v, want %q", name, a, c.says)
		}
	}
	a := Accept([]Gate{spot()}, KeyPolicy{Allowed: allowed()})["spot"]
	if a.Reason != v1alpha1.ReasonTaintKeyNotAllowed || !slices.Contains(strings.Fields(a.Message), v1alpha1.TaintOutOfService+":NoExecute:") {
		t.Errorf("not allowed: %+v", a)
	}
}
