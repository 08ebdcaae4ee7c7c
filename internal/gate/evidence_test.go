// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func somePod(uid, containers string, created time.Time) Pod {
	return Pod{
		UID: types.UID(uid), Name: uid, Created: created, Ready: true, ReadySince: created,
		Incarnation: NewIncarnation(types.UID(uid), []string{containers}),
	}
}

func TestIncarnation(t *testing.T) {
	seen := map[Incarnation]string{}
	for name, i := range map[string]Incarnation{
		"no container":       NewIncarnation("uid", nil),
		"one":                NewIncarnation("uid", []string{"a"}),
		"restarted":          NewIncarnation("uid", []string{"b"}),
		"two":                NewIncarnation("uid", []string{"a", "b"}),
		"two, cut elsewhere": NewIncarnation("uid", []string{"ab", ""}),
		"another pod":        NewIncarnation("uid2", []string{"a"}),
		"not yet started":    NewIncarnation("uid", []string{""}),
	} {
		if other, dup := seen[i]; dup {
			t.Errorf("%s has the same incarnation as %s", name, other)
		}
		seen[i] = name
	}
}

func TestBelieves(t *testing.T) {
	before, since := epoch.Add(-day), epoch
	old := somePod("old", "x", before)
	rebooted := Record{State: v1alpha1.StateClosed, Since: since, Reason: v1alpha1.ReasonRebooted, Boot: "b", Digest: digestOf([]Pod{old})}
	silent := rebooted
	silent.Reason = v1alpha1.ReasonNodeSilent
	all := rebooted
	all.Digest = digestAll
	for name, c := range map[string]struct {
		record    Record
		node      *sim
		pod       Pod
		at        time.Duration
		want      bool
		wantAfter time.Duration // zero if it does not depend on time
	}{
		"known from before":                          {rebooted, aNode().boot("b"), old, 0, false, provenAfter},
		"proven a minute later":                      {rebooted, aNode().boot("b"), old, provenAfter, true, provenAfter},
		"not a nanosecond earlier":                   {rebooted, aNode().boot("b"), old, provenAfter - 1, false, provenAfter},
		"restarted":                                  {rebooted, aNode().boot("b"), somePod("old", "y", before), 0, true, 0},
		"another pod":                                {rebooted, aNode().boot("b"), somePod("new", "x", before), 0, true, 0},
		"unreachable: time proves nothing":           {rebooted, aNode().boot("b").ready("Unknown"), old, day, false, 0},
		"no Ready condition: time proves nothing":    {rebooted, aNode().boot("b").ready(""), old, day, false, 0},
		"NotReady: its pods may not be synchronized": {rebooted, aNode().boot("b").ready("False"), old, day, false, 0},
		"Ready since the boot":                       {rebooted, aNode().boot("b").ready("True"), old, provenAfter, true, provenAfter},
		"Ready later: a minute from then":            {rebooted, aNode().boot("b").after(time.Hour).ready("True"), old, time.Hour + provenAfter - 1, false, time.Hour + provenAfter},
		"Ready for a minute":                         {rebooted, aNode().boot("b").after(time.Hour).ready("True"), old, time.Hour + provenAfter, true, time.Hour + provenAfter},
		"the record was written long after the boot": {rebooted, aNode().sees("b", -time.Hour), old, 0, true, provenAfter - time.Hour},
		"reachable again in the same boot":           {silent, aNode().boot("b"), old, 0, true, 0},
		"reachable again in a new boot":              {silent, aNode().boot("c"), old, 0, false, provenAfter},
		"a digest of all pods: an earlier pod":       {all, aNode().boot("b"), old, 0, false, provenAfter},
		"a digest of all pods: a later pod":          {all, aNode().boot("b"), somePod("new", "x", since.Add(time.Second)), 0, true, 0},
		"older than its Node":                        {Record{Since: since}, aNode().age(0), somePod("old", "x", before), 0, false, provenAfter},
		"younger than its Node":                      {Record{Since: since}, aNode().age(0), somePod("new", "x", since), 0, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			at := epoch.Add(c.at)
			d := decider{Facts: &c.node.facts, now: at}
			got, recheck := d.trustIn(&Gate{}, &c.record).Believes(&c.pod, at)
			var want time.Time
			if c.wantAfter != 0 {
				want = epoch.Add(c.wantAfter)
			}
			if got != c.want || !recheck.Equal(want) {
				t.Errorf("accepted: %v, from %s; want %v, %s", got, recheck, c.want, want)
			}
		})
	}
}

// The passing of time proves only what was certainly correct at that time. A watch that
// has stalled keeps showing that the pod of the earlier boot is ready.
func TestTimeProvesOnlyWhatWasKnown(t *testing.T) {
	s := aNode(aGate("cni", waitingFor(agent("agent")))).open("cni").pod("agent", "x", true).boot("b").ready("True")
	s.run(t)
	booted := s.now
	for _, c := range []struct {
		at, podsAt time.Duration
		opens      bool
	}{
		{provenAfter - 1, provenAfter - 1, false},
		{provenAfter, -time.Second, false},
		{time.Hour, provenAfter - 1, false},
		{time.Hour, provenAfter, true},
	} {
		s.now, s.facts.PodsAt = booted.Add(c.at), booted.Add(c.podsAt)
		d := Decide(s.gates, &s.facts, s.now)
		if d.Verdicts[0].Opened() != c.opens {
			t.Errorf("%s after the boot, pods known for %s: %s", c.at, c.podsAt, show(d))
		}
		if waits := c.at >= provenAfter && !c.opens; waits && !d.Recheck.Equal(s.now.Add(podsRecheck)) {
			t.Errorf("%s after the boot, pods known for %s: recheck at %s", c.at, c.podsAt, d.Recheck)
		}
	}
}

// Another replica closed the gate after this one had read the pods. It may already have known that
// the pod of the previous boot is not ready, and then its digest does not contain that pod.
func TestBehindTheReplicaThatClosed(t *testing.T) {
	for name, c := range map[string]struct {
		readyFor, podsAt time.Duration // before the gate closed, and after it
		observed, opens  bool
	}{
		"ready before, read before":                {day, -time.Second, false, false},
		"ready before, read since":                 {day, 0, false, true},
		"ready since, read before":                 {-time.Second, -time.Second, false, true},
		"this replica observed how the boot began": {day, -time.Second, true, true},
	} {
		s := aNode(aGate("cni", waitingFor(agent("agent")))).open("cni").pod("agent", "y", false).boot("b")
		s.run(t)
		s.pod("agent", "x", true).after(time.Second)
		pod := &s.facts.Pods[agent("agent").query()][0]
		pod.Created, pod.ReadySince, s.facts.PodsAt = epoch.Add(-day), epoch.Add(-c.readyFor), epoch.Add(c.podsAt)
		if !c.observed {
			s.facts.Boot.After = ""
		}
		if d := Decide(s.gates, &s.facts, s.now); d.Verdicts[0].Opened() != c.opens || !c.opens && !d.Recheck.Equal(s.now.Add(podsRecheck)) {
			t.Errorf("%s: %s, recheck at %s", name, show(d), d.Recheck)
		}
		if s.facts.PodsAt = epoch; !Decide(s.gates, &s.facts, s.now).Verdicts[0].Opened() {
			t.Errorf("%s: does not open once the pods are known for a later time", name)
		}
	}
}

// A node's clock may be slow: the minute of being Ready begins when the controller observes it.
func TestSlowNodeClock(t *testing.T) {
	for _, behind := range []time.Duration{0, 30 * time.Second, time.Hour} {
		s := aNode(aGate("cni", waitingFor(agent("agent")))).open("cni").pod("agent", "x", true).boot("b").ready("False")
		s.run(t)
		s.after(5 * time.Minute).ready("True").facts.Node.Conditions[0].Transition = s.now.Add(-behind)
		s.facts.ReadySince = s.now
		if d := s.after(provenAfter - 1).run(t); d.Verdicts[0].Opened() || !d.Recheck.Equal(s.now.Add(1)) {
			t.Errorf("behind by %s: before the minute has passed: %s, recheck at %s", behind, show(d), d.Recheck)
		}
		if d := s.after(1).run(t); !d.Verdicts[0].Opened() {
			t.Errorf("behind by %s: after a minute: %s", behind, show(d))
		}
	}
}

// An open gate's record is updated to an unobserved boot under the same conditions.
func TestRecordIsUpdatedToUnobservedBoot(t *testing.T) {
	s := aNode(aGate("cni", waitingFor(agent("cni")))).open("cni").pod("cni", "x", true).bootUnobserved("b").after(time.Hour)
	s.facts.PodsAt = epoch.Add(provenAfter - 1)
	if d := s.run(t); d.Changes {
		t.Errorf("updates the record because of outdated information: %s", show(d))
	}
	s.facts.PodsAt = epoch.Add(provenAfter)
	s.facts.ReadySince = epoch.Add(time.Second)
	if d := s.run(t); d.Changes {
		t.Errorf("updates the record although the node was observed to be Ready for less than a minute: %s", show(d))
	}
	s.facts.ReadySince = epoch
	if d := s.run(t); !d.Changes {
		t.Errorf("does not update the record: %s", show(d))
	}
}

// Another replica closed the gate and knew the pod's current container, while this
// replica still knows only the container before it.
func TestPodsThatOnlyThisReplicaKnew(t *testing.T) {
	s := aNode(aGate("cni", waitingFor(agent("agent")))).open("cni").pod("agent", "second", true).boot("b")
	s.run(t)
	s.facts.Boot.Known = []Incarnation{somePod("pod", "first", epoch).Incarnation}
	s.pod("agent", "first", true).after(time.Second)
	if d := s.run(t); d.Verdicts[0].Opened() {
		t.Errorf("opens because of a container that was known before the boot: %s", show(d))
	}
	if d := s.pod("agent", "third", true).run(t); !d.Verdicts[0].Opened() {
		t.Errorf("does not open because of a container of this boot: %s", show(d))
	}
}

// The creation times of a pod and of the Node that replaced the pod's own are equal, because
// they are whole seconds. The pod counts when it has been ready for a minute on this Node.
func TestPodOfTheFormerNode(t *testing.T) {
	former := func() *sim {
		s := aNode(aGate("cni", waitingFor(agent("agent")))).closed("cni").ready("True").pod("agent", "first", true)
		s.facts.Boot = Boot{Seen: s.now, Known: []Incarnation{somePod("pod", "first", epoch).Incarnation}}
		if d := s.run(t); d.Verdicts[0].Opened() {
			t.Errorf("opens because of a pod that was ready on the former Node: %s", show(d))
		}
		return s
	}
	if d := former().after(provenAfter).run(t); !d.Verdicts[0].Opened() {
		t.Errorf("a minute later: %s", show(d))
	}
	if d := former().pod("agent", "second", true).run(t); !d.Verdicts[0].Opened() {
		t.Errorf("does not open because of a container that started on this Node: %s", show(d))
	}
}

func TestDigestIsBounded(t *testing.T) {
	var pods []Pod
	for i := range digestMax + 1 {
		if d := digestOf(pods); d == digestAll {
			t.Fatalf("%d pods are too many", i)
		}
		pods = append(pods, somePod("p", time.Duration(i).String(), epoch))
	}
	if d := digestOf(pods); d != digestAll {
		t.Errorf("%d pods: %s", len(pods), d)
	}
}

// If the pods are unknown when the gate closes, none of the time until then counts.
func TestClosingOnUnobservedPods(t *testing.T) {
	s := aNode(aGate("cni", waitingFor(agent("agent")))).open("cni").boot("b")
	s.run(t)
	s.pod("agent", "x", true).after(time.Second)
	if d := s.run(t); d.Verdicts[0].Opened() {
		t.Errorf("opens because of a pod that may be of any boot: %s", show(d))
	}
	if d := s.after(time.Second).run(t); d.Changes {
		t.Errorf("writes again: %s", show(d))
	}
	if d := s.after(provenAfter).run(t); !d.Verdicts[0].Opened() {
		t.Errorf("a minute later: %s", show(d))
	}
}

// A pod that is not ready when the new boot is first observed can only become ready in
// that boot, in whichever order the kubelet's two loops write, and whether or not the
// pods were observed at that moment.
func TestReadyOnlySinceTheNewBoot(t *testing.T) {
	for name, late := range map[string]bool{"observed": false, "observed a moment later": true} {
		t.Run(name, func(t *testing.T) {
			s := aNode(aGate("cni", waitingFor(agent("agent")))).open("cni").boot("b")
			if late {
				s.run(t)
			}
			s.pod("agent", "x", false).after(time.Second).run(t)
			if d := s.pod("agent", "x", true).after(time.Second).run(t); !d.Verdicts[0].Opened() {
				t.Errorf("stays closed: %s", show(d))
			}
		})
	}
}

// Unobserved pods do not change the record of a node that has returned.
func TestDigestIsKeptWhilePodsAreUnobserved(t *testing.T) {
	s := aNode(aGate("cni", waitingFor(agent("agent")))).open("cni").pod("agent", "x", true).ready("Unknown")
	s.run(t)
	s.facts.Pods = nil
	if d := s.ready("True").run(t); d.Changes {
		t.Errorf("writes: %v", d.Records)
	}
}

// A node that shuts down ends its pods one after another, which is not worth a write
// each.
func TestDigestIsKeptDuringShutdown(t *testing.T) {
	s := aNode(aGate("cni", waitingFor(agent("cni")))).open("cni").pod("cni", "x", true).shuttingDown(true)
	s.run(t)
	check(t, map[string]spec{
		"another container": {s.pod("cni", "y", false), "[" + cniTaint + "] cni:Closed>Closed(NodeShutdown) blocked=NodeShutdown"},
	})
}

// A damaged record does not contain the boot in which the gate closed.
func TestDamagedRecordTrustsNothing(t *testing.T) {
	s := aNode(aGate("cni", waitingFor(agent("agent")))).pod("agent", "x", true).raw("cni", "{").taint(cniTaint)
	if d := s.run(t); d.Verdicts[0].After != v1alpha1.StateClosed {
		t.Errorf("opens: %s", show(d))
	}
	if d := s.after(provenAfter).run(t); !d.Verdicts[0].Opened() {
		t.Errorf("a minute later: %s", show(d))
	}
}
