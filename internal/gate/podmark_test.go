// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// marked returns a pod that has been marked for the given time and runs these
// containers.
func marked(uid, containers string, created time.Time, since time.Duration) Pod {
	p := somePod(uid, containers, created)
	p.Ready, p.MarkedSince = false, epoch.Add(-since)
	return p
}

// Neither new containers nor time turn an old mark into a new one.
func TestBelievesMark(t *testing.T) {
	created := epoch.Add(-time.Hour)
	old := marked("old", "x", created, time.Minute)
	rebooted := Record{State: v1alpha1.StateClosed, Since: epoch, Reason: v1alpha1.ReasonRebooted, Boot: "b", Digest: digestOf([]Pod{old})}
	silent, all := rebooted, rebooted
	silent.Reason, all.Digest = v1alpha1.ReasonNodeSilent, digestAll
	closed := Record{State: v1alpha1.StateClosed, Since: epoch, Reason: v1alpha1.ReasonBirth, Boot: "b"}
	node := aNode().boot("b")
	again := aNode().boot("b").age(time.Minute) // created again, for a machine with the same name
	for name, c := range map[string]struct {
		record Record
		node   *sim
		pod    Pod
		want   bool
	}{
		"no reboot":                                 {closed, node, old, true},
		"a mark from before the reboot":             {rebooted, node, old, false},
		"in new containers":                         {rebooted, node, marked("old", "y", created, time.Minute), false},
		"set again":                                 {rebooted, node, marked("old", "y", created, -time.Second), true},
		"set again, by a clock that is behind":      {rebooted, node, marked("old", "y", created, time.Hour), true},
		"on another pod":                            {rebooted, node, marked("new", "x", created, time.Minute), true},
		"back in the same boot":                     {silent, node, old, true},
		"the digest stands for all pods":            {all, node, old, false},
		"the digest stands for all pods, set since": {all, node, marked("old", "x", created, -time.Second), true},
		"of the former Node":                        {closed, again, old, false},
		"of the former Node, set again":             {closed, again, marked("old", "x", created, time.Second), true},
		"of this Node":                              {closed, again, marked("new", "x", epoch.Add(-time.Minute), time.Minute), true},
	} {
		d := decider{Facts: &c.node.facts, now: epoch}
		if got := d.trustIn(&Gate{}, &c.record).BelievesMark(&c.pod); got != c.want {
			t.Errorf("%s: accepted: %t, want %t", name, got, c.want)
		}
	}
}

// Another replica closed the gate after this one had read the pods, and may have known of other marks.
func TestMarksBehindTheReplicaThatClosed(t *testing.T) {
	node := aNode().bootUnobserved("b")
	node.facts.PodsAt = epoch.Add(-time.Second)
	record := Record{State: v1alpha1.StateClosed, Since: epoch, Reason: v1alpha1.ReasonRebooted, Boot: "b"}
	trust := (&decider{Facts: &node.facts, now: epoch}).trustIn(&Gate{}, &record)
	if old := marked("pod", "x", epoch.Add(-time.Hour), time.Minute); trust.BelievesMark(&old) {
		t.Error("a mark from before the gate closed counts")
	}
	if set := marked("pod", "x", epoch.Add(-time.Hour), -time.Second); !trust.BelievesMark(&set) {
		t.Error("a mark that was set since does not count")
	}
}

// The record could not list the marks, and its time is that of a clock that is behind: the mark
// appears to be newer than the record. This replica has observed that the mark is from before.
func TestKnownMarkAndAClockThatIsBehind(t *testing.T) {
	node := aNode().boot("b")
	old, set := marked("pod", "x", epoch.Add(-time.Hour), -time.Second), marked("pod", "x", epoch.Add(-time.Hour), -time.Minute)
	node.facts.Boot.Known = old.AppendKnown(nil)
	for _, record := range []Record{
		{State: v1alpha1.StateClosed, Since: epoch, Reason: v1alpha1.ReasonRebooted, Boot: "b", Digest: digestAll},
		{State: v1alpha1.StateClosed, Since: epoch, Reason: v1alpha1.ReasonNodeShutdown, Boot: "a", Digest: digestAll},
		{State: v1alpha1.StateClosed, Since: epoch, Reason: v1alpha1.ReasonSignalsHold, Boot: "b"},
	} {
		trust := (&decider{Facts: &node.facts, now: epoch}).trustIn(&Gate{}, &record)
		if trust.BelievesMark(&old) {
			t.Errorf("%s: a mark that is known from before the boot counts", record.Reason)
		}
		if !trust.BelievesMark(&set) {
			t.Errorf("%s: a mark that was set again does not count", record.Reason)
		}
	}
}

// A digest distinguishes marks from containers, and a mark from a later one.
func TestDigestNamesMarks(t *testing.T) {
	p := marked("a", "x", epoch, time.Minute)
	later, bare := marked("a", "x", epoch, 0), somePod("a", "x", epoch)
	of := digestOf([]Pod{p})
	if !of.has(p.mark()) || !of.has(p.Incarnation) || of.has(later.mark()) || digestOf([]Pod{bare}).has(p.mark()) {
		t.Errorf("digest %q", of)
	}
	// In the new boot, a pod that is not ready is not included, but its mark is,
	// because it may be an old one.
	g := aGate("g", waitingFor(agent("a")))
	boot, observed := g.takeDigestOfBoot(&aNode().pods("a", p).facts, everyPod)
	if !observed || boot.has(p.Incarnation) || !boot.has(p.mark()) {
		t.Errorf("digest of the boot %q", boot)
	}
	var many []Pod
	for i := range digestMax {
		many = append(many, marked(string(types.UID(rune('a'+i))), "x", epoch, 0))
	}
	if digestOf(many) != digestAll {
		t.Error("the size of a record is not limited")
	}
}

// markedAgent holds while its pod has a mark that is accepted as evidence.
type markedAgent struct{ agent }

func (s markedAgent) Read(in Input) Reading {
	for _, p := range in.Pods[s.query()] {
		if !p.MarkedSince.IsZero() && in.Trust.BelievesMark(&p) {
			return Reading{State: Holds}
		}
	}
	return Reading{State: NotYet}
}

// A mark that is set in the new boot counts, also if the gate's record is updated to the boot only
// later, because writes fail.
func TestMarkBeforeTheRecordOfABoot(t *testing.T) {
	marked := func(at time.Time) Pod {
		p := somePod("p", "x", epoch.Add(-time.Minute))
		p.MarkedSince = at
		return p
	}
	s := aNode(aGate("g", waitingFor(markedAgent{"a"}))).age(time.Minute).pods("a", marked(epoch.Add(-time.Second)))
	s.run(t)
	s.after(time.Hour).ready("Unknown").run(t)
	former := marked(s.now)
	s.after(time.Second).pods("a", former).ready("True").boot("b")
	s.facts.Boot.Known = former.AppendKnown(nil)
	s.decide() // and the write fails
	s.after(20*time.Second).pods("a", marked(s.now))
	if v := s.run(t).Verdicts[0]; v.After != v1alpha1.StateOpen {
		t.Errorf("a mark from the new boot does not open: %s", showVerdict(&v))
	}
}

// A pod survives the reboot of its node with its annotation. A gate that closes for the
// reboot waits until the annotation has been removed and set again, whether or not its
// pods were observed.
func TestMarkAcrossReboot(t *testing.T) {
	mark := func(containers string, at time.Time) Pod {
		p := somePod("p", containers, epoch.Add(-time.Minute))
		p.MarkedSince = at
		return p
	}
	const never = -time.Second
	unreachable := func(s *sim) { s.ready("Unknown").run(t) }
	shutDown := func(s *sim) { s.shuttingDown(true).run(t); s.shuttingDown(false) }
	for name, c := range map[string]struct {
		before func(*sim)
		marked time.Duration // again, after the gate closed and before the reboot
	}{
		"quickly":                                         {func(*sim) {}, never},
		"after unreachability":                            {unreachable, never},
		"after an announced shutdown":                     {shutDown, never},
		"with its pods unobserved":                        {func(s *sim) { s.facts.Pods = map[PodQuery][]Pod{}; s.boot("b").run(t) }, never},
		"marked again while unreachable":                  {unreachable, time.Hour},
		"marked again while it shuts down":                {shutDown, time.Hour},
		"marked again while unreachable, pods unobserved": {func(s *sim) { unreachable(s); s.facts.Pods = map[PodQuery][]Pod{}; s.ready("True").boot("b").run(t) }, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := aNode(aGate("g", waitingFor(markedAgent{"a"}))).age(time.Minute).pods("a", mark("x", epoch.Add(-time.Second)))
			if v := s.run(t).Verdicts[0]; v.After != v1alpha1.StateOpen {
				t.Fatalf("a marked pod does not open: %s", showVerdict(&v))
			}
			c.before(s.after(time.Hour))
			again := mark("x", epoch.Add(c.marked))
			s.ready("True").boot("b").pods("a", again)
			s.facts.Boot.Known = again.AppendKnown(nil)
			s.run(t)
			s.after(time.Second).pods("a", mark("y", epoch.Add(c.marked))).run(t)
			s.after(24 * time.Hour)
			if v := s.run(t).Verdicts[0]; v.After != v1alpha1.StateClosed {
				t.Fatalf("a mark from before the reboot opens: %s", showVerdict(&v))
			}
			if v := s.pods("a", mark("y", s.now)).run(t).Verdicts[0]; v.After != v1alpha1.StateOpen {
				t.Fatalf("a mark from after the reboot does not open: %s", showVerdict(&v))
			}
		})
	}
}
