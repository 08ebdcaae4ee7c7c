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

// spot returns a gate that puts spot nodes out of service.
func spot(options ...func(*Gate)) Gate {
	return follower("spot", append([]func(*Gate){tainting(gone), mayDetach}, options...)...)
}

// silent makes the node unreachable since the given time, in a zone whose other nodes
// are reporting.
func (s *sim) silent(ago time.Duration) *sim {
	s.ready("Unknown").zone(10, 1)
	s.facts.Node.Conditions[0].Transition = s.now.Add(-ago)
	return s
}

func (s *sim) armed() *sim { return s.flag("spot", "holds").granting("spot") }

// outOfService closes the gate on the node.
func (s *sim) outOfService() *sim {
	return s.record("spot", "Closed", func(r *Record) { r.Taint = gone }).taint(gone)
}

// The notice arms the gate, and unreachability triggers it.
func TestOutOfServiceCloses(t *testing.T) {
	node := func() *sim { return aNode(spot()) }
	check(t, map[string]spec{
		"armed and unreachable for a minute":                                 {node().armed().silent(goneAfter), "write [" + gone + "] spot:Open>Closed(SignalsHold)"},
		"it requests budget":                                                 {node().flag("spot", "holds").silent(goneAfter), "[] spot:Open>Open wants=Budget"},
		"unreachable, not armed":                                             {node().granting("spot").silent(time.Hour), "[] spot:Open>Open"},
		"unreachable, signal unknown":                                        {node().flag("spot", "unknown").granting("spot").silent(time.Hour), "[] spot:Open>Open"},
		"armed and ready":                                                    {node().armed(), "[] spot:Open>Open"},
		"armed and not ready: it is reporting":                               {node().armed().ready("False").after(time.Hour), "[] spot:Open>Open"},
		"armed, without a Ready condition":                                   {node().armed().ready(""), "[] spot:Open>Open"},
		"armed and shutting down":                                            {node().armed().ready("False").shuttingDown(true), "[] spot:Open>Open"},
		"unreachable for less":                                               {node().armed().silent(time.Minute), "[] spot:Open>Open"},
		"unreachable, without a transition time":                             {node().armed().silent(0).undated(), "[] spot:Open>Open"},
		"observed to be unreachable for less, and the API's clock is behind": {node().armed().silent(time.Hour).observedSilent(time.Minute), "[] spot:Open>Open"},
		"observed to be unreachable for a minute":                            {node().armed().silent(time.Hour).observedSilent(goneAfter), "write [" + gone + "] spot:Open>Closed(SignalsHold)"},
		"observed for a minute, and the API's clock is ahead":                {node().armed().silent(time.Second).observedSilent(time.Hour), "[] spot:Open>Open"},
		"the API's clock is ahead":                                           {node().armed().silent(-time.Hour), "[] spot:Open>Open"},
		"the cloud's shutdown taint":                                         {node().armed().taint(cloudSaysOff).silent(0), "write [" + cloudSaysOff + " " + gone + "] spot:Open>Closed(SignalsHold)"},
		"the cloud's shutdown taint, without a transition time":              {node().armed().taint(cloudSaysOff).silent(0).undated(), "write [" + cloudSaysOff + " " + gone + "] spot:Open>Closed(SignalsHold)"},
		"the cloud's shutdown taint, not armed":                              {node().granting("spot").taint(cloudSaysOff).silent(time.Hour), "[" + cloudSaysOff + "] spot:Open>Open"},
		"the cloud's shutdown taint on a ready node":                         {node().armed().taint(cloudSaysOff), "[" + cloudSaysOff + "] spot:Open>Open"},
		"the cloud's shutdown taint on a node that is not ready":             {node().armed().taint(cloudSaysOff).ready("False"), "[" + cloudSaysOff + "] spot:Open>Open"},
		"a partition":    {node().armed().silent(time.Hour).zone(10, 6), "[] spot:Open>Open"},
		"half of a zone": {node().armed().silent(time.Hour).zone(10, 5), "write [" + gone + "] spot:Open>Closed(SignalsHold)"},
		"a partition, but with the cloud's shutdown taint": {node().armed().taint(cloudSaysOff).silent(0).zone(10, 10), "write [" + cloudSaysOff + " " + gone + "] spot:Open>Closed(SignalsHold)"},
		"a gate that is not accepted":                      {aNode(spot(refused)).armed().silent(time.Hour), "[] spot:->-"},
		"effect NoSchedule": {aNode(spot(tainting(v1alpha1.TaintOutOfService + ":NoSchedule"))).armed().silent(time.Hour),
			"write [" + v1alpha1.TaintOutOfService + ":NoSchedule] spot:Open>Closed(SignalsHold)"},
	})
}

// observedSilent makes the node one that was observed to become unreachable at that time.
func (s *sim) observedSilent(ago time.Duration) *sim {
	s.facts.SilentSince = s.now.Add(-ago)
	return s
}

func (s *sim) undated() *sim { s.facts.Node.Conditions[0].Transition = time.Time{}; return s }

// The taint is removed as soon as the node is reporting, in any case.
func TestOutOfServiceOpens(t *testing.T) {
	node := func(options ...func(*Gate)) *sim { return aNode(spot(options...)).armed().outOfService() }
	check(t, map[string]spec{
		"unreachable: it stays":                 {node().silent(time.Hour), "[" + gone + "] spot:Closed>Closed(Birth)"},
		"it stays in a partition":               {node().silent(time.Hour).zone(10, 10), "[" + gone + "] spot:Closed>Closed(Birth)"},
		"it stays while the signal is unknown":  {node().flag("spot", "unknown").silent(time.Hour), "[" + gone + "] spot:Closed>Closed(Birth)"},
		"the notice is withdrawn":               {node().flag("spot", "no").silent(time.Hour), "write [] spot:Closed>Open(SignalsCleared)"},
		"the cloud's shutdown taint is removed": {node().silent(time.Second), "[" + gone + "] spot:Closed>Closed(Birth)"},
		"ready":                                 {node(), "write [] spot:Closed>Open(NodeReturned)"},
		"not ready":                             {node().ready("False"), "write [] spot:Closed>Open(NodeReturned)"},
		"no Ready condition":                    {node().ready(""), "write [] spot:Closed>Open(NodeReturned)"},
		"despite the cloud's shutdown taint": {aNode(spot()).armed().taint(cloudSaysOff).outOfService(),
			"write [" + cloudSaysOff + "] spot:Closed>Open(NodeReturned)"},
		"despite an unknown signal":         {node().flag("spot", "unknown"), "write [] spot:Closed>Open(NodeReturned)"},
		"despite reopen Manual":             {node(manual), "write [] spot:Closed>-(NodeReturned)"},
		"although the gate is not accepted": {node(refused), "write [] spot:Closed>-(NodeReturned)"},
		"although it has no signals":        {node(waitingFor()), "write [] spot:Closed>Open(NodeReturned)"},
		"although another gate is held open": {aNode(spot(), follower("z", tainting(gone), mayDetach, broken)).armed().outOfService().open("z"),
			"write [] spot:Closed>Open(NodeReturned) z:Open>Open(Birth) held"},
		"although the gate is broken":                {node(broken), "write [] spot:Closed>-(NodeReturned)"},
		"although it is not a closeWhen gate":        {node(func(g *Gate) { g.CloseWhen = false; g.Accepted = false }), "write [] spot:Closed>-(NodeReturned)"},
		"although the gate is unknown":               {aNode().outOfService().invisible(), "write [] spot:Closed>-(NodeReturned)"},
		"the gate is unknown, unreachable: it stays": {aNode().outOfService().invisible().silent(time.Hour), "[" + gone + "] spot:Closed>Closed(Birth) held"},
		"the gate is deleted":                        {aNode().outOfService().silent(time.Hour), "write [] spot:Closed>-(GateDeleted)"},
		"the gate has another taint now":             {node(tainting(cniTaint)), "write [" + cniTaint + "] spot:Closed>Closed(Birth)"},
		"its key must not be changed now": {aNode(spot(tainting(cniTaint), refused)).armed().outOfService().allowing(v1alpha1.TaintOutOfService + ":NoExecute"),
			"write [] spot:Closed>-(NodeReturned)"},
		"its key is not allowed": {aNode(spot()).armed().outOfService().allowing("x"),
			"[" + gone + "] spot:Closed>Closed(Birth) held"},
	})
}

func (s *sim) allowing(keys ...string) *sim {
	s.facts.Allowed = allowed(keys...)
	return s
}

// Kubernetes requires users to add this taint manually and to remove it when the node
// has returned. If a gate has the key, it is removed automatically.
func TestOutOfServiceAddedByUser(t *testing.T) {
	node := func() *sim { return aNode(spot()).granting("spot").taint(gone) }
	check(t, map[string]spec{
		"it stays on an unreachable node":          {node().silent(time.Second), "[" + gone + "] spot:Open>Open"},
		"it stays while the node is unreachable":   {node().silent(time.Hour), "[" + gone + "] spot:Open>Open"},
		"it is adopted when the gate closes":       {node().armed().silent(time.Hour), "write [" + gone + "] spot:Open>Closed(SignalsHold)"},
		"it is not adopted before":                 {node().armed().silent(time.Second), "[" + gone + "] spot:Open>Open"},
		"it is removed when the node is reporting": {node(), "write [] spot:->Open(SignalsCleared)"},
		"it is removed even if the gate is armed":  {node().armed(), "write [] spot:->Open(SignalsCleared)"},
		"earlier contention is forgotten":          {node().record("spot", "Open", func(r *Record) { r.Taint = gone }).silent(time.Second), "write [" + gone + "] spot:Open>Open"},
		"another effect is foreign":                {aNode(spot()).taint(v1alpha1.TaintOutOfService + ":NoSchedule"), "[" + v1alpha1.TaintOutOfService + ":NoSchedule] spot:Open>Open"},
		"without a gate it is foreign":             {aNode().taint(gone), "[" + gone + "]"},
	})
}

// A closed gate that is edited to have this key closes no earlier than another gate.
func TestOutOfServiceAfterAnEdit(t *testing.T) {
	node := func() *sim {
		return aNode(spot()).armed().record("spot", "Closed", func(r *Record) { r.Taint = cniTaint }).taint(cniTaint)
	}
	check(t, map[string]spec{
		"the node is reporting":       {node(), "write [] spot:Closed>Open(SignalsCleared)"},
		"unreachable for less":        {node().silent(time.Second), "write [] spot:Closed>Open(SignalsCleared)"},
		"unreachable for long enough": {node().silent(time.Hour), "write [" + gone + "] spot:Closed>Closed(SignalsHold)"},
		"there is no budget":          {node().granting().silent(time.Hour), "write [] spot:Closed>Open(SignalsCleared) wants=Budget"},
		"reopen Manual":               {aNode(spot(manual)).armed().record("spot", "Closed", func(r *Record) { r.Taint = cniTaint }).taint(cniTaint).silent(0), "write [] spot:Closed>Open(SignalsCleared)"},
	})
}

// A user who removes the taint from a node that has returned is respected, even if the
// controller observes neither before the node becomes unreachable again.
func TestOutOfServiceIsRemovedByUser(t *testing.T) {
	node := func() *sim { return aNode(spot()).armed().outOfService().untaint(gone) }
	check(t, map[string]spec{
		"newly unreachable":                     {node().silent(time.Second), "write [] spot:Closed>Open(OpenedByHand)"},
		"in a partition":                        {node().silent(time.Hour).zone(10, 10), "write [] spot:Closed>Open(OpenedByHand)"},
		"while the signal is unknown":           {node().flag("spot", "unknown").silent(time.Hour), "write [] spot:Closed>Open(OpenedByHand)"},
		"unreachable for long enough: restored": {node().silent(time.Hour), "write [" + gone + "] spot:Closed>Closed(Birth)"},
		"the gate is not accepted":              {aNode(spot(refused)).armed().outOfService().untaint(gone).silent(0), "write [] spot:Closed>-(OpenedByHand)"},
	})
}

// The minute is measured by the API's times: a restart neither shortens nor extends it,
// and the time of the recheck is known in advance.
func TestOutOfServiceRecheck(t *testing.T) {
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

// A sequence: notice, unreachable, reporting, unreachable again, another machine with
// the same name.
func TestOutOfServiceLife(t *testing.T) {
	s := aNode(spot()).granting("spot")
	for _, step := range []struct {
		what   string
		happen func()
		want   string
	}{
		{"the notice", func() { s.flag("spot", "holds") }, "[] spot:Open>Open"},
		{"unreachable", func() { s.silent(0) }, "[] spot:Open>Open"},
		{"unreachable for a minute", func() { s.after(goneAfter) }, "write [" + gone + "] spot:Open>Closed(SignalsHold)"},
		{"it is reporting", func() { s.ready("False") }, "write [] spot:Closed>Open(NodeReturned)"},
		{"unreachable again", func() { s.silent(0) }, "[] spot:Open>Open"},
		{"the minute starts again", func() { s.after(time.Minute) }, "[] spot:Open>Open"},
		{"the minute is over", func() { s.after(time.Second) }, "write [" + gone + "] spot:Open>Closed(SignalsHold)"},
		{"another machine", func() {
			n := &s.facts.Node
			n.UID, n.Created, n.BootID, n.Taints, n.Records = "uid-2", s.now, "b", nil, map[string]string{}
			s.ready("True")
		}, "[] spot:Open>Open"},
		{"with a taint and a record that it was submitted with", func() { s.outOfService() }, "write [] spot:->Open(SignalsCleared)"},
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
		text string
	}{
		"in force":         {spot(), "in force"},
		"openWhen":         {aGate("spot", tainting(gone), mayDetach), "only a closeWhen gate"},
		"not acknowledged": {follower("spot", tainting(gone)), "add VolumeDetach to acknowledge"},
		"reopen Manual":    {spot(manual), "remove reopen"},
	} {
		a := Accept([]Gate{c.gate}, KeyPolicy{Allowed: allowed(v1alpha1.TaintOutOfService + ":NoExecute")})["spot"]
		if a.Accepted != (name == "in force") || !strings.Contains(a.Message, c.text) {
			t.Errorf("%s: %+v, want %q", name, a, c.text)
		}
	}
	a := Accept([]Gate{spot()}, KeyPolicy{Allowed: allowed()})["spot"]
	if a.Reason != v1alpha1.ReasonTaintKeyNotAllowed || !slices.Contains(strings.Fields(a.Message), v1alpha1.TaintOutOfService+":NoExecute:") {
		t.Errorf("not allowed: %+v", a)
	}
}
