// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// runQuery is the query for the agent's pods as pods that run once.
var runQuery = runsOf(query("agent"))

// runsOf returns the query for the same pods as pods that run once.
func runsOf(q gate.PodQuery) gate.PodQuery {
	q.Runs = true
	return q
}

func preflight(maxAge int32) v1alpha1.SignalSource {
	spec := &v1alpha1.CompletedSignal{Namespace: "kube-system", Selector: v1alpha1.EqualitySelector{MatchLabels: map[string]string{"app": "agent"}}}
	if maxAge > 0 {
		spec.MaxAgeSeconds = new(maxAge)
	}
	return v1alpha1.SignalSource{Completed: spec}
}

// ended makes a pod one that ran for ten seconds.
func ended(ok bool, ago time.Duration) func(*gate.Pod) {
	return func(p *gate.Pod) {
		p.Finished, p.Ready = true, false
		p.Run.Succeeded, p.Run.Started, p.Run.Ended = ok, epoch.Add(-ago-10*time.Second), epoch.Add(-ago)
	}
}

var (
	succeeded = ended(true, 20*time.Second)
	failed    = ended(false, 20*time.Second)
)

func unfinished(p *gate.Pod) {
	p.Ready, p.Run.Started = true, epoch.Add(-time.Second)
}

func inBoot(id string) func(*gate.Pod) { return func(p *gate.Pod) { p.Run.Boot = id } }

func incarnated(i gate.Incarnation) func(*gate.Pod) {
	return func(p *gate.Pod) { p.Incarnation = i }
}

// neverRan returns a node on which no pod has run, and ran one with a pod.
func neverRan() *world { return withRuns(aNode()) }

func ran(change ...func(*gate.Pod)) *world { return withRuns(aNode(running("agent", change...))) }

// withRuns makes the agent's pods ones that run once. Unless they name another boot, or none,
// they name boot a.
func withRuns(w *world) *world {
	pods := w.facts.Pods[query("agent")]
	for i := range pods {
		switch run := &pods[i].Run; run.Boot {
		case "":
			run.Boot = "a"
		case "none":
			run.Boot = ""
		}
	}
	w.facts.Pods[runQuery] = w.facts.Pods[query("agent")]
	delete(w.facts.Pods, query("agent"))
	return w
}

func TestCompleted(t *testing.T) {
	const pod, set = "kube-system/agent-x", "kube-system/(app=agent)"
	two := func(a, b func(*gate.Pod)) *world {
		return withRuns(aNode(running("agent", a), running("agent", named("agent-y"), b)))
	}
	check(t, mustCompile(t, preflight(0)), map[string]reads{
		"succeeded":                     {ran(succeeded), gate.Holds, v1alpha1.ReadingCompleted, pod},
		"killed, with exit code 0":      {ran(succeeded, terminating), gate.NotYet, v1alpha1.ReadingPodTerminating, pod},
		"killed, and runs again":        {two(func(p *gate.Pod) { succeeded(p); terminating(p) }, unfinished), gate.NotYet, v1alpha1.ReadingPodNotCompleted, "kube-system/agent-y"},
		"failed":                        {ran(failed), gate.NotYet, v1alpha1.ReadingPodFailed, pod},
		"running":                       {ran(unfinished), gate.NotYet, v1alpha1.ReadingPodNotCompleted, pod},
		"no pod":                        {neverRan(), gate.NotYet, missing, set},
		"a mirror pod":                  {ran(succeeded, mirror), gate.NotYet, v1alpha1.ReadingPodStatic, pod},
		"not observed":                  {aNode(), gate.Unknown, notObserved, set},
		"of this boot and former Node":  {ran(succeeded, olderThanNode), gate.NotYet, v1alpha1.ReadingStaleRun, pod},
		"names no boot":                 {ran(succeeded, inBoot("none")), gate.NotYet, v1alpha1.ReadingStaleRun, pod},
		"of another boot":               {ran(succeeded, inBoot("b")), gate.NotYet, v1alpha1.ReadingStaleRun, pod},
		"failed in another boot":        {ran(failed, inBoot("b")), gate.NotYet, v1alpha1.ReadingStaleRun, pod},
		"failed, then running":          {two(failed, unfinished), gate.NotYet, v1alpha1.ReadingPodNotCompleted, "kube-system/agent-y"},
		"failed, then succeeded":        {two(ended(false, time.Minute), succeeded), gate.Holds, v1alpha1.ReadingCompleted, "kube-system/agent-y"},
		"succeeded, then failed":        {two(ended(true, 40*time.Second), failed), gate.NotYet, v1alpha1.ReadingPodFailed, "kube-system/agent-y"},
		"succeeded, and runs once more": {two(succeeded, unfinished), gate.Holds, v1alpha1.ReadingCompleted, pod},
		"both at once":                  {two(succeeded, failed), gate.Holds, v1alpha1.ReadingCompleted, pod},
		"the node's clock is ahead":     {ran(ended(true, -time.Hour)), gate.Holds, v1alpha1.ReadingCompleted, pod},
		"the clock was ahead of a failure": {two(func(p *gate.Pod) { created(2 * time.Minute)(p); ended(false, -time.Hour)(p) },
			func(p *gate.Pod) { created(time.Minute)(p); succeeded(p) }), gate.Holds, v1alpha1.ReadingCompleted, "kube-system/agent-y"},
	})
	check(t, mustCompile(t, preflight(60)), map[string]reads{
		"recent":                  {ran(succeeded), gate.Holds, v1alpha1.ReadingCompleted, pod},
		"too old":                 {ran(created(time.Hour), ended(true, 60*time.Second)), gate.NotYet, v1alpha1.ReadingCompletionExpired, set},
		"too old, and runs again": {two(func(p *gate.Pod) { created(time.Hour)(p); ended(true, time.Minute)(p) }, unfinished), gate.NotYet, v1alpha1.ReadingPodNotCompleted, "kube-system/agent-y"},
		"the node's clock is slow": { // a pod cannot have finished before its creation
			ran(created(30*time.Second), ended(true, time.Hour)), gate.Holds, v1alpha1.ReadingCompleted, pod},
	})
}

// check1 is a gate with a completed signal on a node, over several decisions.
type check1 struct {
	*testing.T
	gate  gate.Gate
	world *world
	now   time.Time
}

// checked returns a new node under a gate that closes on regression.
func checked(t *testing.T, source v1alpha1.SignalSource) *check1 {
	w := neverRan()
	g := aClosedGate(mustCompile(t, source), gate.Record{Boot: "a", Reason: v1alpha1.ReasonBirth}, w)
	g.Reclose, g.CloseAfter, g.Remembers, g.ReadsHeartbeats = v1alpha1.RecloseOnRegression, time.Minute, true, true
	w.facts.Granted = map[string]bool{g.Name: true}
	w.facts.Boot.Seen = w.facts.Node.Created
	return &check1{t, g, w, epoch}
}

// after decides after some time, and stores the record. It returns the reading.
func (c *check1) after(d time.Duration) gate.Reading {
	c.Helper()
	c.now = c.now.Add(d)
	decision := gate.Decide([]gate.Gate{c.gate}, &c.world.facts, c.now)
	v := decision.Verdicts[0]
	if raw, changed := decision.Records[c.gate.Name]; changed {
		c.world.facts.Node.Records = map[string]string{c.gate.Name: raw}
	}
	c.world.facts.Node.Taints = nil
	if r := c.record(); r.State == v1alpha1.StateClosed {
		_, effect, _ := strings.Cut(r.Taint, ":")
		tainted(gateKey, corev1.TaintEffect(effect))(c.world)
	}
	c.world.facts.Lost = map[string][]gate.Lost{c.gate.Name: v.Lost}
	if len(v.Readings) == 0 {
		return gate.Reading{}
	}
	return v.Readings[0]
}

// opened makes the gate open on the node since an hour ago, in that boot.
func (c *check1) opened(reason v1alpha1.Reason, boot string) {
	n := &c.world.facts.Node
	n.Taints = nil
	n.Records[c.gate.Name] = gate.Record{State: v1alpha1.StateOpen, Reason: reason, Since: epoch.Add(-time.Hour), Boot: boot, Source: c.gate.Source}.String()
}

func (c *check1) record() gate.Record {
	c.Helper()
	r, err := gate.ParseRecord(c.world.facts.Node.Records[c.gate.Name])
	if err != nil {
		c.Fatal(err)
	}
	return r
}

func (c *check1) is(state string, reason v1alpha1.Reason) {
	c.Helper()
	if r := c.record(); r.State != state || r.Reason != reason {
		c.Fatalf("%+v, want %s %s", r, state, reason)
	}
}

func (c *check1) pods(pods ...func(*world)) {
	c.world.facts.Pods = withRuns(aNode(pods...)).facts.Pods
}

func (c *check1) reboots(boot string, observed bool) {
	n := &c.world.facts.Node
	c.world.facts.Boot = gate.Boot{Seen: c.now}
	if observed {
		c.world.facts.Boot.After = n.BootID
	}
	n.BootID = boot
}

// A gate stays open when its pod is deleted, also across restarts of the controller and
// an interruption of the network, and closes again when the success has expired.
func TestCompletedIsRemembered(t *testing.T) {
	c := checked(t, preflight(3600))
	c.pods(running("agent", succeeded))
	c.after(0)
	c.is(v1alpha1.StateOpen, v1alpha1.ReasonSignalsHold)
	c.pods()
	c.world.facts.Boot.Seen = c.now // the controller has restarted
	for range 10 {
		if r := c.after(time.Minute); r.State != gate.Holds || r.Reason != v1alpha1.ReadingCompletedEarlier {
			t.Fatalf("after the pod was deleted: %s", r.Message())
		}
	}
	ready := &c.world.facts.Node.Conditions[0]
	ready.Status, ready.Transition = corev1.ConditionUnknown, c.now
	c.after(10 * time.Second)
	c.is(v1alpha1.StateClosed, v1alpha1.ReasonNodeSilent)
	ready.Status, ready.Transition = corev1.ConditionTrue, c.now
	c.after(time.Second)
	c.is(v1alpha1.StateOpen, v1alpha1.ReasonSignalsHold)

	// The next success renews it.
	c.pods(running("agent", created(-10*time.Minute), ended(true, -15*time.Minute)))
	c.after(10 * time.Minute)
	c.pods()
	if r := c.after(50 * time.Minute); r.State != gate.Holds {
		t.Fatalf("after the renewal: %s", r.Message())
	}
	if r := c.after(10 * time.Minute); r.Reason != v1alpha1.ReadingCompletionExpired {
		t.Fatalf("an hour after the renewal: %s", r.Message())
	}
	c.after(2 * time.Minute)
	c.is(v1alpha1.StateClosed, v1alpha1.ReasonRegression)
}

// Without a maximum age, further successes cost no write.
func TestCompletedIsRememberedOnce(t *testing.T) {
	c := checked(t, preflight(0))
	c.pods(running("agent", succeeded))
	c.after(0)
	before := c.record()
	c.pods(running("agent", ended(true, -time.Minute)))
	c.after(2 * time.Minute)
	if after := c.record(); after != before {
		t.Errorf("%+v, want %+v", after, before)
	}
}

// A success counts although the gate still waits for something else when its pod is
// deleted.
func TestCompletedBeforeOtherSignals(t *testing.T) {
	c := checked(t, preflight(0))
	warm := mustCompile(t, v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "warm"}})
	c.gate.Signals = append(c.gate.Signals, gate.NamedSignal{Name: "warm", Signal: warm})
	c.pods(running("agent", succeeded))
	c.after(0)
	c.pods()
	c.after(time.Minute)
	c.is(v1alpha1.StateClosed, v1alpha1.ReasonBirth)
	c.world.facts.Node.Labels["warm"] = ""
	c.after(time.Minute)
	c.is(v1alpha1.StateOpen, v1alpha1.ReasonSignalsHold)
}

// A failure ends a success, and continues to do so when its pod is deleted.
func TestCompletedThenFailed(t *testing.T) {
	c := checked(t, preflight(0))
	c.pods(running("agent", succeeded))
	c.after(0)
	c.pods(running("agent", created(-30*time.Second), ended(false, -time.Minute)))
	if r := c.after(time.Minute + time.Second); r.Reason != v1alpha1.ReadingPodFailed {
		t.Fatalf("after the failure: %s", r.Message())
	}
	c.pods()
	if r := c.after(time.Second); r.Reason != missing {
		t.Fatalf("after the pod was deleted: %s", r.Message())
	}
}

// Two runs overlap: the one that was created last decides, whichever result is seen first.
func TestCompletedWhileAnotherRuns(t *testing.T) {
	success := running("agent", created(50*time.Second), ended(true, 20*time.Second))
	failure := running("agent", created(40*time.Second), ended(false, 5*time.Second))
	for _, seen := range []bool{true, false} {
		c := checked(t, preflight(0))
		if seen {
			c.pods(success)
			c.after(0)
		}
		c.pods(success, failure)
		if r := c.after(time.Second); r.Reason != v1alpha1.ReadingPodFailed {
			t.Errorf("the success was seen first: %t: %s", seen, r.Message())
		}
	}
}

// The run that was created last also decides after the pod of another one has been deleted.
func TestCompletedWhileAnotherRunsAndIsDeleted(t *testing.T) {
	ran := func(name string, created, ended time.Duration, ok bool) func(*world) {
		return running("agent", named(name), func(p *gate.Pod) {
			p.Created, p.Run.Started, p.Run.Ended = epoch.Add(created), epoch.Add(created), epoch.Add(ended)
			p.Ready, p.Finished, p.Run.Succeeded = false, ended != 0, ok
		})
	}
	const s = time.Second
	for name, c := range map[string]struct {
		seen [][]func(*world)
		want v1alpha1.ReadingReason
	}{
		"a failure, created later": {[][]func(*world){
			{ran("a", 0, 40*s, true), ran("b", 20*s, 0, false)}, {ran("b", 20*s, 55*s, false)}}, v1alpha1.ReadingPodFailed},
		"a failure, created later, seen later": {[][]func(*world){
			{ran("a", 0, 40*s, true)}, {}, {ran("b", 20*s, 55*s, false)}}, v1alpha1.ReadingPodFailed},
		"a failure, created earlier": {[][]func(*world){
			{ran("a", 20*s, 40*s, true), ran("b", 0, 0, false)}, {ran("b", 0, 55*s, false)}}, v1alpha1.ReadingCompletedEarlier},
		"a failure at the same second, ended later": {[][]func(*world){
			{ran("a", 0, 40*s, true)}, {ran("b", 0, 55*s, false)}}, v1alpha1.ReadingPodFailed},
		"a failure at the same second, ended earlier": {[][]func(*world){
			{ran("a", 0, 40*s, true)}, {ran("b", 0, 40*s, false)}}, v1alpha1.ReadingCompletedEarlier},
		"a failure between two successes": {[][]func(*world){
			{ran("a", 0, 10*s, true)}, {ran("b", 20*s, 0, false), ran("c", 30*s, 40*s, true)}, {ran("b", 20*s, 55*s, false)}}, v1alpha1.ReadingCompletedEarlier},
		"a failure after two successes": {[][]func(*world){
			{ran("a", 0, 10*s, true)}, {ran("b", 20*s, 40*s, true)}, {ran("c", 30*s, 55*s, false)}}, v1alpha1.ReadingPodFailed},
	} {
		for _, maxAge := range []int32{0, 3600} {
			c0 := checked(t, preflight(maxAge))
			c0.now = epoch.Add(time.Minute)
			var r gate.Reading
			for _, pods := range c.seen {
				c0.pods(pods...)
				r = c0.after(s)
			}
			if r.Reason != c.want {
				t.Errorf("%s, maximum age %d: %s, want %s", name, maxAge, r.Message(), c.want)
			}
		}
	}
}

// A record of an older version, which contains no creation, is still read.
func TestCompletedOfAnOlderVersion(t *testing.T) {
	c := checked(t, preflight(0))
	c.pods(running("agent", succeeded))
	c.after(0)
	r := c.record()
	_, old, _ := strings.Cut(string(r.Completed), " ") // the first entry is the creation
	r.Completed = gate.Completions(old)
	c.world.facts.Node.Records[c.gate.Name] = r.String()
	c.pods()
	if r := c.after(time.Second); r.Reason != v1alpha1.ReadingCompletedEarlier || string(c.record().Completed) != old {
		t.Errorf("%s, in the record %q, want %q", r.Message(), c.record().Completed, old)
	}
	c.pods(running("agent", created(19*time.Second), ended(false, 0)))
	if r := c.after(time.Second); r.Reason != v1alpha1.ReadingPodFailed {
		t.Errorf("after a failure: %s", r.Message())
	}
}

// A success of an earlier boot counts in no later one, however the reboot was observed,
// and although its pod still exists.
func TestCompletedInAnotherBoot(t *testing.T) {
	for name, observed := range map[string]bool{"observed": true, "unobserved": false} {
		t.Run(name, func(t *testing.T) {
			c := checked(t, preflight(0))
			old := running("agent", succeeded, incarnated(1))
			c.pods(old)
			c.after(0)
			c.is(v1alpha1.StateOpen, v1alpha1.ReasonSignalsHold)
			c.now = c.now.Add(time.Hour)
			c.reboots("b", observed)
			for range 5 {
				if r := c.after(time.Minute); r.State == gate.Holds {
					t.Fatalf("in the new boot: %s", r.Message())
				}
			}
			if r := c.record(); r.State != v1alpha1.StateClosed || r.Completed != "" {
				t.Fatalf("in the new boot: %+v", r)
			}
			c.pods(old, running("agent", named("agent-y"), inBoot("b"), created(-2*time.Hour), ended(true, -2*time.Hour)))
			c.now = epoch.Add(3 * time.Hour)
			c.after(0)
			c.is(v1alpha1.StateOpen, v1alpha1.ReasonSignalsHold)

			// The old pod does not count when the new one's success is lost.
			r := c.record()
			r.Completed = ""
			c.world.facts.Node.Records[c.gate.Name] = r.String()
			c.pods(old)
			if r := c.after(time.Minute); r.Reason != v1alpha1.ReadingStaleRun {
				t.Errorf("the old pod counts: %s", r.Message())
			}
		})
	}
}

// A pod that names the boot counts although it ran before nodegate observed the boot.
func TestCompletedInNamedBoot(t *testing.T) {
	c := checked(t, preflight(0))
	c.pods(running("agent", succeeded))
	c.after(0)
	c.pods(running("agent", incarnated(2), ended(true, -time.Minute), inBoot("b")))
	c.now = c.now.Add(time.Hour)
	c.reboots("b", false)
	c.after(0)
	if r := c.after(2 * time.Minute); r.State == gate.NotYet {
		t.Fatalf("the named boot: %s", r.Message())
	}
	if r := c.record(); r.State != v1alpha1.StateOpen || r.Boot != "b" || r.Completed == "" {
		t.Fatalf("the named boot: %+v", r)
	}
}

// The record of a gate that another one takes over, or that is edited, says nothing about runs
// that the gate did not select before.
func TestCompletedOfAnotherSelector(t *testing.T) {
	c := checked(t, preflight(0))
	r := c.record()
	r.Completed.Add("another", gate.Success{Ended: epoch, Created: epoch})
	c.world.facts.Node.Records[c.gate.Name] = r.String()
	if r := c.after(time.Minute); r.Reason != missing {
		t.Fatalf("another run's success counts: %s", r.Message())
	}
}

// A gate that never closes again remembers no success, because its record names no boot.
func TestCompletedWithoutBoot(t *testing.T) {
	c := checked(t, preflight(0))
	c.gate.Reclose = v1alpha1.RecloseNever
	c.pods(running("agent", succeeded))
	c.after(0)
	c.is(v1alpha1.StateOpen, v1alpha1.ReasonSignalsHold)
	if r := c.record(); r.Boot != "" || r.Completed != "" {
		t.Errorf("%+v", r)
	}
}

// Repeated successes do not interrupt the time for which the signals must hold.
func TestCompletedHoldsForLong(t *testing.T) {
	for _, maxAge := range []int32{0, 3600} {
		c := checked(t, preflight(maxAge))
		c.gate.OpenAfter = 10 * time.Minute
		for i := range 6 {
			at := -time.Duration(i) * 3 * time.Minute
			c.pods(running("agent", incarnated(gate.Incarnation(i+1)), created(at), ended(true, at)))
			d := gate.Decide([]gate.Gate{c.gate}, &c.world.facts, c.now)
			c.world.facts.Steady = map[string]gate.Steady{}
			if steady := d.Verdicts[0].Steady; steady != nil {
				c.world.facts.Steady[c.gate.Name] = *steady
			}
			c.after(0)
			c.now = c.now.Add(3 * time.Minute)
		}
		c.is(v1alpha1.StateOpen, v1alpha1.ReasonSignalsHold)
	}
}
