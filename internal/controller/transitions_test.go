// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/telemetry"
)

// eventLines returns the Events about objects of a kind, in order, each as "type reason
// name (gate): note".
func (w *world) eventLines(kind string) (lines []string) {
	w.t.Helper()
	events := w.events()
	slices.SortStableFunc(events, func(a, b eventsv1.Event) int {
		return strings.Compare(a.Name[len(a.Regarding.Name):], b.Name[len(b.Regarding.Name):])
	})
	for _, e := range events {
		if e.Regarding.Kind != kind {
			continue
		}
		related := "-"
		if e.Related != nil {
			related = e.Related.Name
		}
		lines = append(lines, fmt.Sprintf("%s %s %s (%s): %s", e.Type, e.Reason, e.Regarding.Name, related, e.Note))
	}
	return lines
}

func (w *world) wantEvents(t *testing.T, kind string, want ...string) {
	t.Helper()
	if got := w.eventLines(kind); !slices.Equal(got, want) {
		t.Errorf("Events about %s:\n\t%s\nwant:\n\t%s", kind, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// One write causes one Event for all openings and one for all closings on the node, with
// each gate's reason. A single gate is the related object.
func TestTransitionsAreEventsOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := controllertest.Gate("second", func(s *v1alpha1.NodeGateSpec) { s.Taint.Key = "test.nodegate.dev/b" })
		w := newWorld(t, controllertest.Gate("gate"), second)
		w.add(1, func(i int, n *gate.Node) {
			unfit(i, n)
			isClosed(n, "gate", v1alpha1.ReasonBirth)
			isClosed(n, "second", v1alpha1.ReasonBirth)
			n.Taints = []corev1.Taint{{Key: controllertest.TaintKey, Effect: "NoSchedule"}, {Key: "test.nodegate.dev/b", Effect: "NoSchedule"}}
		})
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		controllertest.Pass(30 * time.Second)
		w.wantEvents(t, "Node")
		w.change("n0000", func(n *gate.Node) { n.Labels["fit"] = "" })
		controllertest.Pass(30 * time.Second)
		both := "Normal GateOpened n0000 (-): 2 gates opened: gate after 10m30s (SignalsHold), second after 10m30s (SignalsHold)"
		w.wantEvents(t, "Node", both)
		w.setGates(true, controllertest.Gate("gate")) // the other is deleted: removing its record is no transition
		controllertest.Pass(30 * time.Second)
		w.change("n0000", func(n *gate.Node) { delete(n.Labels, "fit") })
		controllertest.Pass(30 * time.Second)
		w.wantEvents(t, "Node", both, "Normal GateClosed n0000 (gate): gate closed: gate (Regression: signal fit: the node has no label fit)")
		for _, e := range w.events() {
			if e.Regarding.Kind == "Node" && (e.Regarding.UID != "uid-of-n0000" || e.Namespace != "default" || e.ReportingController != v1alpha1.EventReporter) {
				t.Errorf("%+v", e)
			}
			if e.Reason == v1alpha1.EventGateClosed && (e.Action != v1alpha1.EventActionClose || e.Related.UID != "uid-of-gate" || e.Related.Kind != "NodeGate") {
				t.Errorf("%+v", e)
			}
		}
	})
}

// A new node that registers with a gate's taint was never open: nodegate writes its record, and
// counts and reports no closing. A taint that it adopts on another node is a closing.
func TestClosingOfATaintedNodeIsReportedUnlessItIsNew(t *testing.T) {
	for name, c := range map[string]struct {
		age     time.Duration
		tainted bool
		reason  v1alpha1.Reason
		counted float64
	}{
		"new, and tainted": {time.Second, true, v1alpha1.ReasonBirth, 0},
		"new, and open":    {time.Second, false, v1alpha1.ReasonBirth, 1},
		"old, and tainted": {time.Hour, true, v1alpha1.ReasonAdopted, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, controllertest.Gate("gate"))
				w.add(1, func(i int, n *gate.Node) {
					unfit(i, n)
					n.Created = time.Now().Add(-c.age)
					if c.tainted {
						n.Taints = []corev1.Taint{{Key: controllertest.TaintKey, Effect: corev1.TaintEffectNoSchedule}}
					}
				})
				defer w.start(logr.Discard(), allowingAllBut(nil))()
				controllertest.Pass(30 * time.Second)
				node := w.node("n0000")
				if r, err := gate.ParseRecord(node.Records["gate"]); err != nil || r.State != v1alpha1.StateClosed || r.Reason != c.reason || len(node.Taints) != 1 {
					t.Errorf("the record is %s, with taints %v", node.Records["gate"], node.Taints)
				}
				if n := testutil.ToFloat64(w.c.metrics.Closes.WithLabelValues("gate", string(c.reason))); n != c.counted {
					t.Errorf("%v closings are counted, want %v", n, c.counted)
				}
				if lines := w.eventLines("Node"); len(lines) != int(c.counted) {
					t.Errorf("the Events are %q, want %v", lines, c.counted)
				}
			})
		})
	}
}

// An opening by deadline has one Event.
func TestOpeningByDeadlineIsOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", withDeadline(3600, v1alpha1.DeadlineOpen)))
		w.add(1, func(i int, n *gate.Node) { unfit(i, n); isClosed(n, "gate", v1alpha1.ReasonBirth) })
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		controllertest.Pass(time.Hour)
		w.wantWait(t, "fit", 0, 0) // it never held
		w.wantEvents(t, "Node", "Warning DeadlinePassed n0000 (gate): gate gate opens on this node because its deadline has passed; it waits for: signal fit: the node has no label fit")
	})
}

// Events about a gate report when a condition begins to indicate a problem, and when it
// ceases to, regardless of the number of nodes. That a new gate is not ready yet is no
// problem.
func TestConditionsAreEventsOfTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"), controllertest.Gate("refused", func(s *v1alpha1.NodeGateSpec) { s.Taint.Value = "other" }))
		w.add(10, func(_ int, n *gate.Node) { isOpen(n, "gate") })
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		controllertest.Pass(10 * time.Second)
		w.wantEvents(t, "NodeGate",
			"Warning NotAccepted refused (-): TaintConflict: the older gate gate has the taint test.nodegate.dev/a:NoSchedule, "+
				"and a node cannot carry test.nodegate.dev/a=other:NoSchedule as well: use the same value, or another key")
		for _, name := range w.NodeNames() {
			w.change(name, func(n *gate.Node) { delete(n.Labels, "fit") })
		}
		controllertest.Pass(time.Minute)
		for _, name := range w.NodeNames() {
			w.change(name, func(n *gate.Node) { n.Labels["fit"] = "" })
		}
		controllertest.Pass(time.Minute)
		lines := w.eventLines("NodeGate")
		if len(lines) != 3 || !strings.HasPrefix(lines[1], "Warning Throttled gate (-): closing waits for budget on ") ||
			lines[2] != "Normal NotThrottled gate (-): closing does not wait for budget anymore" {
			t.Errorf("Events about gates:\n%s", strings.Join(lines, "\n"))
		}
	})
}

// conditions returns one condition, or none if status is empty.
func conditions(kind, status string) []metav1.Condition {
	if status == "" {
		return nil
	}
	return []metav1.Condition{{Type: kind, Status: metav1.ConditionStatus(status), Reason: "Reason", Message: "message"}}
}

// A condition causes an Event when its status changes, and none while it does not.
func TestConditionEvents(t *testing.T) {
	const yes, no, none = "True", "False", ""
	for _, c := range []struct {
		condition, before, now string
		mode                   v1alpha1.Mode
		want                   string
	}{
		{v1alpha1.ConditionAccepted, none, no, "", v1alpha1.EventNotAccepted},
		{v1alpha1.ConditionAccepted, none, yes, "", ""},
		{v1alpha1.ConditionAccepted, yes, no, "", v1alpha1.EventNotAccepted},
		{v1alpha1.ConditionAccepted, no, no, "", ""},
		{v1alpha1.ConditionAccepted, no, yes, "", v1alpha1.EventAccepted},
		{v1alpha1.ConditionReady, none, no, "", ""},
		{v1alpha1.ConditionReady, no, yes, "", v1alpha1.EventReady},
		{v1alpha1.ConditionReady, yes, yes, "", ""},
		{v1alpha1.ConditionReady, yes, no, "", v1alpha1.EventNotReady},
		{v1alpha1.ConditionOverdue, none, yes, "", v1alpha1.EventOverdue},
		{v1alpha1.ConditionOverdue, yes, none, "", v1alpha1.EventNotOverdue},
		{v1alpha1.ConditionOverdue, none, yes, v1alpha1.ModeDryRun, ""},
		{v1alpha1.ConditionThrottled, none, yes, "", v1alpha1.EventThrottled},
		{v1alpha1.ConditionThrottled, yes, none, "", v1alpha1.EventNotThrottled},
		{v1alpha1.ConditionThrottled, none, yes, v1alpha1.ModeDryRun, ""},
		{v1alpha1.ConditionThrottled, none, yes, v1alpha1.ModePaused, v1alpha1.EventThrottled},
		{v1alpha1.ConditionContended, none, yes, "", v1alpha1.EventContended},
		{v1alpha1.ConditionContended, yes, yes, "", ""},
		{v1alpha1.ConditionContended, yes, none, "", v1alpha1.EventNotContended},
	} {
		t.Run(fmt.Sprintf("%s from %q to %q %s", c.condition, c.before, c.now, c.mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.c = New(Options{}, controllertest.Client(t, interceptor.Funcs{}), newTestMetrics())
				defer w.c.queue.ShutDown()
				ng := controllertest.Gate("gate", func(s *v1alpha1.NodeGateSpec) { s.Mode = c.mode })
				w.c.newReporter().recordConditionEvents(ng, conditions(c.condition, c.before), conditions(c.condition, c.now))
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { w.c.events.Run(ctx) })
				controllertest.Pass(time.Second)
				stop()
				running.Wait()
				var reasons []string
				for _, e := range w.events() {
					reasons = append(reasons, e.Reason)
					routine := c.now == none || e.Reason == v1alpha1.EventReady || e.Reason == v1alpha1.EventAccepted
					if (e.Type == corev1.EventTypeWarning) == routine || e.Note == "" || e.Regarding.UID != ng.UID {
						t.Errorf("the Event is %+v", e)
					}
				}
				if got := strings.Join(reasons, " "); got != c.want {
					t.Errorf("the Events are %q, want %q", got, c.want)
				}
			})
		})
	}
}

// If more than a thousand nodes open at once, and the API server is slow with Events or
// rejects them, openings do not wait, and failed and dropped Events are counted.
func TestOpeningsDoNotWaitForEvents(t *testing.T) {
	const fleet = 1500
	for name, create := range map[string]func(context.Context) error{
		"slow":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"failed": func(context.Context) error { return errors.New("no") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, controllertest.Gate("gate"))
				w.add(fleet, func(i int, n *gate.Node) { unfit(i, n); isClosed(n, "gate", v1alpha1.ReasonBirth) })
				funcs := allowingAllBut(nil)
				funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
					if _, is := o.(*eventsv1.Event); is {
						return create(ctx)
					}
					return controllertest.PolicyOf(ctx, c, o, options...)
				}
				defer w.start(logr.Discard(), funcs)()
				controllertest.Pass(10 * time.Second)
				before := w.written()
				for _, name := range w.NodeNames() {
					w.change(name, func(n *gate.Node) { n.Labels["fit"] = "" })
				}
				controllertest.Pass(time.Millisecond)
				if n := w.written() - before; n != fleet || w.closed() != 0 {
					t.Errorf("after a millisecond, there are %d writes, and %d nodes are still closed", n, w.closed())
				}
				controllertest.Pass(10 * time.Minute)
				m := w.c.metrics.Events
				failed, dropped := testutil.ToFloat64(m.WithLabelValues(telemetry.EventFailed)), testutil.ToFloat64(m.WithLabelValues(telemetry.EventDropped))
				if failed != float64(telemetry.RoutineEvents.Burst) || dropped != float64(fleet-telemetry.RoutineEvents.Burst) {
					t.Errorf("of %d Events, %v failed and %v were dropped", fleet, failed, dropped)
				}
			})
		})
	}
}

// Warnings are written at once, regardless of the number of other Events. Other Events that
// exceed their limit are dropped.
func TestWarningsDoNotWaitForOpenings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMetrics()
		w := newWorld(t)
		w.c = New(Options{}, controllertest.Client(t, interceptor.Funcs{}), m)
		defer w.c.queue.ShutDown()
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.c.events.Run(ctx) })
		node, most := &gate.Node{Name: "n"}, telemetry.RoutineEvents.Burst
		for range 3 * most {
			w.c.events.Normal(node, nil, "Routine", "Action", "")
		}
		w.c.events.Warning(node, nil, "Urgent", "Action", "")
		controllertest.Pass(time.Millisecond)
		if all, urgent := w.events(), w.warnings(); len(all) != most+1 || len(urgent) != 1 { // each with its own name
			t.Errorf("%d Events and %d warnings were written at once, want %d and 1", len(all), len(urgent), most+1)
		}
		if n := testutil.ToFloat64(m.Events.WithLabelValues(telemetry.EventDropped)); n != float64(2*most) {
			t.Errorf("%v Events were dropped, want %d", n, 2*most)
		}
		controllertest.Pass(time.Hour)
		if all := w.events(); len(all) != most+1 {
			t.Errorf("%d Events were written later, want none", len(all)-most-1)
		}
		for range 5 { // one by one
			w.c.events.Normal(node, nil, "Routine", "Action", "")
			controllertest.Pass(time.Second)
		}
		if all := w.events(); len(all) != most+6 {
			t.Errorf("%d of 5 Events were written that were recorded one per second", len(all)-most-1)
		}
		stop()
		running.Wait()
	})
}

// There are no Events in the steady state, and none about gates from files, for which there
// is no object.
func TestNoEventsInSteadyState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", func(s *v1alpha1.NodeGateSpec) { s.Budget.MaxReclosed = new(intstr.FromInt32(0)) }))
		w.source = v1alpha1.SourceFiles
		w.add(5, func(i int, n *gate.Node) {
			isOpen(n, "gate")
			unfit(i, n)
		})
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		controllertest.Pass(time.Hour)
		if lines := slices.Concat(w.eventLines("Node"), w.eventLines("NodeGate")); len(lines) > 0 {
			t.Errorf("Events:\n%s", strings.Join(lines, "\n"))
		}
	})
}
