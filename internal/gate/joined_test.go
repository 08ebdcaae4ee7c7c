// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// heartbeatAt is a signal that holds if a heartbeat at this time is accepted as evidence.
type heartbeatAt time.Time

func (s heartbeatAt) Read(in Input) Reading {
	if in.Trust.BelievesHeartbeat(time.Time(s)) {
		return Reading{State: Holds}
	}
	return Reading{Reason: v1alpha1.ReadingStaleHeartbeat}
}
func (heartbeatAt) Evidence(*Facts) ([]Pod, bool) { return nil, true }
func (heartbeatAt) ProvesBoot() bool              { return true }
func (heartbeatAt) Needs(*DaemonSets) Needs       { return Needs{Heartbeats: true} }

// evidenceKind is a kind of evidence of a boot.
type evidenceKind struct {
	signal Signal
	// older and newer make the node show evidence from before the boot, and from the boot.
	older, newer func(*sim)
	// proved is true if older evidence counts a minute after the boot.
	proved bool
}

func evidenceKinds() map[string]evidenceKind {
	pod := func(containers string, marked time.Duration) func(*sim) {
		return func(s *sim) {
			p := somePod("pod", containers, s.facts.Node.Created.Add(time.Second))
			p.MarkedSince = epoch.Add(marked)
			s.pods("cni", p)
		}
	}
	beat := func(at time.Duration) func(*sim) {
		return func(s *sim) { waitingFor(heartbeatAt(epoch.Add(at)))(&s.gates[0]) }
	}
	return map[string]evidenceKind{
		"pod":       {agent("cni"), pod("old", -day), pod("new", -day), true},
		"mark":      {markedAgent{"cni"}, pod("old", -day), pod("old", 0), false},
		"heartbeat": {heartbeatAt(epoch.Add(-day)), beat(-day), beat(day), false},
	}
}

// joiningNode returns a node that is not a member of the gate yet, and whose boot "b" was observed
// to begin some time ago, with evidence from before it.
func joiningNode(kind evidenceKind, ago time.Duration, options ...func(*Gate)) *sim {
	s := aNode(aGate("cni", append(options, waitingFor(kind.signal), selecting("late=yes"))...))
	s.gates[0].ReadsHeartbeats = kind.signal.Needs(nil).Heartbeats
	kind.older(s)
	s.sees("b", -ago)
	for _, pods := range s.facts.Pods {
		for i := range pods {
			s.facts.Boot.Known = pods[i].AppendKnown(s.facts.Boot.Known)
		}
	}
	return s
}

// A gate can take on a node after its reboot. The watch has observed what is from before the
// reboot, and that does not open the gate.
func TestJoinsAfterAnObservedBoot(t *testing.T) {
	for name, c := range map[string]struct {
		age, ago time.Duration
		options  []func(*Gate)
		join     func(*sim)
	}{
		"new, labelled late":     {5 * time.Minute, time.Second, nil, func(*sim) {}},
		"new, NotReady":          {9 * time.Minute, 3 * time.Minute, nil, func(s *sim) { s.ready("False") }},
		"adopts a taint":         {day, time.Second, nil, func(s *sim) { s.taint(cniTaint) }},
		"adopts a taint, later":  {day, time.Hour, nil, func(s *sim) { s.ready("False").taint(cniTaint) }},
		"closes existing nodes":  {day, time.Second, []func(*Gate){existing(v1alpha1.ExistingClose)}, func(*sim) {}},
		"adopts existing nodes":  {day, time.Second, []func(*Gate){existing(v1alpha1.ExistingAdopt)}, func(*sim) {}},
		"its first boot is late": {day, time.Second, nil, func(s *sim) { s.closed("cni").record("cni", "Closed", func(r *Record) { r.Boot = "" }) }},
	} {
		for of, kind := range evidenceKinds() {
			t.Run(name+"/"+of, func(t *testing.T) {
				s := joiningNode(kind, c.ago, c.options...).age(c.age).granting("cni").ready("True")
				kind.older(s)
				c.join(s.label("late", "yes"))
				if d := s.run(t); d.Verdicts[0].After == v1alpha1.StateOpen {
					t.Fatalf("opens on evidence from before the boot: %s", show(d))
				}
				kind.newer(s.after(time.Second))
				if d := s.run(t); d.Verdicts[0].After != v1alpha1.StateOpen {
					t.Errorf("does not open on evidence of the boot: %s", show(d))
				}
			})
		}
	}
}

// A minute after the boot was observed, a kubelet that is Ready has corrected its pods. It corrects
// no mark and no heartbeat.
func TestJoinsAMinuteAfterAnObservedBoot(t *testing.T) {
	for of, kind := range evidenceKinds() {
		s := joiningNode(kind, provenAfter-time.Second).taint(cniTaint).label("late", "yes")
		if d := s.run(t); d.Verdicts[0].After != v1alpha1.StateClosed {
			t.Errorf("%s: opens within the minute: %s", of, show(d))
		}
		if d := s.after(time.Second).run(t); d.Verdicts[0].Opened() != kind.proved {
			t.Errorf("%s, a minute after the boot: %s", of, show(d))
		}
	}
}

// A gate that closed in the boot for another reason opens again on pods of the boot, at once, and
// on pods whose status the watch delivered before the boot, if the node has been Ready for a minute.
func TestReopensInAnObservedBoot(t *testing.T) {
	for name, c := range map[string]struct {
		containers string
		ready      time.Duration
		opens      bool
	}{
		"pod of the boot, Ready just now":              {"new", 0, true},
		"pod known from before the boot":               {"old", provenAfter, true},
		"pod known from before the boot, Ready lately": {"old", provenAfter - 1, false},
	} {
		s := joiningNode(evidenceKinds()["pod"], time.Hour, reclosing(onRegression)).label("late", "yes").closed("cni")
		s.record("cni", "Closed", func(r *Record) { r.Reason, r.Boot = v1alpha1.ReasonRegression, "b" })
		s.ready("True").after(c.ready).pod("cni", c.containers, true)
		s.facts.Boot.Known = []Incarnation{NewIncarnation("pod", []string{"old"})}
		if d := s.run(t); d.Verdicts[0].Opened() != c.opens {
			t.Errorf("%s: %s", name, show(d))
		}
	}
}

// While a boot is ahead of the watch, a late status may be of any boot.
func TestJoinsAheadOfTheWatch(t *testing.T) {
	s := joiningNode(evidenceKinds()["pod"], time.Second).taint(cniTaint).label("late", "yes").pod("cni", "of any boot", true)
	s.facts.Boot = Boot{Seen: s.facts.Boot.Seen, Ahead: true}
	if d := s.run(t); d.Verdicts[0].After != v1alpha1.StateClosed {
		t.Fatalf("opens because of a pod that may be of any boot: %s", show(d))
	}
	s.facts.Boot.Ahead = false
	if d := s.run(t); !d.Verdicts[0].Opened() {
		t.Errorf("does not open when the watch has caught up: %s", show(d))
	}
}

// The same for evidence of every kind from before the boot, if nothing is known of the boot before it.
func TestJoinsOnOlderEvidenceAheadOfTheWatch(t *testing.T) {
	for of, kind := range evidenceKinds() {
		s := joiningNode(kind, time.Second).taint(cniTaint).label("late", "yes").ready("True")
		s.facts.Boot = Boot{Seen: s.facts.Boot.Seen, Ahead: true}
		if d := s.run(t); d.Verdicts[0].After != v1alpha1.StateClosed {
			t.Errorf("%s: opens on evidence from before the boot: %s", of, show(d))
		}
	}
}

// The record of a node that joins contains what was observed of its boot. After a restart of every
// replica, evidence from before the boot still does not count, and 'kubectl gate why', which has
// observed no boot, agrees.
func TestJoinsAndNodegateRestarts(t *testing.T) {
	for of, kind := range evidenceKinds() {
		for reader, seen := range map[string]func(*sim) Boot{
			"another replica": func(s *sim) Boot { return Boot{Seen: s.now} },
			"why":             func(*sim) Boot { return Boot{} },
		} {
			s := joiningNode(kind, time.Second).taint(cniTaint).label("late", "yes").ready("True")
			s.run(t)
			s.after(time.Second).facts.Boot = seen(s)
			if d := s.run(t); d.Verdicts[0].After != v1alpha1.StateClosed {
				t.Errorf("%s, %s: opens on evidence from before the boot: %s", of, reader, show(d))
			}
			kind.newer(s)
			if d := s.run(t); !d.Verdicts[0].Opened() {
				t.Errorf("%s, %s: does not open on evidence of the boot: %s", of, reader, show(d))
			}
		}
	}
}

// Pods from before the boot count a minute after the node has joined.
func TestNewNodeJoinsAndNodegateRestarts(t *testing.T) {
	s := joiningNode(evidenceKinds()["pod"], time.Second).age(5*time.Minute).label("late", "yes").ready("True")
	s.facts.Node.Conditions[0].Transition = s.facts.Node.Created // it rebooted too fast to become NotReady
	s.run(t)
	s.after(provenAfter - 1).facts.Boot = Boot{Seen: s.now}
	if d := s.decide(); d.Verdicts[0].After != v1alpha1.StateClosed {
		t.Errorf("opens within the minute: %s", show(d))
	}
	if d := s.after(1).decide(); !d.Verdicts[0].Opened() {
		t.Errorf("does not open after the minute: %s", show(d))
	}
}

// The record contains when the boot was observed, if the gate waits for heartbeats.
func TestJoiningRecordContainsTheBoot(t *testing.T) {
	s := joiningNode(evidenceKinds()["heartbeat"], time.Hour).taint(cniTaint).label("late", "yes")
	s.run(t)
	if r := mustParse(t, s, "cni"); !r.BootSeen.Equal(epoch.Add(-time.Hour)) {
		t.Errorf("the boot was seen at %s", r.BootSeen)
	}
}

// A deadline opens the gate without evidence. What is from before the boot does not end that.
func TestDeadlineAfterJoining(t *testing.T) {
	for of, kind := range evidenceKinds() {
		s := joiningNode(kind, time.Second).taint(cniTaint).label("late", "yes").ready("False")
		s.gates[0].Deadline = Deadline{Ready: time.Minute, Open: true}
		s.run(t)
		s.after(time.Minute).run(t)
		if d := s.after(time.Second).run(t); d.Verdicts[0].Reason != v1alpha1.ReasonDeadlinePassed {
			t.Errorf("%s: evidence from before the boot counts: %s", of, show(d))
		}
		kind.newer(s)
		if d := s.after(time.Second).run(t); d.Verdicts[0].Reason != v1alpha1.ReasonSignalsHold {
			t.Errorf("%s: evidence of the boot does not count: %s", of, show(d))
		}
	}
}

// An outage in the boot does not turn evidence from before the boot into evidence of it.
func TestOutageAfterDeadlineAfterJoining(t *testing.T) {
	for of, kind := range evidenceKinds() {
		s := joiningNode(kind, time.Second, reclosing(v1alpha1.RecloseOnReboot)).taint(cniTaint).label("late", "yes").ready("True")
		s.gates[0].Deadline = Deadline{Ready: 30 * time.Second, Open: true}
		s.run(t)
		s.after(31 * time.Second).run(t)
		if d := s.ready("Unknown").after(time.Second).run(t); !d.Verdicts[0].Closed() {
			t.Fatalf("%s: does not close for the outage: %s", of, show(d))
		}
		if d := s.ready("True").after(time.Second).run(t); d.Verdicts[0].Reason == v1alpha1.ReasonSignalsHold {
			t.Errorf("%s: evidence from before the boot counts: %s", of, show(d))
		}
		kind.newer(s)
		if d := s.after(time.Second).run(t); d.Verdicts[0].Reason != v1alpha1.ReasonSignalsHold {
			t.Errorf("%s: evidence of the boot does not count: %s", of, show(d))
		}
	}
}
