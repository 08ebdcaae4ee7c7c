// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// timeRule is a rule about time: something begins on a node, and after some time the gate
// closes or opens there.
type timeRule struct {
	spec func(*v1alpha1.NodeGateSpec)
	// before sets the node's initial state. begins is what happens at a time of the
	// node's clock.
	before func(*gate.Node)
	begins func(w *world, n *gate.Node, at time.Time)
	after  time.Duration
	closes bool
	// startsOver is true if the API reports no time, so that the wait restarts when the
	// controller is replaced.
	startsOver bool
	// ownClock is true if both ends of the wait are times of the controller's clock. In
	// the other cases, a node's clock that is ahead prolongs the wait, unless the
	// controller observed its beginning (observed).
	ownClock, observed bool
	// notAhead is true if times in the future are ignored, and nothing is waited for; see
	// TestPartition in the core.
	notAhead bool
	others   int // number of other nodes
}

func timed(change func(*v1alpha1.Timing)) func(*v1alpha1.NodeGateSpec) {
	return func(s *v1alpha1.NodeGateSpec) {
		s.Budget.MaxReclosed = new(intstr.FromString("100%"))
		change(&s.Timing)
	}
}

func probed(change func(*v1alpha1.NodeGateSpec)) func(*v1alpha1.NodeGateSpec) {
	return func(s *v1alpha1.NodeGateSpec) {
		s.OpenWhen[0].SignalSource = v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: "Probed", Status: "True"}}
		timed(func(*v1alpha1.Timing) {})(s)
		change(s)
	}
}

func byAgent(change func(*v1alpha1.NodeGateSpec)) func(*v1alpha1.NodeGateSpec) {
	return func(s *v1alpha1.NodeGateSpec) {
		s.OpenWhen[0].SignalSource = v1alpha1.SignalSource{Pods: &v1alpha1.PodsSignal{
			Namespace: "a", Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
		}}
		timed(func(*v1alpha1.Timing) {})(s)
		change(s)
	}
}

var agents = gate.PodQuery{Namespace: "a", Selector: "app=agent"}

func is(conditionType string, status corev1.ConditionStatus) func(*world, *gate.Node, time.Time) {
	return func(_ *world, n *gate.Node, at time.Time) {
		conditions := []gate.Condition{{Type: conditionType, Status: status, Transition: at}}
		for _, c := range n.Conditions {
			if c.Type != conditionType {
				conditions = append(conditions, c)
			}
		}
		n.Conditions = conditions
	}
}

func opened(n *gate.Node) { isOpen(n, "gate") }

func recorded(change func(*gate.Record)) func(*world, *gate.Node, time.Time) {
	return func(_ *world, n *gate.Node, _ time.Time) {
		r := gate.Record{
			State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonRegression, Since: time.Now(),
			Boot: "boot", Taint: controllertest.TaintKey + ":NoSchedule", Source: v1alpha1.SourceCRD,
		}
		n.Taints = []corev1.Taint{{Key: controllertest.TaintKey, Effect: corev1.TaintEffectNoSchedule}}
		change(&r)
		n.Records["gate"] = r.String()
	}
}

var timeRules = map[string]timeRule{
	"timing.closeAfterSeconds, by a condition": {
		spec:   probed(func(s *v1alpha1.NodeGateSpec) { s.Timing.CloseAfterSeconds = new(int32(600)) }),
		before: func(n *gate.Node) { opened(n); is("Probed", "True")(nil, n, time.Now().Add(-time.Minute)) },
		begins: is("Probed", "False"), after: 10 * time.Minute, closes: true, observed: true,
	},
	"timing.closeAfterSeconds, by a label": {
		spec:   timed(func(t *v1alpha1.Timing) { t.CloseAfterSeconds = new(int32(600)) }),
		before: opened, begins: func(_ *world, n *gate.Node, _ time.Time) { delete(n.Labels, "fit") },
		after: 10 * time.Minute, closes: true, startsOver: true, ownClock: true,
	},
	"timing.rolloutGraceSeconds": {
		spec:   byAgent(func(s *v1alpha1.NodeGateSpec) { s.Timing.RolloutGraceSeconds = new(int32(600)) }),
		before: opened,
		begins: func(w *world, _ *gate.Node, at time.Time) {
			w.daemonSets = []gate.DaemonSet{{Namespace: "a", Name: "agent", UID: "ds", PodLabels: map[string]string{"app": "agent"}, RollingOut: true}}
			w.agents = map[gate.PodQuery][]gate.Pod{agents: {{UID: "p", Name: "p", Owner: "ds", Created: at.Add(-time.Hour), Terminating: true, TerminatingSince: at}}}
		},
		after: 10 * time.Minute, closes: true, observed: true,
	},
	"timing.minClosedSeconds": {
		spec:   timed(func(t *v1alpha1.Timing) { t.MinClosedSeconds = 600 }),
		before: func(*gate.Node) {}, begins: recorded(func(*gate.Record) {}), after: 10 * time.Minute, ownClock: true,
	},
	"condition.forSeconds": {
		spec:   probed(func(s *v1alpha1.NodeGateSpec) { s.OpenWhen[0].Condition.ForSeconds = 600 }),
		before: func(n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonRegression) },
		begins: is("Probed", "True"), after: 10 * time.Minute,
	},
	"condition.maxHeartbeatAgeSeconds, of a heartbeat that is to come": {
		spec: probed(func(s *v1alpha1.NodeGateSpec) {
			s.OpenWhen[0].Condition.MaxHeartbeatAgeSeconds = new(int32(60))
		}),
		before: func(n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonRegression) },
		begins: func(w *world, n *gate.Node, at time.Time) {
			is("Probed", "True")(w, n, at)
			n.Conditions[0].Heartbeat = at.Add(10*time.Minute + 60*time.Second + gate.HeartbeatSkew)
		},
		after: 10 * time.Minute,
	},
	"deadline.readySeconds": {
		spec: func(s *v1alpha1.NodeGateSpec) {
			s.Deadline = &v1alpha1.Deadline{ReadySeconds: new(int32(600)), Action: v1alpha1.DeadlineOpen}
			s.OpenWhen[0].Label.Key = "never"
		},
		before: func(*gate.Node) {}, begins: recorded(func(*gate.Record) {}), after: 10 * time.Minute, ownClock: true,
	},
	"deadline.podMissingSeconds": {
		spec: byAgent(func(s *v1alpha1.NodeGateSpec) {
			s.Deadline = &v1alpha1.Deadline{PodMissingSeconds: new(int32(600)), Action: v1alpha1.DeadlineOpen}
		}),
		before: func(*gate.Node) {},
		begins: func(w *world, n *gate.Node, at time.Time) {
			w.agents = map[gate.PodQuery][]gate.Pod{agents: nil}
			recorded(func(*gate.Record) {})(w, n, at)
		},
		after: 10 * time.Minute, ownClock: true,
	},
	"a pod from before the reboot counts a minute after the new boot was observed": {
		spec:   byAgent(func(*v1alpha1.NodeGateSpec) {}),
		before: func(*gate.Node) {},
		begins: func(w *world, n *gate.Node, at time.Time) {
			w.agents = map[gate.PodQuery][]gate.Pod{agents: {{UID: "p", Name: "p", Created: at.Add(-time.Hour), Ready: true, ReadySince: at.Add(-time.Hour), Incarnation: 1}}}
			recorded(func(r *gate.Record) { r.Reason, r.Digest = v1alpha1.ReasonRebooted, "*" })(w, n, at)
		},
		after: time.Minute, ownClock: true,
	},
	"an unreachable node closes": {
		spec: func(s *v1alpha1.NodeGateSpec) { s.ReclosePolicy = v1alpha1.RecloseOnReboot }, others: 3,
		before: opened, begins: is("Ready", "Unknown"), after: 5 * time.Second, closes: true, notAhead: true,
	},
	"out of service, when the node is unreachable": {
		spec: func(s *v1alpha1.NodeGateSpec) {
			s.CloseWhen, s.OpenWhen, s.ReclosePolicy = s.OpenWhen, nil, ""
			s.Taint.Key, s.Acknowledge = v1alpha1.TaintOutOfService, []v1alpha1.Acknowledgement{v1alpha1.AcknowledgeVolumeDetach}
			timed(func(*v1alpha1.Timing) {})(s)
		},
		before: func(*gate.Node) {}, begins: is("Ready", "Unknown"), after: 61 * time.Second, closes: true,
	},
	"a taint that another writer has reverted repeatedly is added after a backoff": {
		spec: func(s *v1alpha1.NodeGateSpec) { s.OpenWhen[0].Label.Key = "never" }, before: func(*gate.Node) {},
		begins: func(w *world, n *gate.Node, at time.Time) {
			recorded(func(r *gate.Record) { r.Fought, r.FoughtAt = 3, time.Now() })(w, n, at)
			n.Taints = nil
		},
		after: 40 * time.Second, closes: true, ownClock: true,
	},
}

// Every rule about time, with a controller that runs continuously, and with one that is
// replaced after a pause. The wait is neither shortened nor, if the API reports a time,
// restarted. The node's clock may be two seconds off.
func TestWaits(t *testing.T) {
	for name, c := range timeRules {
		for _, replaced := range []bool{false, true} {
			for _, skew := range []time.Duration{0, -2 * time.Second, 2 * time.Second} {
				if c.notAhead && skew > 0 {
					continue
				}
				t.Run(name+map[bool]string{false: "", true: ", replaced"}[replaced]+", clock "+skew.String(), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { testWait(t, &c, replaced, skew) })
				})
			}
		}
	}
}

func testWait(t *testing.T, c *timeRule, replaced bool, skew time.Duration) {
	t.Helper()
	w := newWorld(t, controllertest.Gate("gate", c.spec))
	w.agents = map[gate.PodQuery][]gate.Pod{agents: {{UID: "p", Name: "p", Created: time.Now().Add(-time.Hour), Ready: true}}}
	w.add(1+c.others, func(i int, n *gate.Node) {
		if i == 0 {
			c.before(n)
		}
	})
	start := func() func() { return w.start(logr.Discard(), interceptor.Funcs{}) }
	stop := start()
	defer func() { stop() }()
	controllertest.Pass(10 * time.Second) // until the state of the fleet is known
	began := time.Now()
	w.change("n0000", func(n *gate.Node) { c.begins(w, n, began.Add(skew)) })
	due := began.Add(c.after)
	if !c.ownClock && (skew < 0 || !c.observed) {
		due = due.Add(skew)
	}
	controllertest.Pass(c.after / 4)
	if replaced {
		stop()
		controllertest.Pass(c.after / 4)
		if stop = start(); c.startsOver {
			due = time.Now().Add(c.after)
		}
	}
	before := w.closed()
	controllertest.Pass(time.Until(due) - 500*time.Millisecond)
	if w.closed() != before {
		t.Errorf("%s after it began, which is too early, %d nodes are closed", time.Since(began), w.closed())
	}
	controllertest.Pass(4 * time.Second) // a new leader reconciles the fleet before it grants budget
	want := 0
	if c.closes {
		want = 1
	}
	if w.closed() != want || before == want {
		t.Errorf("%s after it began, %d nodes are closed, and %d were before, want %d", time.Since(began), w.closed(), before, want)
	}
}
