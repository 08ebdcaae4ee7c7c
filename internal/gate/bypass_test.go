// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// closureOf returns the closure that is reported when the gate opens.
func closureOf(t *testing.T, s *sim) *Closure {
	t.Helper()
	d := s.flag("cni", "holds").run(t)
	if d.Verdicts[0].After != v1alpha1.StateOpen {
		t.Fatalf("the gate is not open: %s", show(d))
	}
	return d.Verdicts[0].Closure
}

func closedFor(reason v1alpha1.Reason, ago time.Duration) *sim {
	return aNode(aGate("cni")).taint(cniTaint).record("cni", v1alpha1.StateClosed, func(r *Record) {
		r.Reason, r.Since = reason, epoch.Add(-ago)
	})
}

// The period depends on why the gate was closed.
func TestClosure(t *testing.T) {
	const minute = time.Minute
	birth := aNode(aGate("cni")).age(minute).taint(cniTaint).raw("cni", `{"state":"Closed","reason":"Birth","taint":"`+cniTaint+`"}`)
	for name, c := range map[string]struct {
		node *sim
		from time.Duration // before the opening
	}{
		"from the Node's creation":              {birth, minute},
		"from the closing":                      {closedFor(v1alpha1.ReasonRegression, minute), minute},
		"from when a new boot was observed":     {closedFor(v1alpha1.ReasonRebooted, minute), minute},
		"from unreachability, without a reboot": {closedFor(v1alpha1.ReasonNodeSilent, minute), minute},
		"from a new boot after unreachability":  {closedFor(v1alpha1.ReasonNodeSilent, minute).boot("b"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := closureOf(t, c.node)
			if got == nil || !got.From.Equal(epoch.Add(-c.from)) || !got.Until.Equal(epoch) || got.NewBoot != strings.Contains(name, "new boot") || TaintText(got.Taint) != cniTaint {
				t.Errorf("got %+v, want the %s up to %s", got, c.from, epoch)
			}
		})
	}
	for name, s := range map[string]*sim{
		"a node that was never closed":      aNode(aGate("cni")).age(time.Second),
		"one that rebooted without waiting": aNode(aGate("cni")).open("cni").boot("b"),
	} {
		if got := closureOf(t, s); got != nil {
			t.Errorf("%s: %+v, want none", name, got)
		}
	}
}

// Cilium recommends NoExecute to remove pods that started before the agent. That evicts
// all pods. Alternatively, it repeatedly restarts pods with a certain label whose
// network it does not manage.
func TestSeedCiliumBypassed(t *testing.T) {
	opened := epoch
	at := func(secondsBefore int) time.Time { return opened.Add(-time.Duration(secondsBefore) * time.Second) }
	// A quick reboot: the new boot is observed 30 seconds before the agent is ready.
	reboot := &Closure{From: at(30), Until: opened, NewBoot: true}
	reboot.Taint, _ = parseTaint(cniTaint)
	// The gate closed 30 seconds ago without a reboot.
	closed := &Closure{Taint: reboot.Taint, From: at(30), Until: opened}
	// A pod created yesterday whose container started the given number of seconds
	// before the gate opened.
	pod := func(started int, change ...func(*BoundPod)) BoundPod {
		p := BoundPod{Owned: true, Created: at(86400), Bound: at(86400), Starts: []Start{{At: at(started), Running: true}}}
		for _, c := range change {
			c(&p)
		}
		return p
	}
	tolerating := func(key string) func(*BoundPod) {
		return func(p *BoundPod) {
			p.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	for name, c := range map[string]struct {
		closure *Closure
		pod     BoundPod
		want    Certainty
	}{
		"bound before the reboot, started before the agent":    {reboot, pod(7), Certain},
		"started when the new boot was observed":               {reboot, pod(30), Certain},
		"in this boot, or just before the reboot":              {reboot, pod(31), Possible},
		"the same, and it has ended":                           {reboot, pod(31, func(p *BoundPod) { p.Starts[0].Running = false }), Impossible},
		"the kubelet has not reported its end":                 {reboot, pod(91), Impossible},
		"its init container waits for the agent":               {reboot, pod(9, func(p *BoundPod) { p.Starts[0].Init = true }), Impossible},
		"after its init container, it started early":           {reboot, pod(9, func(p *BoundPod) { p.Starts = append(p.Starts, Start{At: at(20), Init: true}) }), Certain},
		"ended in the old boot, not started again":             {reboot, pod(3600, func(p *BoundPod) { p.Starts[0].Running = false }), Impossible},
		"started when the agent was ready":                     {reboot, pod(-3), Impossible},
		"close to the opening":                                 {reboot, pod(1), Possible},
		"in its second":                                        {reboot, pod(0), Possible},
		"just before that":                                     {reboot, pod(2), Certain},
		"one of its containers started while it was closed":    {reboot, pod(-9, func(p *BoundPod) { p.Starts = append(p.Starts, Start{At: at(9)}) }), Certain},
		"it has not started":                                   {reboot, pod(0, func(p *BoundPod) { p.Starts = nil }), Impossible},
		"bound while the gate was closed":                      {closed, pod(9, func(p *BoundPod) { p.Created, p.Bound = at(20), at(10) }), Certain},
		"bound while it was open, by the API server's clock":   {closed, pod(9, func(p *BoundPod) { p.Bound = at(-1) }), Impossible},
		"created while it was open, by the API server's clock": {closed, pod(9, func(p *BoundPod) { p.Created, p.Bound = at(-1), time.Time{} }), Impossible},
		"without a binding time":                               {closed, pod(9, func(p *BoundPod) { p.Bound = time.Time{} }), Certain},
		"it ran before the gate closed, and never restarted":   {closed, pod(31), Impossible},
		"restarted while the gate was closed":                  {closed, pod(28), Certain},
		"restarted when it closed, or before":                  {closed, pod(29), Possible},
		"started when it closed, and bound then":               {closed, pod(29, func(p *BoundPod) { p.Bound = at(30) }), Certain},
		"started when it closed, and created then":             {closed, pod(29, func(p *BoundPod) { p.Created, p.Bound = at(30), time.Time{} }), Certain},
		"restarted after the opening":                          {closed, pod(-60), Impossible},
		"it tolerates the taint":                               {closed, pod(9, tolerating("cni.example/not-ready")), Impossible},
		"it tolerates another one":                             {closed, pod(9, tolerating("other.example/x")), Certain},
		"it has too many tolerations to know":                  {closed, pod(9, func(p *BoundPod) { p.ManyTolerations = true }), Impossible},
		"it is terminating":                                    {closed, pod(9, func(p *BoundPod) { p.Terminating = true }), Impossible},
		"it has finished":                                      {closed, pod(9, func(p *BoundPod) { p.Finished = true }), Impossible},
		"a mirror pod":                                         {closed, pod(9, func(p *BoundPod) { p.Mirror = true }), Impossible},
		"a daemon that does not tolerate its gate":             {closed, pod(9, func(p *BoundPod) { p.Daemon = true }), Certain},
	} {
		if got := c.closure.Bypassed(&c.pod); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestEvictable(t *testing.T) {
	for name, c := range map[string]struct {
		pod  BoundPod
		want bool
	}{
		"a pod with a controller":    {BoundPod{Owned: true}, true},
		"a pod without a controller": {BoundPod{}, false},
		"a daemon":                   {BoundPod{Owned: true, Daemon: true}, false},
		"a mirror pod":               {BoundPod{Owned: true, Mirror: true}, false},
		"a host-network pod":         {BoundPod{Owned: true, HostNetwork: true}, false},
	} {
		if got := c.pod.Evictable(); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
