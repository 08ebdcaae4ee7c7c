// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strings"
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

const (
	day = 24 * time.Hour

	never        = v1alpha1.RecloseNever
	onReboot     = v1alpha1.RecloseOnReboot
	onRegression = v1alpha1.RecloseOnRegression
)

// spec is one rule of the specification: a node, and the expected decision.
type spec struct {
	node *sim
	want string
}

func check(t *testing.T, specs map[string]spec) {
	t.Helper()
	for name, c := range specs {
		t.Run(name, func(t *testing.T) {
			if got := show(c.node.run(t)); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestBirth(t *testing.T) {
	cni := aGate("cni")
	check(t, map[string]spec{
		"a new node is closed": {
			aNode(cni).age(time.Second),
			"write [" + cniTaint + "] cni:->Closed(Birth)"},
		"a node that the API server closed stays closed without a write": {
			aNode(cni).age(time.Second).taint(cniTaint).raw("cni", `{"state":"Closed","reason":"Birth","boot":"a","taint":"`+cniTaint+`","source":"crd"}`),
			"[" + cniTaint + "] cni:Closed>Closed(Birth)"},
		"a new node whose signals hold becomes a member without a taint": {
			aNode(cni).age(time.Second).flag("cni", "holds"),
			"write [] cni:->Open(SignalsHold)"},
		"Unknown does not open": {
			aNode(cni).age(time.Second).flag("cni", "unknown"),
			"write [" + cniTaint + "] cni:->Closed(Birth)"},
		"a taint from the kubelet or node pool is adopted at birth": {
			aNode(cni).age(time.Second).taint("foreign.example/x:NoSchedule", cniTaint),
			"write [foreign.example/x:NoSchedule " + cniTaint + "] cni:->Closed(Birth)"},
		"an adopted taint gets the gate's value at the same index": {
			aNode(cni).age(time.Second).taint("cni.example/not-ready=pool:NoSchedule", "foreign.example/x:NoSchedule"),
			"write [" + cniTaint + " foreign.example/x:NoSchedule] cni:->Closed(Birth)"},
		"a node that the gate does not select is left alone": {
			aNode(aGate("cni", selecting("pool=gpu"))).age(time.Second),
			"[]"},
		"a node that becomes selected 9:59 after its creation is new": {
			aNode(aGate("cni", selecting("pool=gpu"))).age(9*time.Minute+59*time.Second).label("pool", "gpu"),
			"write [" + cniTaint + "] cni:->Closed(Birth)"},
		"a node that becomes selected 10:01 after its creation is not new": {
			aNode(aGate("cni", selecting("pool=gpu"))).age(10*time.Minute+time.Second).label("pool", "gpu"),
			"[] cni:->-"},
		"a node that is older than the gate is not new, however young": {
			aNode(aGate("cni", createdAgo(time.Minute))).age(2 * time.Minute),
			"[] cni:->-"},
		"a gate that is not accepted closes nothing": {
			aNode(aGate("cni", refused)).age(time.Second),
			"[] cni:->-"},
		"a gate that is not accepted does not adopt a taint": {
			aNode(aGate("cni", refused)).taint(cniTaint),
			"[" + cniTaint + "] cni:->-"},
		"a new node whose record is unreadable is closed": {
			aNode(cni).age(time.Second).raw("cni", "garbage"),
			"write [" + cniTaint + "] cni:->Closed(Birth)"},
		"a node that seems to be created in the future is new": {
			aNode(cni).age(-time.Hour),
			"write [" + cniTaint + "] cni:->Closed(Birth)"},
	})
}

func TestSetUp(t *testing.T) {
	cni := aGate("cni")
	for _, taint := range []string{
		"node.cloudprovider.kubernetes.io/uninitialized", "node.cluster.x-k8s.io/uninitialized", "karpenter.sh/unregistered",
	} {
		check(t, map[string]spec{
			taint + ": no signal opens while the node is being set up": {
				aNode(cni).taint(taint+":NoSchedule").closed("cni").flag("cni", "holds"),
				"[" + taint + ":NoSchedule " + cniTaint + "] cni:Closed>Closed(Birth) blocked=NodeSetup"},
		})
	}
}

func TestExistingNodes(t *testing.T) {
	kind := func(e v1alpha1.ExistingNodes) *sim { return aNode(aGate("cni", existing(e))) }
	ignore, adopt, closing := v1alpha1.ExistingIgnore, v1alpha1.ExistingAdopt, v1alpha1.ExistingClose
	check(t, map[string]spec{
		"Ignore: not a member":                            {kind(ignore), "[] cni:->-"},
		"Ignore: even when the signals hold":              {kind(ignore).flag("cni", "holds"), "[] cni:->-"},
		"Ignore: unreachable":                             {kind(ignore).ready("Unknown"), "[] cni:->-"},
		"Ignore: shutdown":                                {kind(ignore).shuttingDown(true), "[] cni:->-"},
		"Ignore: taint present: closed":                   {kind(ignore).taint(cniTaint), "write [" + cniTaint + "] cni:->Closed(Adopted)"},
		"Ignore: taint present, signals hold: open":       {kind(ignore).taint(cniTaint).flag("cni", "holds"), "write [] cni:->Open(SignalsHold)"},
		"Adopt: not while the signals do not hold":        {kind(adopt), "[] cni:->-"},
		"Adopt: not on Unknown":                           {kind(adopt).flag("cni", "unknown"), "[] cni:->-"},
		"Adopt: requests to be paced":                     {kind(adopt).flag("cni", "holds"), "[] cni:->- wants=Pace"},
		"Adopt: a member once granted":                    {kind(adopt).flag("cni", "holds").granting("cni"), "write [] cni:->Open(Adopted)"},
		"Adopt: a grant alone does nothing":               {kind(adopt).granting("cni"), "[] cni:->-"},
		"Close: requests budget":                          {kind(closing), "[] cni:->- wants=Budget"},
		"Close: closes once granted":                      {kind(closing).granting("cni"), "write [" + cniTaint + "] cni:->Closed(Existing)"},
		"Close: not on Unknown":                           {kind(closing).flag("cni", "unknown").granting("cni"), "[] cni:->-"},
		"Close: not while signals are blocked":            {kind(closing).ready("Unknown").granting("cni"), "[] cni:->- blocked=NodeSilent"},
		"Close: signals hold: a member, open":             {kind(closing).flag("cni", "holds").granting("cni"), "write [] cni:->Open(Adopted)"},
		"Close at 9:59: new":                              {kind(closing).age(9*time.Minute + 59*time.Second), "write [" + cniTaint + "] cni:->Closed(Birth)"},
		"Close at 10:01: existing":                        {kind(closing).age(10*time.Minute + time.Second), "[] cni:->- wants=Budget"},
		"Adopt at 9:59: new":                              {kind(adopt).age(9*time.Minute + 59*time.Second), "write [" + cniTaint + "] cni:->Closed(Birth)"},
		"Adopt at 10:01: existing":                        {kind(adopt).age(10*time.Minute + time.Second), "[] cni:->-"},
		"the taint of another closed gate is not adopted": {aNode(aGate("a", tainting(cniTaint)), aGate("cni")).closed("cni"), "[" + cniTaint + "] a:->- cni:Closed>Closed(Birth)"},
	})
}

func TestLeaving(t *testing.T) {
	elsewhere := aGate("cni", selecting("pool=gpu"))
	check(t, map[string]spec{
		"a node that is no longer selected is opened and its record removed": {
			aNode(elsewhere).taint("x.example/y:NoExecute").closed("cni").left("cni"),
			"write [x.example/y:NoExecute] cni:Closed>-(NotSelected)"},
		"the record of an open node is removed": {
			aNode(elsewhere).open("cni").left("cni"), "write [] cni:Open>-(NotSelected)"},
		"a gate that is not accepted opens as well": {
			aNode(aGate("cni", selecting("pool=gpu"), refused)).closed("cni").left("cni"), "write [] cni:Closed>-(NotSelected)"},
		"a shared taint stays while the other gate is closed": {
			aNode(aGate("a", tainting(cniTaint), selecting("pool=gpu")), aGate("cni")).closed("cni").
				record("a", v1alpha1.StateClosed, func(r *Record) { r.Taint = cniTaint }).left("a"),
			"write [" + cniTaint + "] a:Closed>-(NotSelected) cni:Closed>Closed(Birth)"},
		"a gate whose selector cannot be read opens nothing": {
			aNode(aGate("cni", func(g *Gate) { g.Broken, g.Selector = true, nil })).closed("cni"),
			"[" + cniTaint + "] cni:Closed>Closed(Birth) held"},
	})
}

func TestGateGone(t *testing.T) {
	renamed := aGate("zzz", tainting(cniTaint), createdAgo(time.Minute))
	earlier := aGate("aaa", tainting(cniTaint), createdAgo(time.Minute))
	check(t, map[string]spec{
		"deleted: opened everywhere": {
			aNode().closed("cni"), "write [] cni:Closed>-(GateDeleted)"},
		"deleted while open: the record is removed": {
			aNode().open("cni"), "write [] cni:Open>-(GateDeleted)"},
		"invisible: held": {
			aNode().closed("cni").invisible(), "[" + cniTaint + "] cni:Closed>Closed(Birth) held"},
		"invisible while open: held": {
			aNode().open("cni").invisible(), "[] cni:Open>Open(Birth) held"},
		"known to be deleted although its source is not complete": {
			func() *sim {
				s := aNode().closed("cni").invisible()
				s.facts.DeletedGates = map[string]bool{"cni": true}
				return s
			}(),
			"write [] cni:Closed>-(GateDeleted)"},
		"a record of another source is not affected": {
			aNode().record("cni", "Closed", func(r *Record) { r.Source = "file:x" }).taint(cniTaint),
			"[" + cniTaint + "] cni:Closed>Closed(Birth) held"},
		"a record without a source belongs to the API": {
			aNode().record("cni", "Closed", func(r *Record) { r.Source = "" }).taint(cniTaint),
			"write [] cni:Closed>-(GateDeleted)"},
		"a damaged record whose gate is deleted is removed": {
			aNode().raw("cni", "garbage"), "write [] cni:Open>-(GateDeleted)"},
		"a damaged record is kept while a taint may belong to its gate": {
			aNode().raw("cni", "garbage").taint(cniTaint), "[" + cniTaint + "] cni:Open>Open(Adopted) held"},
		"a damaged record and a taint that is not allowed": {
			allowing(aNode().raw("cni", "garbage").taint(cniTaint), "other"), "write [" + cniTaint + "] cni:Open>-(GateDeleted)"},
		"a damaged record and a taint of Kubernetes": {
			aNode().raw("cni", "garbage").taint("node.kubernetes.io/not-ready:NoSchedule"),
			"write [node.kubernetes.io/not-ready:NoSchedule] cni:Open>-(GateDeleted)"},
		"a damaged record and a taint of a known gate": {
			aNode(renamed).raw("cni", "garbage").taint(cniTaint),
			"write [" + cniTaint + "] cni:Open>-(GateDeleted) zzz:->Closed(Adopted)"},
		"a damaged record and a taint of a gate that does not select the node": {
			aNode(aGate("zzz", tainting(cniTaint), selecting("pool=gpu"))).raw("cni", "garbage").taint(cniTaint),
			"[" + cniTaint + "] cni:Open>Open(Adopted) held"},
		"a damaged record is kept while its gate may exist": {
			aNode().raw("cni", "garbage").invisible(), "[] cni:Open>Open(Adopted) held"},
		"renamed: a later name takes over a closed record": {
			aNode(renamed).closed("cni"),
			"write [" + cniTaint + "] cni:->-(GateDeleted) zzz:Closed>Closed(Birth)"},
		"renamed: an earlier name takes over an open record": {
			aNode(earlier).open("cni"),
			"write [] aaa:Open>Open(Birth) cni:->-(GateDeleted)"},
		"an open record and the taint of a gate without a record": {
			aNode(renamed).open("cni").taint(cniTaint),
			"write [" + cniTaint + "] cni:Open>-(GateDeleted) zzz:->Closed(Adopted)",
		},
		"a damaged record and another gate's recloseTaint": {
			aNode(aGate("zzz", recloseTainting(cniTaint))).raw("cni", "garbage").taint(cniTaint),
			"write [" + cniTaint + "] cni:Open>-(GateDeleted) zzz:->Closed(Adopted)",
		},
		"a damaged record and a paused gate's taint": {
			aNode(aGate("zzz", inPause, tainting(cniTaint))).raw("cni", "garbage").taint(cniTaint),
			"[" + cniTaint + "] cni:Open>Open(Adopted) held zzz:->-",
		},
		"a damaged record and the taint of a gate that enters dry run": {
			aNode(aGate("zzz", inDryRun, tainting(cniTaint))).raw("cni", "garbage").open("zzz").taint(cniTaint),
			"write [" + cniTaint + "] cni:Open>Open(Adopted) held zzz:Open>-(DryRun)",
		},
		"renamed, but one of its keys must not be changed at present": {
			aNode(aGate("zzz", tainting("zzz.example/x:NoSchedule"), recloseTainting(cniTaint))).closed("cni").keys("cni.example/not-ready"),
			"[" + cniTaint + "] cni:Closed>Closed(Birth) held zzz:->-",
		},
		"renamed, but the node is not selected": {
			aNode(aGate("zzz", tainting(cniTaint), selecting("pool=gpu"))).closed("cni"),
			"write [] cni:Closed>-(GateDeleted)"},
		"renamed, but the new gate is not accepted": {
			aNode(aGate("zzz", tainting(cniTaint), refused)).closed("cni"),
			"write [] cni:Closed>-(GateDeleted) zzz:->-"},
		"renamed, but the new gate is still being compiled": {
			aNode(aGate("zzz", tainting(cniTaint), refused, broken, waitingFor(), selecting("pool=gpu"))).closed("cni"),
			"[" + cniTaint + "] cni:Closed>Closed(Birth) held"},
		"deleted, while a gate in dry run with its taint is being compiled": {
			aNode(aGate("zzz", tainting(cniTaint), inDryRun, refused, broken, waitingFor(), selecting("pool=gpu"))).closed("cni"),
			"write [] cni:Closed>-(GateDeleted)"},
		"deleted, while a gate with another taint is being compiled": {
			aNode(aGate("zzz", refused, broken, waitingFor(), selecting("pool=gpu"))).closed("cni"),
			"write [] cni:Closed>-(GateDeleted)"},
		"taking over replaces a record of a former Node": {
			aNode(renamed).closed("cni").record("zzz", "Open", func(r *Record) { r.Since = epoch.Add(-2 * day) }),
			"write [" + cniTaint + "] cni:->-(GateDeleted) zzz:Closed>Closed(Birth)"},
		"records follow a gate that moves to another source": {
			aNode(aGate("cni")).record("cni", "Closed", func(r *Record) { r.Source = "file:x" }).taint(cniTaint),
			"write [" + cniTaint + "] cni:Closed>Closed(Birth)"},
		"records of open gates follow as well": {
			aNode(aGate("cni")).open("cni").record("cni", "Open", func(r *Record) { r.Source = "file:x" }),
			"write [] cni:Open>Open(Birth)"},
	})
}

// The digest of a deleted gate contains nothing about the pods that its successor waits
// for. These pods are not accepted because of their state before the boot.
func TestSuccessorsDoNotAcceptStaleEvidence(t *testing.T) {
	gone, heir := aGate("cni", waitingFor(agent("cni"))), aGate("dns", tainting(cniTaint), waitingFor(agent("dns")))
	for name, away := range map[string]func(*sim){
		"rebooted":                  func(s *sim) { s.boot("b") },
		"unreachable":               func(s *sim) { s.ready("Unknown") },
		"unreachable, then renamed": func(s *sim) { s.ready("Unknown").run(t); s.gates = []Gate{heir} },
	} {
		s := aNode(gone).open("cni").pod("cni", "1", true).pod("dns", "2", true)
		away(s)
		s.run(t)
		s.gates = []Gate{heir}
		s.boot("b").ready("True").after(time.Second)
		if d := s.run(t); !strings.Contains(show(d), "dns:Closed>Closed(Rebooted)") {
			t.Errorf("%s: %s", name, show(d))
		}
		if d := s.after(time.Minute).run(t); !strings.Contains(show(d), "dns:Closed>Open(SignalsHold)") {
			t.Errorf("%s, a minute later: %s", name, show(d))
		}
	}
	// A pod is valid evidence if the node returned without a reboot.
	s := aNode(gone).open("cni").pod("cni", "1", true).pod("dns", "2", true).ready("Unknown")
	s.run(t)
	s.gates = []Gate{heir}
	if d := s.ready("True").run(t); !strings.Contains(show(d), "dns:Closed>Open(SignalsHold)") {
		t.Errorf("back in the same boot: %s", show(d))
	}
}

// Each step of a rename may be observed separately. A closed node stays closed if the
// new gate is created before the old one is deleted.
func TestRenameInSteps(t *testing.T) {
	old, renamed := aGate("cni"), aGate("zzz", tainting(cniTaint), createdAgo(time.Minute))
	s := aNode(old).closed("cni")
	s.gates = []Gate{old, renamed}
	if d := s.run(t); d.Changes {
		t.Errorf("a second gate for the same taint changes an existing node: %s", show(d))
	}
	s.gates = []Gate{renamed}
	if got, want := show(s.run(t)), "write ["+cniTaint+"] cni:->-(GateDeleted) zzz:Closed>Closed(Birth)"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestRecords(t *testing.T) {
	cni := aGate("cni")
	ahead := func(r *Record) { r.Since = epoch.Add(day) }
	check(t, map[string]spec{
		"damaged, with the taint: closed": {
			aNode(cni).raw("cni", "{").taint(cniTaint), "write [" + cniTaint + "] cni:Closed>Closed(Adopted)"},
		"damaged, without the taint: was open": {
			aNode(cni).raw("cni", "{"), "write [] cni:Open>Open(Adopted)"},
		"an empty text is damaged": {
			aNode(cni).raw("cni", ""), "write [] cni:Open>Open(Adopted)"},
		"an empty text without a gate is removed": {
			aNode().raw("cni", ""), "write [] cni:Open>-(GateDeleted)"},
		"an edited record cannot claim a taint of Kubernetes": {
			aNode(cni).taint("node.kubernetes.io/unreachable:NoSchedule").
				record("cni", "Closed", func(r *Record) { r.Taint = "node.kubernetes.io/unreachable:NoSchedule" }),
			"write [node.kubernetes.io/unreachable:NoSchedule] cni:Open>Open(Adopted)"},
		"nor can an edited record whose gate is deleted": {
			aNode().taint("node.kubernetes.io/unreachable:NoSchedule").
				record("cni", "Closed", func(r *Record) { r.Taint = "node.kubernetes.io/unreachable:NoSchedule" }),
			"write [node.kubernetes.io/unreachable:NoSchedule] cni:Open>-(GateDeleted)"},
		"an edited record cannot add a taint": {
			aNode(aGate("cni", refused)).record("cni", "Closed", func(r *Record) { r.Taint = "bad key=bad value:NoSchedule" }),
			"[] cni:Closed>Closed(Birth)"},
		"of a former Node: ignored": {
			aNode(cni).record("cni", "Open", func(r *Record) { r.Since = epoch.Add(-2 * day) }), "write [] cni:->-"},
		"of a former Node, and this one is new: closed": {
			aNode(cni).age(time.Minute).record("cni", "Open", func(r *Record) { r.Since = epoch.Add(-2 * time.Minute) }),
			"write [" + cniTaint + "] cni:->Closed(Birth)"},
		"with a wrong time: only the time is corrected": {
			aNode(cni).record("cni", "Closed", ahead).taint(cniTaint),
			"write [" + cniTaint + "] cni:Closed>Closed(Birth)"},
		"with a wrong time, open: the boot is kept": {
			aNode(cni).boot("b").record("cni", "Open", ahead), "write [" + cniTaint + "] cni:Open>Closed(Rebooted)"},
		"with a wrong time, gate deleted: the taint is removed as well": {
			aNode().record("cni", "Closed", ahead, func(r *Record) { r.Taint = cniTaint }).taint(cniTaint),
			"write [] cni:Closed>-(GateDeleted)"},
		"with a wrong time, gate invisible: the taint stays": {
			aNode().invisible().record("cni", "Closed", ahead, func(r *Record) { r.Taint = cniTaint }).taint(cniTaint),
			"[" + cniTaint + "] cni:Closed>Closed(Birth) held"},
		"with a wrong time, and the gate has another taint now": {
			aNode(aGate("cni", tainting("new.example/key:NoSchedule"))).record("cni", "Closed", ahead, func(r *Record) { r.Taint = cniTaint }).taint(cniTaint),
			"write [new.example/key:NoSchedule] cni:Closed>Closed(Birth)"},
		"with a different text but the same content: not written": {
			aNode(cni).raw("cni", `{ "taint":"`+cniTaint+`", "state":"Open", "boot":"a", "source":"crd", "new":1 }`), "[] cni:Open>Open"},
		"a clock far behind the API server's does not lead to endless writes": {
			aNode(cni).age(-time.Hour).taint(cniTaint), "write [" + cniTaint + "] cni:->Closed(Birth)"},
	})
}

func TestClockBehindTheAPIServer(t *testing.T) {
	s := aNode(aGate("cni")).age(-time.Hour)
	s.run(t)
	if d := s.after(time.Second).run(t); d.Changes {
		t.Errorf("treats its own record as one of a former Node: %s", show(d))
	}
}

// allowing allows nodegate to change only this taint.
func allowing(s *sim, taint string) *sim {
	s.facts.Allowed = allowed(taint)
	return s
}

func TestKeysThatAreNotAllowed(t *testing.T) {
	frozen := func(s *sim) *sim { return allowing(s, "other") }
	cni := aGate("cni")
	edited := func() *sim {
		s := aNode(aGate("cni", tainting("new.example/key:NoSchedule"))).closed("cni").flag("cni", "holds")
		s.facts.Allowed = allowed("new.example/key")
		return s
	}
	check(t, map[string]spec{
		"another effect is allowed":                      {allowing(aNode(cni).age(time.Second), "cni.example/not-ready:NoExecute"), "[] cni:->-"},
		"a new node is not closed":                       {frozen(aNode(cni).age(time.Second)), "[] cni:->-"},
		"a closed node is not opened":                    {frozen(aNode(cni).closed("cni").flag("cni", "holds")), "[" + cniTaint + "] cni:Closed>Closed(Birth) held"},
		"a deleted gate's taint stays":                   {frozen(aNode().closed("cni")), "[" + cniTaint + "] cni:Closed>Closed(Birth) held"},
		"a deleted open gate's record is removed":        {frozen(aNode().open("cni")), "write [] cni:Open>-(GateDeleted)"},
		"a node that is no longer selected stays closed": {frozen(aNode(aGate("cni", selecting("a=b"))).closed("cni")), "[" + cniTaint + "] cni:Closed>Closed(Birth) held"},
		"the old key of an edited gate":                  {edited(), "[" + cniTaint + "] cni:Closed>Closed(Birth) held"},
	})
}
