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
			t.Errorf("%s is taken for %s", name, other)
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
		wantAfter time.Duration // zero where time has nothing to do with it
	}{
		"known from before":             {rebooted, aNode().boot("b"), old, 0, false, provenAfter},
		"proven a minute later":         {rebooted, aNode().boot("b"), old, provenAfter, true, provenAfter},
		"not a nanosecond sooner":       {rebooted, aNode().boot("b"), old, provenAfter - 1, false, provenAfter},
		"restarted":                     {rebooted, aNode().boot("b"), somePod("old", "y", before), 0, true, 0},
		"another pod":                   {rebooted, aNode().boot("b"), somePod("new", "x", before), 0, true, 0},
		"silent: time proves nothing":   {rebooted, aNode().boot("b").ready("Unknown"), old, day, false, 0},
		"no Ready condition: the same":  {rebooted, aNode().boot("b").ready(""), old, day, false, 0},
		"not ready nodes report":        {rebooted, aNode().boot("b").ready("False"), old, provenAfter, true, provenAfter},
		"back from silence, same boot":  {silent, aNode().boot("b"), old, 0, true, 0},
		"back from silence, a new boot": {silent, aNode().boot("c"), old, 0, false, provenAfter},
		"all pods of then":              {all, aNode().boot("b"), old, 0, false, provenAfter},
		"a pod of later":                {all, aNode().boot("b"), somePod("new", "x", since.Add(time.Second)), 0, true, 0},
		"older than its Node":           {Record{Since: since}, aNode().age(0), somePod("old", "x", before), 0, false, provenAfter},
		"younger than its Node":         {Record{Since: since}, aNode().age(0), somePod("new", "x", since), 0, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, recheck := trustIn(&c.record, &c.node.facts.Node).Believes(&c.pod, epoch.Add(c.at))
			var want time.Time
			if c.wantAfter > 0 {
				want = epoch.Add(c.wantAfter)
			}
			if got != c.want || !recheck.Equal(want) {
				t.Errorf("believes %v, from %s; want %v, %s", got, recheck, c.want, want)
			}
		})
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

// Where the pods are not known when the gate closes, none of that time counts.
func TestClosingOnUnobservedPods(t *testing.T) {
	s := aNode(aGate("cni", waitingFor(agent("agent")))).open("cni").boot("b")
	s.run(t)
	s.pod("agent", "x", true).after(time.Second)
	if d := s.run(t); d.Verdicts[0].Opened() {
		t.Errorf("opens on a pod that may be of any boot: %s", show(d))
	}
	if d := s.after(time.Second).run(t); d.Changes {
		t.Errorf("writes again: %s", show(d))
	}
	if d := s.after(provenAfter).run(t); !d.Verdicts[0].Opened() {
		t.Errorf("a minute later: %s", show(d))
	}
}

// A pod that is not ready when the new boot is first seen can become ready in
// that boot only, in whichever order the kubelet's two loops write, and whether
// or not the pods were observed at that moment.
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

// Not having observed the pods changes no record of a node that came back.
func TestFollowingUnobservedPods(t *testing.T) {
	s := aNode(aGate("cni", waitingFor(agent("agent")))).open("cni").pod("agent", "x", true).ready("Unknown")
	s.run(t)
	s.facts.Pods = nil
	if d := s.ready("True").run(t); d.Changes {
		t.Errorf("writes: %v", d.Records)
	}
}

// A node that shuts down ends its pods one by one: that is not worth a write each.
func TestShutdownIsNotFollowed(t *testing.T) {
	s := aNode(aGate("cni", waitingFor(agent("cni")))).open("cni").pod("cni", "x", true).shuttingDown(true)
	s.run(t)
	check(t, map[string]spec{
		"another container": {s.pod("cni", "y", false), "[" + cniTaint + "] cni:Closed>Closed(NodeShutdown) blocked=NodeShutdown"},
	})
}

// A damaged record does not tell in which boot the gate closed.
func TestDamagedRecordTrustsNothing(t *testing.T) {
	s := aNode(aGate("cni", waitingFor(agent("agent")))).pod("agent", "x", true).raw("cni", "{").taint(cniTaint)
	if d := s.run(t); d.Verdicts[0].After != v1alpha1.StateClosed {
		t.Errorf("opens: %s", show(d))
	}
	if d := s.after(provenAfter).run(t); !d.Verdicts[0].Opened() {
		t.Errorf("a minute later: %s", show(d))
	}
}
