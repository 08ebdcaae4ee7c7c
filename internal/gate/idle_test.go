// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// listed provides a current list of all pods on the node.
func (s *sim) listed(pods ...BoundPod) *sim {
	s.facts.AllPods = &PodList{At: s.now, Pods: pods}
	return s
}

// unlisted removes the list of pods.
func (s *sim) unlisted() *sim { s.facts.AllPods = nil; return s }

var (
	daemonPod    = BoundPod{Namespace: "monitoring", Name: "daemon", Daemon: true, Owned: true}
	mirrorPod    = BoundPod{Namespace: "kube-system", Name: "mirror", Mirror: true}
	finishedPod  = BoundPod{Namespace: "default", Name: "job", Owned: true, Finished: true}
	workload     = BoundPod{Namespace: "kube-system", Name: "workload", Owned: true}
	barePod      = BoundPod{Namespace: "default", Name: "bare"}
	leavingPod   = BoundPod{Namespace: "default", Name: "leaving", Owned: true, Terminating: true}
	toleratesAll = BoundPod{Namespace: "default", Name: "operator", Owned: true, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}
)

// nodetaintshandler's backfill considers a node idle if it has no pod outside
// kube-system and kube-public. It misses workloads there, and a daemon or a finished
// pod in any other namespace keeps a node from being closed.
func TestSeedNodetaintshandlerIdle(t *testing.T) {
	for name, c := range map[string]struct {
		pods []BoundPod
		idle bool
	}{
		"an empty node": {nil, true},
		"daemons of any namespace, mirror and finished pods": {[]BoundPod{daemonPod, mirrorPod, finishedPod}, true},
		"workload in kube-system":                            {[]BoundPod{daemonPod, workload}, false},
		"a pod without a controller":                         {[]BoundPod{barePod}, false},
		"a pod that is terminating":                          {[]BoundPod{leavingPod}, false},
		"a pod that tolerates everything":                    {[]BoundPod{toleratesAll}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := aNode(aGate("cni", existing(v1alpha1.ExistingCloseIfIdle))).granting("cni").listed(c.pods...)
			want := "[] cni:->- wants=Idle"
			if c.idle {
				want = "write [" + cniTaint + "] cni:->Closed(ExistingIdle)"
			}
			if got := show(s.run(t)); got != want {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
		})
	}
}

func TestClosingIdleNodes(t *testing.T) {
	idle := func() *sim { return aNode(aGate("cni", existing(v1alpha1.ExistingCloseIfIdle))) }
	closed := func(ago time.Duration, change ...func(*Record)) *sim {
		return idle().taint(cniTaint).record("cni", v1alpha1.StateClosed, append([]func(*Record){func(r *Record) {
			r.Reason, r.Since = v1alpha1.ReasonExistingIdle, epoch.Add(-ago)
		}}, change...)...)
	}
	check(t, map[string]spec{
		"the pods must be listed first":                        {idle(), "[] cni:->- wants=Pods"},
		"a grant is not enough":                                {idle().granting("cni"), "[] cni:->- wants=Pods"},
		"an idle node waits for budget":                        {idle().listed(), "[] cni:->- wants=Budget"},
		"a node whose signals hold is adopted, idle or not":    {idle().flag("cni", "holds").listed(workload), "[] cni:->- wants=Pace"},
		"the pods of a node whose signals hold are not listed": {idle().flag("cni", "holds").granting("cni"), "write [] cni:->Open(Adopted)"},
		"Unknown closes nothing":                               {idle().flag("cni", "unknown").granting("cni").listed(), "[] cni:->-"},
		"an unreachable node is not closed":                    {idle().ready("Unknown").granting("cni").listed(), "[] cni:->- blocked=NodeSilent"},
		"a gate that is not accepted does not close":           {aNode(aGate("cni", refused, existing(v1alpha1.ExistingCloseIfIdle))).granting("cni").listed(), "[] cni:->-"},
		"Close does not request pods":                          {aNode(aGate("cni", existing(v1alpha1.ExistingClose))).listed(workload), "[] cni:->- wants=Budget"},
		"Ignore does not request pods":                         {aNode(aGate("cni")).granting("cni").listed(), "[] cni:->-"},
		"a closed node is not checked at first":                {closed(4 * time.Second).listed(workload), "[" + cniTaint + "] cni:Closed>Closed(ExistingIdle)"},
		"five seconds later its pods must be listed again":     {closed(5 * time.Second), "[" + cniTaint + "] cni:Closed>Closed(ExistingIdle) wants=Pods"},
		"its condition comes after the list": {aNode(aGate("cni", existing(v1alpha1.ExistingCloseIfIdle), publishing)).taint(cniTaint).record("cni", v1alpha1.StateClosed, overdue, func(r *Record) {
			r.Reason, r.Since = v1alpha1.ReasonExistingIdle, epoch.Add(-day)
		}), "[" + cniTaint + "] cni:Closed>Closed(ExistingIdle) overdue wants=Pods"},
		"even a day later":                                   {closed(day), "[" + cniTaint + "] cni:Closed>Closed(ExistingIdle) wants=Pods"},
		"an earlier list is not sufficient":                  {closed(4 * time.Second).listed().after(time.Second), "[" + cniTaint + "] cni:Closed>Closed(ExistingIdle) wants=Pods"},
		"it was idle: it stays closed":                       {closed(5 * time.Second).listed(daemonPod), "write [" + cniTaint + "] cni:Closed>Closed(Existing)"},
		"pods that tolerate the taint do not count":          {closed(5 * time.Second).listed(toleratesAll), "write [" + cniTaint + "] cni:Closed>Closed(Existing)"},
		"a pod had been bound: it opens and is not a member": {closed(5 * time.Second).listed(workload), "write [] cni:Closed>-(NotIdle)"},
		"a pod with too many tolerations to know":            {closed(5 * time.Second).listed(BoundPod{Name: "p", Created: epoch, ManyTolerations: true}), "write [] cni:Closed>-(NotIdle)"},
		"the signals hold meanwhile: it opens":               {closed(5*time.Second).flag("cni", "holds").listed(workload), "write [] cni:Closed>Open(SignalsHold)"},
		"it rebooted meanwhile: it is a member":              {closed(5 * time.Second).boot("b").listed(workload), "write [" + cniTaint + "] cni:Closed>Closed(Rebooted)"},
		"a gate changed to Close does not check":             {closed(5*time.Second, func(*Record) {}).editing(existing(v1alpha1.ExistingClose)), "[" + cniTaint + "] cni:Closed>Closed(ExistingIdle)"},
		"a gate that is no longer accepted does not open":    {closed(5 * time.Second).editing(refused).listed(workload), "[" + cniTaint + "] cni:Closed>Closed(ExistingIdle)"},
		"a node that closed for another reason stays closed": {idle().closed("cni").listed(workload), "[" + cniTaint + "] cni:Closed>Closed(Birth)"},
	})
}

// editing changes the node's gates.
func (s *sim) editing(change func(*Gate)) *sim {
	for i := range s.gates {
		change(&s.gates[i])
	}
	return s
}

// A pod was bound between the list and the taint: the node is closed for a moment, and
// not again while the pod exists.
func TestNotIdleAfterAllDoesNotLoop(t *testing.T) {
	s := aNode(aGate("cni", existing(v1alpha1.ExistingCloseIfIdle))).granting("cni").listed()
	var got []string
	step := func() { got = append(got, show(s.run(t))) }
	step()
	s.unlisted().after(idleSettles)
	step()
	s.listed(workload)
	step()
	for range 3 {
		s.after(time.Hour).listed(workload)
		step()
	}
	want := []string{
		"write [" + cniTaint + "] cni:->Closed(ExistingIdle)", "[" + cniTaint + "] cni:Closed>Closed(ExistingIdle) wants=Pods",
		"write [] cni:Closed>-(NotIdle)", "[] cni:->- wants=Idle", "[] cni:->- wants=Idle", "[] cni:->- wants=Idle",
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("step %d\n got %s\nwant %s", i, got[i], want[i])
		}
	}
}

// Opening for NotIdle does not affect other gates, and keeps a taint that one of them
// needs.
func TestNotIdleKeepsWhatOthersClose(t *testing.T) {
	shared := tainting("shared.example/x:NoSchedule")
	s := aNode(aGate("a", shared, existing(v1alpha1.ExistingCloseIfIdle)), aGate("b", shared))
	taint := func(r *Record) { r.Taint = "shared.example/x:NoSchedule" }
	s.taint("shared.example/x:NoSchedule").record("b", v1alpha1.StateClosed, taint)
	s.record("a", v1alpha1.StateClosed, taint, func(r *Record) { r.Reason = v1alpha1.ReasonExistingIdle }).listed(workload)
	want := "write [shared.example/x:NoSchedule] a:Closed>-(NotIdle) b:Closed>Closed(Birth)"
	if got := show(s.run(t)); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}
