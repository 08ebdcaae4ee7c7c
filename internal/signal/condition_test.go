// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

const (
	staleHeartbeat = v1alpha1.ReadingStaleHeartbeat
	tooBriefly     = v1alpha1.ReadingTooBriefly
)

// beat returns a condition whose heartbeat is that long ago.
func beat(conditionType string, status corev1.ConditionStatus, ago time.Duration) gate.Condition {
	return gate.Condition{Type: conditionType, Status: status, Heartbeat: epoch.Add(-ago), Transition: epoch.Add(-time.Hour)}
}

// lasting returns a condition that has had its status for that long.
func lasting(conditionType string, status corev1.ConditionStatus, ago time.Duration) gate.Condition {
	return gate.Condition{Type: conditionType, Status: status, Transition: epoch.Add(-ago)}
}

// A condition without a recent heartbeat is unknown, whatever its status. Clock skew of
// up to ten seconds is tolerated.
func TestConditionHeartbeat(t *testing.T) {
	spec := v1alpha1.ConditionSignal{Type: "Net", Status: "True", MaxHeartbeatAgeSeconds: new(int32(60))}
	s := mustCompile(t, v1alpha1.SignalSource{Condition: &spec})
	const subject = "condition Net=True"
	check(t, s, map[string]reads{
		"fresh":                {conditions(beat("Net", "True", 0)), gate.Holds, matches, subject},
		"at the maximum age":   {conditions(beat("Net", "True", 60*time.Second)), gate.Holds, matches, subject},
		"within the tolerance": {conditions(beat("Net", "True", 70*time.Second)), gate.Holds, matches, subject},
		"too old":              {conditions(beat("Net", "True", 70*time.Second+1)), gate.Unknown, staleHeartbeat, subject},
		"too old, differs":     {conditions(beat("Net", "False", 80*time.Second)), gate.Unknown, staleHeartbeat, "condition Net=False"},
		"fresh, differs":       {conditions(beat("Net", "False", 0)), gate.NotYet, differs, "condition Net=False"},
		"fresh, Unknown":       {conditions(beat("Net", "Unknown", 0)), gate.Unknown, differs, "condition Net=Unknown"},
		"no heartbeat":         {conditions(cond("Net", "True")), gate.Unknown, staleHeartbeat, subject},
		"a clock that is ahead": {
			conditions(beat("Net", "True", -70*time.Second)), gate.Holds, matches, subject},
		"a clock that is wrong": {
			conditions(beat("Net", "True", -71*time.Second)), gate.Unknown, staleHeartbeat, subject},
		"missing": {conditions(), gate.NotYet, absent, "condition Net"},
		// The newest heartbeat belongs to another condition. Only the condition of the
		// requested type matters.
		"another condition's heartbeat": {conditions(beat("Net", "True", 90*time.Second), beat("Disk", "True", 0)), gate.Unknown, staleHeartbeat, subject},
	})
	several := v1alpha1.ConditionSignal{TypePattern: "Net.*", Status: "True", MaxHeartbeatAgeSeconds: new(int32(60))}
	check(t, mustCompile(t, v1alpha1.SignalSource{Condition: &several}), map[string]reads{
		"a fresh one of two":                    {conditions(beat("NetA", "True", time.Hour), beat("NetB", "True", 0)), gate.Holds, matches, "condition NetB=True"},
		"Unknown takes precedence":              {conditions(beat("NetA", "True", time.Hour), beat("NetB", "False", 0)), gate.Unknown, staleHeartbeat, "condition NetA=True"},
		"Unknown takes precedence in any order": {conditions(beat("NetB", "False", 0), beat("NetA", "True", time.Hour)), gate.Unknown, staleHeartbeat, "condition NetA=True"},
	})
	if !s.ProvesBoot() || !s.Needs(nil).Heartbeats {
		t.Error("heartbeats prove the boot, and must be observed")
	}
	orMissing := v1alpha1.ConditionSignal{Type: "Net", Status: "True", MaxHeartbeatAgeSeconds: new(int32(60)), WhenMissing: v1alpha1.MissingHolds}
	if mustCompile(t, v1alpha1.SignalSource{Condition: &orMissing}).ProvesBoot() {
		t.Error("a condition that may be missing has no heartbeat to prove the boot by")
	}
}

// netReports returns the signal that the condition Net is True, with heartbeats.
func netReports() v1alpha1.SignalSource {
	return v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: "Net", Status: "True", MaxHeartbeatAgeSeconds: new(int32(600))}}
}

// A heartbeat from before a reboot ends no exception of a gate that its deadline opened,
// also after the controller has restarted, and if the node is unreachable in the meantime.
func TestHeartbeatAfterDeadline(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		c := checked(t, netReports())
		c.gate.Deadline = gate.Deadline{Ready: time.Minute, Open: true}
		n := &c.world.facts.Node
		n.Conditions = append(n.Conditions, beat("Net", "True", 30*time.Second))
		c.reboots("b", true)
		c.after(0)
		c.is(v1alpha1.StateClosed, v1alpha1.ReasonRebooted)
		c.after(61 * time.Second)
		c.is(v1alpha1.StateOpen, v1alpha1.ReasonDeadlinePassed)
		if restarted {
			c.world.facts.Boot = gate.Boot{Seen: c.now}
		}
		if r := c.after(time.Second); r.Reason != staleHeartbeat {
			t.Errorf("restarted: %t: in the exception: %s", restarted, r.Message())
		}
		c.is(v1alpha1.StateOpen, v1alpha1.ReasonDeadlinePassed)
		n.Conditions[0].Status, n.Conditions[0].Transition = corev1.ConditionUnknown, c.now
		c.after(time.Second)
		c.is(v1alpha1.StateClosed, v1alpha1.ReasonNodeSilent)
		n.Conditions[0].Status, n.Conditions[0].Transition = corev1.ConditionTrue, c.now
		c.after(time.Second)
		c.is(v1alpha1.StateOpen, v1alpha1.ReasonDeadlinePassed)
		c.after(time.Second)
		c.is(v1alpha1.StateOpen, v1alpha1.ReasonDeadlinePassed)
		n.Conditions[1].Heartbeat = c.now.Add(gate.HeartbeatSkew)
		c.after(20 * time.Second)
		c.is(v1alpha1.StateOpen, v1alpha1.ReasonSignalsHold)
	}
}

// The same applies to a gate that never closes again, whose open record names no boot.
func TestHeartbeatAfterLastDeadline(t *testing.T) {
	c := checked(t, netReports())
	c.gate.Reclose, c.gate.Deadline = v1alpha1.RecloseNever, gate.Deadline{Ready: time.Minute, Open: true}
	n := &c.world.facts.Node
	n.Conditions = append(n.Conditions, beat("Net", "True", 30*time.Second))
	c.reboots("b", true)
	c.after(0)
	c.is(v1alpha1.StateClosed, v1alpha1.ReasonRebooted)
	c.after(61 * time.Second)
	c.after(time.Second)
	c.is(v1alpha1.StateOpen, v1alpha1.ReasonDeadlinePassed)
	n.Conditions[1].Heartbeat = c.now.Add(gate.HeartbeatSkew)
	c.after(20 * time.Second)
	c.is(v1alpha1.StateOpen, v1alpha1.ReasonSignalsHold)
}

// A heartbeat from before a reboot whose start was not observed is no evidence for an open
// gate: it does not close, and its exception does not end, until a heartbeat of the boot
// arrives. Only the record of a gate that evicts pods is updated to the boot before that.
func TestHeartbeatAfterUnobservedReboot(t *testing.T) {
	for name, tt := range map[string]struct {
		opened v1alpha1.Reason
		before corev1.ConditionStatus
	}{
		"the signal held before": {v1alpha1.ReasonSignalsHold, corev1.ConditionTrue},
		"it did not hold before": {v1alpha1.ReasonSignalsHold, corev1.ConditionFalse},
		"opened by its deadline": {v1alpha1.ReasonDeadlinePassed, corev1.ConditionTrue},
	} {
		for effect, boot := range map[corev1.TaintEffect]string{corev1.TaintEffectNoSchedule: "a", corev1.TaintEffectNoExecute: "b"} {
			t.Run(name+", "+string(effect), func(t *testing.T) {
				c := checked(t, netReports())
				c.gate.RecloseTaint = v1alpha1.Taint{Key: gateKey, Effect: effect}
				n := &c.world.facts.Node
				c.opened(tt.opened, "a")
				n.Conditions = append(n.Conditions, beat("Net", tt.before, 30*time.Second))
				c.reboots("b", false)
				for range 3 {
					if r := c.after(time.Minute); r.Reason != staleHeartbeat {
						t.Errorf("before a heartbeat of the boot: %s", r.Message())
					}
					if c.is(v1alpha1.StateOpen, tt.opened); c.record().Boot != boot {
						t.Errorf("the record is of boot %s, want %s", c.record().Boot, boot)
					}
				}
				n.Conditions[1].Status, n.Conditions[1].Heartbeat = corev1.ConditionTrue, c.now
				c.after(time.Second)
				if c.is(v1alpha1.StateOpen, v1alpha1.ReasonSignalsHold); c.record().Boot != "b" {
					t.Error("the record is not updated to the boot")
				}
			})
		}
	}
}

// A gate that evicts pods closes in such a boot because of another signal, and opens only after
// a heartbeat of the boot, also if the controller restarts in between and the node is
// unreachable for a while.
func TestReopeningNeedsAHeartbeatOfTheBoot(t *testing.T) {
	c := checked(t, netReports())
	c.gate.RecloseTaint = v1alpha1.Taint{Key: gateKey, Effect: corev1.TaintEffectNoExecute}
	fit := mustCompile(t, v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "fit"}})
	c.gate.Signals = append(c.gate.Signals, gate.NamedSignal{Name: "fit", Signal: fit})
	n := &c.world.facts.Node
	n.Labels = map[string]string{"fit": ""}
	c.opened(v1alpha1.ReasonSignalsHold, "a")
	n.Conditions = append(n.Conditions, beat("Net", corev1.ConditionTrue, 30*time.Second))
	c.reboots("b", false)
	c.after(0)
	c.after(time.Minute)
	c.is(v1alpha1.StateOpen, v1alpha1.ReasonSignalsHold)
	n.Labels = nil
	c.after(time.Second)
	c.after(time.Minute)
	c.is(v1alpha1.StateClosed, v1alpha1.ReasonRegression)
	n.Labels = map[string]string{"fit": ""}
	c.after(time.Second)
	c.is(v1alpha1.StateClosed, v1alpha1.ReasonRegression)
	c.world.facts.Boot.Seen = c.now // the controller has restarted
	c.after(time.Second)
	c.is(v1alpha1.StateClosed, v1alpha1.ReasonRegression)
	n.Conditions[1].Heartbeat = c.now
	c.after(time.Second)
	c.is(v1alpha1.StateOpen, v1alpha1.ReasonSignalsHold)
}

// A gate that one of two alternatives opened in a boot does not take the other one's heartbeat
// from before the boot as evidence afterwards.
func TestHeartbeatOfAnAlternative(t *testing.T) {
	either, err := compileSignal(&v1alpha1.Signal{Name: "either", AnyOf: []v1alpha1.NamedSource{
		{Name: "net", SignalSource: netReports()},
		{Name: "fit", SignalSource: v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "fit"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := checked(t, netReports())
	c.gate.Signals = []gate.NamedSignal{{Name: "either", Signal: either}}
	n := &c.world.facts.Node
	n.Conditions = append(n.Conditions, beat("Net", corev1.ConditionTrue, 30*time.Second))
	c.reboots("b", true)
	c.after(0)
	c.is(v1alpha1.StateClosed, v1alpha1.ReasonRebooted)
	n.Labels = map[string]string{"fit": ""}
	c.after(time.Second)
	c.is(v1alpha1.StateOpen, v1alpha1.ReasonSignalsHold)
	n.Labels = nil
	if r := c.after(time.Second); r.State != gate.Unknown {
		t.Errorf("without a heartbeat of the boot: %s", r.Message())
	}
	n.Conditions[1].Heartbeat = c.now.Add(gate.HeartbeatSkew)
	if r := c.after(time.Second); r.State != gate.Holds {
		t.Errorf("after a heartbeat of the boot: %s", r.Message())
	}
}

// The clock of the controller that wrote the record may have been wrong: a boot was not first
// observed later than this controller observed it.
func TestBootSeenInTheFuture(t *testing.T) {
	c := checked(t, netReports())
	n := &c.world.facts.Node
	c.opened(v1alpha1.ReasonSignalsHold, "a")
	record := c.record()
	record.BootSeen = c.now.Add(24 * time.Hour)
	n.Records[c.gate.Name] = record.String()
	n.Conditions = append(n.Conditions, beat("Net", corev1.ConditionFalse, 0))
	c.after(time.Second)
	c.after(time.Minute)
	c.is(v1alpha1.StateClosed, v1alpha1.ReasonRegression)
}

// A gate that does not compile has no signals, and its deadline may open it. When it is corrected,
// a heartbeat from before the reboot does not end the exception.
func TestHeartbeatOfACorrectedGate(t *testing.T) {
	c := checked(t, netReports())
	c.gate.Deadline = gate.Deadline{Ready: time.Minute, Open: true}
	n := &c.world.facts.Node
	n.Conditions = append(n.Conditions, beat("Net", corev1.ConditionTrue, 30*time.Second))
	correct := c.gate
	c.gate.Signals, c.gate.ReadsHeartbeats = nil, false
	c.reboots("b", true)
	c.after(0)
	c.is(v1alpha1.StateClosed, v1alpha1.ReasonRebooted)
	c.after(61 * time.Second)
	c.is(v1alpha1.StateOpen, v1alpha1.ReasonDeadlinePassed)
	c.gate = correct
	c.after(time.Second)
	c.is(v1alpha1.StateOpen, v1alpha1.ReasonDeadlinePassed)
	n.Conditions[1].Heartbeat = c.now.Add(gate.HeartbeatSkew)
	c.after(time.Second)
	c.is(v1alpha1.StateOpen, v1alpha1.ReasonSignalsHold)
}

// If the passing of time changes the reading of a condition, it is repeated at that
// time.
func TestConditionRecheck(t *testing.T) {
	age := new(int32(60))
	for name, c := range map[string]struct {
		spec v1alpha1.ConditionSignal
		node *world
		want time.Duration // zero for never
	}{
		"any age":           {v1alpha1.ConditionSignal{}, conditions(beat("Net", "True", 0)), 0},
		"until it is stale": {v1alpha1.ConditionSignal{MaxHeartbeatAgeSeconds: age}, conditions(beat("Net", "True", 20*time.Second)), 50*time.Second + 1},
		"stale":             {v1alpha1.ConditionSignal{MaxHeartbeatAgeSeconds: age}, conditions(beat("Net", "True", time.Hour)), 0},
		"from the future":   {v1alpha1.ConditionSignal{MaxHeartbeatAgeSeconds: age}, conditions(beat("Net", "True", -80*time.Second)), 10 * time.Second},
		"for long enough":   {v1alpha1.ConditionSignal{ForSeconds: 30}, conditions(lasting("Net", "True", time.Minute)), 0},
		"too briefly":       {v1alpha1.ConditionSignal{ForSeconds: 30}, conditions(lasting("Net", "True", 10*time.Second)), 20 * time.Second},
		"the first of two": {v1alpha1.ConditionSignal{ForSeconds: 30, TypePattern: "Net|Disk"},
			conditions(lasting("Net", "True", 10*time.Second), lasting("Disk", "True", 15*time.Second)), 15 * time.Second},
		"both": {v1alpha1.ConditionSignal{ForSeconds: 30, MaxHeartbeatAgeSeconds: age},
			conditions(gate.Condition{Type: "Net", Status: "True", Heartbeat: epoch.Add(-69 * time.Second), Transition: epoch.Add(-10 * time.Second)}), time.Second + 1},
	} {
		if c.spec.Status = "True"; c.spec.TypePattern == "" {
			c.spec.Type = "Net"
		}
		r, _ := read(t, mustCompile(t, v1alpha1.SignalSource{Condition: &c.spec}), c.node)
		got := r.Recheck.Sub(epoch)
		if r.Recheck.IsZero() {
			got = 0
		}
		if got != c.want {
			t.Errorf("%s: recheck after %s, want %s", name, got, c.want)
		}
	}
}

func TestConditionForSeconds(t *testing.T) {
	spec := v1alpha1.ConditionSignal{Type: "Net", Status: "True", ForSeconds: 30}
	const subject = "condition Net=True"
	check(t, mustCompile(t, v1alpha1.SignalSource{Condition: &spec}), map[string]reads{
		"long enough":                        {conditions(lasting("Net", "True", 30*time.Second)), gate.Holds, matches, subject},
		"too briefly":                        {conditions(lasting("Net", "True", 30*time.Second-1)), gate.NotYet, tooBriefly, subject},
		"differs for long":                   {conditions(lasting("Net", "False", time.Hour)), gate.NotYet, differs, "condition Net=False"},
		"since the future":                   {conditions(lasting("Net", "True", -time.Hour)), gate.NotYet, tooBriefly, subject},
		"without a transition time":          {conditions(gate.Condition{Type: "Net", Status: "True"}), gate.Unknown, v1alpha1.ReadingNoTransitionTime, subject},
		"differs, without a transition time": {conditions(gate.Condition{Type: "Net", Status: "False"}), gate.NotYet, differs, "condition Net=False"},
		"missing":                            {conditions(), gate.NotYet, absent, "condition Net"},
		"another condition":                  {conditions(lasting("Net", "True", time.Second), lasting("Disk", "True", time.Hour)), gate.NotYet, tooBriefly, subject},
	})
}

// After a reboot, a condition is evidence if its heartbeat is later than the time at
// which the boot was first observed. A heartbeat that the first status repeats is not
// sufficient.
func TestConditionOfThisBoot(t *testing.T) {
	spec := v1alpha1.ConditionSignal{Type: "Net", Status: "True", MaxHeartbeatAgeSeconds: new(int32(600))}
	heartbeat := mustCompile(t, v1alpha1.SignalSource{Condition: &spec})
	spec.MaxHeartbeatAgeSeconds = nil
	level := mustCompile(t, v1alpha1.SignalSource{Condition: &spec})
	seen := epoch.Add(-time.Minute)
	for name, c := range map[string]struct {
		signal    gate.Signal
		reason    v1alpha1.Reason
		boot      string
		heartbeat time.Time
		want      bool
	}{
		"from before the boot":                {heartbeat, v1alpha1.ReasonRebooted, "a", seen.Add(-time.Minute), false},
		"in the first status":                 {heartbeat, v1alpha1.ReasonRebooted, "a", seen, false},
		"within the allowance for clock skew": {heartbeat, v1alpha1.ReasonRebooted, "a", seen.Add(10 * time.Second), false},
		"after that":                          {heartbeat, v1alpha1.ReasonRebooted, "a", seen.Add(11 * time.Second), true},
		"without maxHeartbeatAgeSeconds, any heartbeat is accepted": {level, v1alpha1.ReasonRebooted, "a", seen.Add(-time.Minute), true},
		"born, not rebooted":              {heartbeat, v1alpha1.ReasonBirth, "a", seen, true},
		"unreachable, then the same boot": {heartbeat, v1alpha1.ReasonNodeSilent, "a", seen.Add(-time.Minute), true},
		"unreachable, then a new boot":    {heartbeat, v1alpha1.ReasonNodeSilent, "z", seen.Add(30 * time.Second), false},
		"shut down, then the same boot":   {heartbeat, v1alpha1.ReasonNodeShutdown, "a", seen.Add(-time.Minute), true},
	} {
		w := conditions(gate.Condition{Type: "Net", Status: "True", Heartbeat: c.heartbeat})
		g := aClosedGate(c.signal, gate.Record{Since: seen, Reason: c.reason, Boot: c.boot}, w)
		d := gate.Decide([]gate.Gate{g}, &w.facts, epoch)
		if opened := d.Verdicts[0].Opened(); opened != c.want {
			t.Errorf("%s: opens: %t, reads %+v", name, opened, d.Verdicts[0].Readings)
		}
	}
}
