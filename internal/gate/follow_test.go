// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// follower returns a closeWhen gate.
func follower(name string, options ...func(*Gate)) Gate {
	g := aGate(name, options...)
	g.CloseWhen = true
	return g
}

func manual(g *Gate) { g.Manual = true }

func openedByHand(r *Record) { r.Reason = v1alpha1.ReasonOpenedByHand }

func TestFollowing(t *testing.T) {
	bad := follower("cni")
	and := follower("cni", waitingFor(flagSignal("x"), flagSignal("y")))
	check(t, map[string]spec{
		"an open node is not written to":                {aNode(bad), "[] cni:Open>Open"},
		"a new node is not written to":                  {aNode(bad).age(0), "[] cni:Open>Open"},
		"a node with unknown signals is not written to": {aNode(bad).flag("cni", "unknown").ready(""), "[] cni:Open>Open"},
		"a node that is not selected is ignored":        {aNode(follower("cni", selecting("a=b"))).flag("cni", "holds"), "[]"},
		"closing requests budget":                       {aNode(bad).flag("cni", "holds"), "[] cni:Open>Open wants=Budget"},
		"closes once granted":                           {aNode(bad).flag("cni", "holds").granting("cni"), "write [" + cniTaint + "] cni:Open>Closed(SignalsHold)"},
		"closes on a new node":                          {aNode(bad).age(0).flag("cni", "holds").granting("cni"), "write [" + cniTaint + "] cni:Open>Closed(SignalsHold)"},
		"all must hold":                                 {aNode(and).flag("x", "holds").granting("cni"), "[] cni:Open>Open"},
		"closes if all hold":                            {aNode(and).flag("x", "holds").flag("y", "holds").granting("cni"), "write [" + cniTaint + "] cni:Open>Closed(SignalsHold)"},
		"Unknown does not close":                        {aNode(and).flag("x", "holds").flag("y", "unknown").granting("cni"), "[] cni:Open>Open"},
		"stays closed":                                  {aNode(bad).closed("cni").flag("cni", "holds"), "[" + cniTaint + "] cni:Closed>Closed(Birth)"},
		"opens: taint and record are removed together":  {aNode(bad).closed("cni"), "write [] cni:Closed>Open(SignalsCleared)"},
		"one that does not hold is enough":              {aNode(and).closed("cni").flag("x", "unknown"), "write [] cni:Closed>Open(SignalsCleared)"},
		"Unknown does not open":                         {aNode(and).closed("cni").flag("x", "holds").flag("y", "unknown"), "[" + cniTaint + "] cni:Closed>Closed(Birth)"},
		"unreachability does not prevent opening":       {aNode(bad).closed("cni").ready("Unknown"), "write [] cni:Closed>Open(SignalsCleared)"},
		"shutdown does not prevent opening":             {aNode(bad).closed("cni").shuttingDown(true), "write [] cni:Closed>Open(SignalsCleared)"},
		"setup does not prevent opening": {aNode(bad).closed("cni").taint("karpenter.sh/unregistered:NoExecute"),
			"write [karpenter.sh/unregistered:NoExecute] cni:Closed>Open(SignalsCleared)"},
		"unreachability, shutdown and reboot do not close": {aNode(bad).ready("Unknown").shuttingDown(true).boot("b"), "[] cni:Open>Open"},
		"a reboot changes nothing":                         {aNode(bad).closed("cni").flag("cni", "holds").boot("b"), "[" + cniTaint + "] cni:Closed>Closed(Birth)"},
		"foreign taints stay": {aNode(bad).taint("a.example/x:NoSchedule").closed("cni").taint("z.example/x:NoExecute"),
			"write [a.example/x:NoSchedule z.example/x:NoExecute] cni:Closed>Open(SignalsCleared)"},
		"a gate that is not accepted does not close":  {aNode(follower("cni", refused)).flag("cni", "holds").granting("cni"), "[] cni:->-"},
		"a gate that is not accepted still opens":     {aNode(follower("cni", refused)).closed("cni"), "write [] cni:Closed>-(SignalsCleared)"},
		"a gate without signals does neither":         {aNode(follower("cni", waitingFor())).closed("cni"), "[" + cniTaint + "] cni:Closed>Closed(Birth)"},
		"a node that is no longer selected is opened": {aNode(follower("cni", selecting("a=b"))).closed("cni").flag("cni", "holds").left("cni"), "write [] cni:Closed>-(NotSelected)"},
		"the gate is deleted":                         {aNode().closed("cni").flag("cni", "holds"), "write [] cni:Closed>-(GateDeleted)"},
		"the gate is invisible":                       {aNode().closed("cni").invisible(), "[" + cniTaint + "] cni:Closed>Closed(Birth) held"},
		"an edited taint is replaced": {aNode(follower("cni", tainting("new.example/x:NoExecute"))).closed("cni").flag("cni", "holds"),
			"write [new.example/x:NoExecute] cni:Closed>Closed(Birth)"},
		"edited as it opens": {aNode(follower("cni", tainting("new.example/x:NoExecute"))).closed("cni").taint("new.example/x:NoExecute"),
			"write [] cni:Closed>Open(SignalsCleared)"},
		"a wrong value is corrected": {aNode(bad).record("cni", "Closed").taint("cni.example/not-ready=other:NoSchedule").flag("cni", "holds"),
			"write [" + cniTaint + "] cni:Closed>Closed(Birth)"},
		"a damaged record of an open node is removed": {aNode(bad).raw("cni", "{"), "write [] cni:Open>Open"},
		"a record from openWhen is kept":              {aNode(bad).open("cni").boot("b"), "[] cni:Open>Open(Birth)"},
	})
}

// A tool that nodegate replaces has left its taints on nodes.
func TestFollowingTaintsOfOthers(t *testing.T) {
	bad := follower("cni")
	check(t, map[string]spec{
		"the signals hold: closed, without a grant":   {aNode(bad).taint(cniTaint).flag("cni", "holds"), "write [" + cniTaint + "] cni:Open>Closed(SignalsHold)"},
		"the signals are unknown: closed":             {aNode(bad).taint(cniTaint).flag("cni", "unknown"), "write [" + cniTaint + "] cni:Open>Closed(Adopted)"},
		"the signals do not hold: removed":            {aNode(bad).taint(cniTaint), "write [] cni:->Open(SignalsCleared)"},
		"another value belongs to the gate":           {aNode(bad).taint("cni.example/not-ready=x:NoSchedule"), "write [] cni:->Open(SignalsCleared)"},
		"another effect does not":                     {aNode(bad).taint("cni.example/not-ready:NoExecute"), "[cni.example/not-ready:NoExecute] cni:Open>Open"},
		"a gate that is not accepted changes nothing": {aNode(follower("cni", refused)).taint(cniTaint), "[" + cniTaint + "] cni:->-"},
		"reopen Manual: closed": {aNode(follower("cni", manual)).taint(cniTaint),
			"write [" + cniTaint + "] cni:Open>Closed(Adopted) blocked=ReopenedByHand"},
		"damaged record, taint present": {aNode(bad).raw("cni", "{").taint(cniTaint).flag("cni", "holds"), "write [" + cniTaint + "] cni:Open>Closed(SignalsHold)"},
	})
}

// A taint that gates share is on the node while one of them is closed.
func TestFollowingTogether(t *testing.T) {
	two := []Gate{follower("a", tainting(cniTaint)), follower("b", tainting(cniTaint))}
	held := func(name string) func(*sim) *sim {
		return func(s *sim) *sim { return s.record(name, "Closed", func(r *Record) { r.Taint = cniTaint }) }
	}
	both := func() *sim { return held("a")(held("b")(aNode(two...).taint(cniTaint))) }
	grant := func(s *sim) *sim { return s.granting("a", "b") }
	check(t, map[string]spec{
		"one closes":                              {grant(aNode(two...).flag("b", "holds")), "write [" + cniTaint + "] a:Open>Open b:Open>Closed(SignalsHold)"},
		"both close, with one taint":              {grant(aNode(two...).flag("a", "holds").flag("b", "holds")), "write [" + cniTaint + "] a:Open>Closed(SignalsHold) b:Open>Closed(SignalsHold)"},
		"one opens":                               {both().flag("a", "holds"), "write [" + cniTaint + "] a:Closed>Closed(Birth) b:Closed>Open(SignalsCleared)"},
		"both open":                               {both(), "write [] a:Closed>Open(SignalsCleared) b:Closed>Open(SignalsCleared)"},
		"an existing taint: the first adopts it":  {aNode(two...).taint(cniTaint).flag("a", "holds"), "write [" + cniTaint + "] a:Open>Closed(SignalsHold) b:Open>Open"},
		"an existing taint: the second adopts it": {aNode(two...).taint(cniTaint).flag("b", "holds"), "write [" + cniTaint + "] a:Open>Open b:Open>Closed(SignalsHold)"},
		"an existing taint: one keeps a record":   {aNode(two...).taint(cniTaint), "write [] a:->Open(SignalsCleared) b:Open>Open"},
		"with an openWhen gate: closed": {
			aNode(aGate("b", tainting(cniTaint)), two[0]).record("b", "Closed", func(r *Record) { r.Taint = cniTaint }).taint(cniTaint),
			"[" + cniTaint + "] a:Open>Open b:Closed>Closed(Birth)"},
		"with an openWhen gate: it opens": {
			aNode(aGate("b", tainting(cniTaint)), two[0]).record("b", "Closed", func(r *Record) { r.Taint = cniTaint }).taint(cniTaint).flag("b", "holds"),
			"write [] a:Open>Open b:Closed>Open(SignalsHold)"},
	})
	if s := aNode(two...).taint(cniTaint); len(s.run(t).Records) != 1 {
		t.Errorf("records: %v", s.facts.Node.Records)
	}
}

func TestReopenManual(t *testing.T) {
	s := aNode(follower("cni", manual)).flag("cni", "holds").granting("cni")
	for _, step := range []struct {
		what   string
		happen func()
		want   string
	}{
		{"closes", func() {}, "write [" + cniTaint + "] cni:Open>Closed(SignalsHold)"},
		{"Unknown", func() { s.flag("cni", "unknown") }, "[" + cniTaint + "] cni:Closed>Closed(SignalsHold)"},
		{"the signal no longer holds", func() { s.flag("cni", "no") }, "[" + cniTaint + "] cni:Closed>Closed(SignalsHold) blocked=ReopenedByHand"},
		{"a wrong value is no opening", func() { s.untaint(cniTaint).taint("cni.example/not-ready=x:NoSchedule") },
			"write [" + cniTaint + "] cni:Closed>Closed(SignalsHold) blocked=ReopenedByHand"},
		{"a user opens it", func() { s.untaint(cniTaint) }, "write [] cni:Closed>Open(OpenedByHand)"},
		{"no more to write", func() {}, "[] cni:Open>Open"},
		{"closes again", func() { s.flag("cni", "holds") }, "write [" + cniTaint + "] cni:Open>Closed(SignalsHold)"},
		{"a user opens it although its signal holds", func() { s.untaint(cniTaint) }, "write [] cni:Closed>Open(OpenedByHand)"},
		{"it stays open", func() {}, "[] cni:Open>Open(OpenedByHand)"},
		{"Unknown does not arm it", func() { s.flag("cni", "unknown") }, "[] cni:Open>Open(OpenedByHand)"},
		{"it still stays open", func() { s.flag("cni", "holds") }, "[] cni:Open>Open(OpenedByHand)"},
		{"a user closes it", func() { s.taint(cniTaint) }, "write [" + cniTaint + "] cni:Open>Closed(SignalsHold)"},
		{"and opens it", func() { s.untaint(cniTaint) }, "write [] cni:Closed>Open(OpenedByHand)"},
		{"the signal no longer holds: armed", func() { s.flag("cni", "no") }, "write [] cni:Open>Open"},
		{"closes", func() { s.flag("cni", "holds") }, "write [" + cniTaint + "] cni:Open>Closed(SignalsHold)"},
	} {
		step.happen()
		if got := show(s.run(t)); got != step.want {
			t.Errorf("%s:\n got %s\nwant %s", step.what, got, step.want)
		}
		s.after(time.Minute)
	}
}

func TestReopenIsEdited(t *testing.T) {
	manual := follower("cni", manual)
	check(t, map[string]spec{
		"changed to Automatic: closes again": {aNode(follower("cni")).record("cni", "Open", openedByHand).flag("cni", "holds"),
			"[] cni:Open>Open(OpenedByHand) wants=Budget"},
		"changed to Manual: stays closed":                       {aNode(manual).closed("cni"), "[" + cniTaint + "] cni:Closed>Closed(Birth) blocked=ReopenedByHand"},
		"a record with another reason does not prevent closing": {aNode(manual).open("cni").flag("cni", "holds"), "[] cni:Open>Open(Birth) wants=Budget"},
	})
}

// If another writer contends for the taint, nodegate backs off.
func TestFollowingContention(t *testing.T) {
	closed := aNode(follower("cni")).closed("cni").flag("cni", "holds").untaint(cniTaint)
	if got, want := show(closed.run(t)), "write ["+cniTaint+"] cni:Closed>Closed(Birth)"; got != want {
		t.Errorf("removed once: got %s, want %s", got, want)
	}
	closed.after(time.Second).untaint(cniTaint)
	if got, want := show(closed.run(t)), "[] cni:Closed>Closed(Birth) contended"; got != want {
		t.Errorf("removed twice: got %s, want %s", got, want)
	}
	if got, want := show(closed.flag("cni", "no").run(t)), "write [] cni:Closed>Open(SignalsCleared)"; got != want {
		t.Errorf("opens during contention: got %s, want %s", got, want)
	}

	open := aNode(follower("cni")).taint(cniTaint)
	open.run(t)
	open.after(time.Second).taint(cniTaint)
	if d := open.run(t); show(d) != "["+cniTaint+"] cni:Open>Open(SignalsCleared) contended" || d.Recheck.IsZero() {
		t.Errorf("added twice: got %s, recheck %s", show(d), d.Recheck)
	}
	open.after(contentionBackoff)
	if got, want := show(open.run(t)), "write [] cni:Open>Open(SignalsCleared) contended"; got != want {
		t.Errorf("after a while: got %s, want %s", got, want)
	}
}

// If several gates have records, exactly one of them counts the writes of the other
// writer.
func TestFollowingContentionIsCountedOnce(t *testing.T) {
	shared := func(r *Record) { r.Taint = cniTaint }
	s := aNode(follower("a", tainting(cniTaint)), follower("b", tainting(cniTaint))).
		record("a", "Open", shared).record("b", "Open", shared).taint(cniTaint)
	if d := s.run(t); len(d.Records) != 1 || len(d.Taints) != 0 {
		t.Errorf("added once: %s, records %v", show(d), d.Records)
	}
	if got, want := show(s.after(time.Second).taint(cniTaint).run(t)),
		"["+cniTaint+"] a:Open>Open(Birth) contended b:Open>Open(Birth)"; got != want {
		t.Errorf("added twice: got %s, want %s", got, want)
	}
}

func TestFollowingHasTimeAdded(t *testing.T) {
	s := aNode(follower("cni", tainting("cni.example/x:NoExecute"))).flag("cni", "holds").granting("cni")
	s.run(t)
	taint := s.facts.Node.Taints[0]
	if taint.Effect != corev1.TaintEffectNoExecute || taint.TimeAdded == nil || !taint.TimeAdded.Time.Equal(epoch) {
		t.Errorf("taint: %+v", taint)
	}
}

// For a closeWhen gate, pods need no evidence of the boot.
func TestFollowingAcceptsAnyPod(t *testing.T) {
	s := aNode(follower("cni", waitingFor(agent("cni")))).pod("cni", "x", true).granting("cni").boot("b").ready("Unknown")
	if got, want := show(s.run(t)), "write ["+cniTaint+"] cni:Open>Closed(SignalsHold)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Deleting or renaming one of two gates that share a taint does not open a node that
// the other one would close.
func TestFollowingRenamed(t *testing.T) {
	s := aNode(follower("zzz", tainting(cniTaint))).closed("cni").flag("zzz", "holds")
	if got, want := show(s.run(t)), "write ["+cniTaint+"] cni:->-(GateDeleted) zzz:Closed>Closed(Birth)"; got != want {
		t.Errorf("renamed: got %s, want %s", got, want)
	}
	s = aNode(follower("zzz", tainting(cniTaint))).closed("cni")
	if got, want := show(s.run(t)), "write [] cni:->-(GateDeleted) zzz:Closed>Open(SignalsCleared)"; got != want {
		t.Errorf("signals do not hold: got %s, want %s", got, want)
	}
}
