// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// denyingWriter is an API server whose policies allow less than the controller's options.
type denyingWriter struct {
	*world
	// deniesKey, deniesStamps and deniesRecords specify what it denies.
	deniesKey     string
	deniesStamps  bool
	deniesRecords error
}

// Errors for a Node whose annotations are full, and for a forbidden write.
var (
	errFull      = fmt.Errorf("%w: annotations: Too long", write.ErrRejected)
	errForbidden = errors.New("no role allows it")
)

func (s *denyingWriter) Apply(ctx context.Context, n *gate.Node, d *gate.Decision) (*corev1.Node, error) {
	of := func(taints []corev1.Taint) (all []string) {
		for _, t := range taints {
			if t.Key == s.deniesKey {
				all = append(all, t.ToString())
			}
		}
		return all
	}
	if s.deniesRecords != nil && len(d.Records) > 0 {
		return nil, fmt.Errorf("patching: %w: %w", write.ErrDenied, s.deniesRecords)
	}
	if !slices.Equal(of(n.Taints), of(d.Taints)) || s.deniesStamps && len(d.Stamps) > 0 {
		return nil, fmt.Errorf("patching: %w: by policy", write.ErrDenied)
	}
	return s.world.Apply(ctx, n, d)
}

// denied reconciles one node until nothing remains to be done, and returns the log.
func (w *world) logOfDenied(t *testing.T, s *denyingWriter) string {
	t.Helper()
	var log controllertest.LogLines
	w.reconcileDenied(t, s, log.Logger(), 5, func() {})
	return strings.Join(log.All(), "\n")
}

// carriedAfterDenied reconciles one node a number of times, and returns what the last
// decision handed on.
func (w *world) carriedAfterDenied(t *testing.T, s *denyingWriter, times int, before func()) *carried {
	t.Helper()
	w.reconcileDenied(t, s, logr.Discard(), times, before)
	return w.c.nodes.byName["n0000"].carried
}

func (w *world) reconcileDenied(t *testing.T, s *denyingWriter, log logr.Logger, times int, before func()) {
	t.Helper()
	s.world = w
	w.c = New(Options{Namespace: "nodegate-system", Log: log}, nil, newTestMetrics())
	w.c.Attach(w, s, w.pods)
	w.c.set.Store(gateset.New(&gateset.Set{}, gateset.Snapshot{Source: w.GatesFrom(), Gates: w.gates, Complete: true}, gate.KeyPolicy{}))
	before()
	for range times {
		_, _ = w.c.reconcile(t.Context(), "n0000")
	}
}

// A taint of a deleted gate whose removal is denied does not keep another gate of the node
// closed.
func TestDeniedCleanupDoesNotBlockOtherGates(t *testing.T) {
	w := newWorld(t, controllertest.Gate("gate"))
	w.add(1, func(_ int, n *gate.Node) {
		isClosed(n, "gate", v1alpha1.ReasonBirth)
		n.Records["gone"] = strings.ReplaceAll(n.Records["gate"], controllertest.TaintKey, "test.nodegate.dev/gone=x")
		n.Taints = append(n.Taints, corev1.Taint{Key: "test.nodegate.dev/gone", Value: "x", Effect: corev1.TaintEffectNoSchedule})
	})
	w.logOfDenied(t, &denyingWriter{deniesKey: "test.nodegate.dev/gone"})
	n := w.node("n0000")
	if len(n.Taints) != 1 || n.Taints[0].Key != "test.nodegate.dev/gone" || n.Records["gone"] == "" {
		t.Errorf("the node has the taints %v and records %v, want those of the deleted gate", n.Taints, n.Records)
	}
}

// newWaitingWorld returns a node on which one gate is closed, and its signal holds, and another
// one is open, and waits to close because its signal does not hold.
func newWaitingWorld(t *testing.T, change func(*gate.Node)) *world {
	t.Helper()
	const other = "test.nodegate.dev/b"
	waits := func(key, opensBy string) func(*v1alpha1.NodeGateSpec) {
		return func(s *v1alpha1.NodeGateSpec) {
			s.Taint.Key, s.OpenWhen[0].Label.Key = key, opensBy
			s.Timing.CloseAfterSeconds = new(int32(3600))
		}
	}
	w := newWorld(t, controllertest.Gate("gate", waits(controllertest.TaintKey, "fit")), controllertest.Gate("other", waits(other, "well")))
	w.add(1, func(_ int, n *gate.Node) {
		isOpen(n, "other")
		isClosed(n, "gate", v1alpha1.ReasonBirth)
		n.Records["other"] = strings.ReplaceAll(n.Records["other"], controllertest.TaintKey, other)
		change(n)
	})
	return w
}

// While writes for one key are denied again and again, the waits of other gates go on. What the
// denied gate waited for is as it was.
func TestDeniedWriteKeepsOtherWaits(t *testing.T) {
	w := newWaitingWorld(t, func(*gate.Node) {})
	steady := map[string]gate.Steady{"gate": {}}
	before := &carried{uid: w.node("n0000").UID, seq: 1, steady: steady}
	kept := w.carriedAfterDenied(t, &denyingWriter{deniesKey: controllertest.TaintKey}, 3, func() { w.c.nodes.at("n0000").carried = before })
	if w.written() != 0 || kept == nil || kept.lost["other"] == nil {
		t.Errorf("after %d writes, it is not known since when the signal of the other gate has not held: %+v", w.written(), kept)
	}
	if diff := cmp.Diff(steady, kept.steady); diff != "" {
		t.Errorf("what the denied gate hands on (-want +got):\n%s", diff)
	}
}

// While the write of one gate of each node is denied, the other gates of the nodes open in time,
// even if the decision that starts their wait would be repeated at once after its write.
func TestDeniedWriteDoesNotDelayOtherGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"), controllertest.Gate("other", withKey(otherKey), func(s *v1alpha1.NodeGateSpec) {
			s.OpenWhen[0].Label.Key, s.Timing.OpenAfterSeconds = "well", 30
		}), controllertest.Gate("tried", withKey("test.nodegate.dev/tried"), inMode(v1alpha1.ModeDryRun), func(s *v1alpha1.NodeGateSpec) {
			s.OpenWhen[0].Label.Key, s.ExistingNodes = "well", v1alpha1.ExistingAdopt
		}))
		w.add(20, func(_ int, n *gate.Node) {
			isClosed(n, "gate", v1alpha1.ReasonBirth)
			n.Records["other"] = strings.ReplaceAll(n.Records["gate"], controllertest.TaintKey, otherKey)
			n.Taints = append(n.Taints, corev1.Taint{Key: otherKey, Effect: corev1.TaintEffectNoSchedule})
		})
		w.writer = &denyingWriter{world: w, deniesKey: controllertest.TaintKey}
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Minute) // the denied writes are retried once a minute
		for _, name := range w.NodeNames() {
			w.change(name, func(n *gate.Node) { n.Labels["well"] = "" })
		}
		controllertest.Pass(35 * time.Second)
		if n := w.closed(); n != 20 {
			t.Errorf("the nodes have %d taints, want only those of the denied gate", n)
		}
	})
}

// A denied write is not repeated in a loop if the decision would be repeated at once after it.
func TestDeniedWriteIsNotRepeatedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", publishing))
		w.add(1, func(i int, n *gate.Node) { // its condition is written after the record of the passed deadline
			unfit(i, n)
			isClosed(n, "gate", v1alpha1.ReasonBirth)
		})
		w.writer = &denyingWriter{world: w, deniesRecords: errForbidden}
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(65 * time.Minute)
		if n := testutil.ToFloat64(w.c.metrics.Patches.WithLabelValues("denied")); n == 0 || n > 100 {
			t.Errorf("%v writes are denied, want about one in a minute", n)
		}
	})
}

// A write for one key only does not restart the waits of other gates.
func TestPartialWriteKeepsOtherWaits(t *testing.T) {
	w := newWaitingWorld(t, func(n *gate.Node) {
		n.Records["gone"] = strings.ReplaceAll(n.Records["gate"], controllertest.TaintKey, "test.nodegate.dev/gone")
		n.Taints = append(n.Taints, corev1.Taint{Key: "test.nodegate.dev/gone", Effect: corev1.TaintEffectNoSchedule})
	})
	began := time.Now().Add(-time.Minute)
	before := &carried{uid: w.node("n0000").UID, seq: 1, lost: map[string][]gate.Lost{"other": {{Since: began}}}}
	kept := w.carriedAfterDenied(t, &denyingWriter{deniesKey: "test.nodegate.dev/gone"}, 1, func() { w.c.nodes.at("n0000").carried = before })
	if w.written() != 1 || len(kept.lost["other"]) != 1 || kept.lost["other"][0].Since != began {
		t.Errorf("after %d partial writes, the other gate waits since %v, want %s", w.written(), kept.lost["other"], began)
	}
	// A partial decision replaces the state of the signals that it read. A whole decision
	// replaces everything.
	n := gate.Node{Name: "n", UID: "u"}
	s := newNodeStates()
	both := []gate.Verdict{{Gate: "a", Lost: []gate.Lost{{Since: began}}, Steady: &gate.Steady{}}, {Gate: "b", Lost: []gate.Lost{{Since: began, Rollout: true}}}}
	s.keep(&gateset.Set{}, &n, &gate.Decision{Verdicts: both}, false, nil)
	s.keep(&gateset.Set{}, &n, &gate.Decision{Verdicts: []gate.Verdict{{Gate: "a"}, {Gate: "b", Readings: make([]gate.Reading, 1)}}}, true, nil)
	if r := s.byName["n"].carried; len(r.lost) != 1 || r.lost["a"][0].Since != began || len(r.steady) != 1 {
		t.Errorf("stored %+v", r)
	}
	if s.keep(&gateset.Set{}, &gate.Node{Name: "n", UID: "v"}, &gate.Decision{Verdicts: both[:1:1]}, true, nil); s.byName["n"].carried.uid != "v" {
		t.Errorf("the state of an earlier Node remains: %+v", s.byName["n"].carried)
	}
	if s.keep(&gateset.Set{}, &n, &gate.Decision{Verdicts: []gate.Verdict{{Gate: "a"}}}, false, nil); s.byName["n"].carried != nil {
		t.Errorf("stored %+v", s.byName["n"].carried)
	}
}

// A denied key of one gate does not keep another gate closed that has two keys.
func TestDeniedKeyDoesNotBlockAGateWithTwoKeys(t *testing.T) {
	const first, again = "test.nodegate.dev/first", "test.nodegate.dev/again"
	two := controllertest.Gate("two", func(s *v1alpha1.NodeGateSpec) {
		s.Taint.Key = first
		s.RecloseTaint = &v1alpha1.Taint{Key: again, Effect: corev1.TaintEffectNoSchedule}
	})
	for _, key := range []string{first, again} {
		w := newWorld(t, controllertest.Gate("gate"), two)
		w.add(1, func(_ int, n *gate.Node) {
			isClosed(n, "gate", v1alpha1.ReasonBirth)
			n.Records["two"] = strings.ReplaceAll(n.Records["gate"], controllertest.TaintKey, key)
			if key == again {
				n.Records["two"] = strings.Replace(n.Records["two"], "{", `{"reclosed":true,`, 1)
			}
			n.Taints = append(n.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		})
		w.logOfDenied(t, &denyingWriter{deniesKey: controllertest.TaintKey})
		if n := w.node("n0000"); len(n.Taints) != 1 || n.Taints[0].Key != controllertest.TaintKey {
			t.Errorf("closed with %s: the node has the taints %v, want that of the other gate", key, n.Taints)
		}
	}
}

// The keys of a set contain both keys of a gate.
func TestGateSetContainsBothKeys(t *testing.T) {
	ng := controllertest.Gate("gate", func(s *v1alpha1.NodeGateSpec) { s.RecloseTaint = &v1alpha1.Taint{Key: "test.nodegate.dev/again"} })
	set := gateset.New(&gateset.Set{}, gateset.Snapshot{Gates: []*v1alpha1.NodeGate{ng}}, gate.KeyPolicy{})
	if !set.Keys[controllertest.TaintKey] || !set.Keys["test.nodegate.dev/again"] || len(set.Keys) != 2 {
		t.Errorf("the keys are %v", set.Keys)
	}
}

// A denied stamp does not keep its gate closed, and is logged.
func TestDeniedStampDoesNotBlockTheOpening(t *testing.T) {
	w := newWorld(t, controllertest.Gate("gate", func(s *v1alpha1.NodeGateSpec) { s.OpenedAtAnnotation = "example.com/opened-at" }))
	w.add(1, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
	log := w.logOfDenied(t, &denyingWriter{deniesStamps: true})
	if w.closed() != 0 {
		t.Error("the gate is still closed")
	}
	if strings.Count(log, "gate opened without its stamp") != 1 || strings.Count(log, `"msg"="gate opened" `) != 1 {
		t.Errorf("want it logged once, got:\n%s", log)
	}
}

// If records are rejected, a gate closes without one, and none opens: a node without the
// taint would still have the record of a closed gate.
func TestRejectedRecordDoesNotPreventClosing(t *testing.T) {
	w := newWorld(t, controllertest.Gate("closing", withKey(otherKey)), controllertest.Gate("gate"))
	foreign := corev1.Taint{Key: "example.com/foreign", Effect: corev1.TaintEffectNoExecute}
	w.add(1, func(_ int, n *gate.Node) {
		isOpen(n, "closing") // and its signal does not hold
		n.Records["closing"] = strings.ReplaceAll(n.Records["closing"], controllertest.TaintKey, otherKey)
		isClosed(n, "gate", v1alpha1.ReasonBirth) // and its signal holds
		n.Taints = append(n.Taints, foreign)
	})
	w.gates[0].Spec.OpenWhen[0].Label.Key = "never"
	var log controllertest.LogLines
	w.reconcileDenied(t, &denyingWriter{deniesRecords: errFull}, log.Logger(), 5, func() {
		_, _ = w.c.reconcile(t.Context(), "n0000") // which asks for a slot
		w.c.ledger.SetTerms(termsOf(w.c.set.Load()))
		w.c.ledger.SetFleet([]string{"n0000"}, 1, true)
	})
	n := w.node("n0000")
	if got := fmt.Sprint(n.Taints); got != fmt.Sprint([]corev1.Taint{{Key: controllertest.TaintKey, Effect: corev1.TaintEffectNoSchedule}, foreign, {Key: otherKey, Effect: corev1.TaintEffectNoSchedule}}) {
		t.Errorf("the node has the taints %s", got)
	}
	if lines := strings.Join(log.All(), "\n"); w.written() != 1 || strings.Count(lines, "node tainted without a record") != 1 {
		t.Errorf("%d writes, want 1; log:\n%s", w.written(), lines)
	}
}

// If a write is forbidden, no taint is added without a record: an API server that has just
// started forbids everything, and allows the second attempt.
func TestForbiddenWriteAddsNoTaint(t *testing.T) {
	w := newWorld(t, controllertest.Gate("closing", withKey(otherKey)))
	w.add(1, func(_ int, n *gate.Node) {
		isOpen(n, "closing")
		n.Records["closing"] = strings.ReplaceAll(n.Records["closing"], controllertest.TaintKey, otherKey)
	})
	w.gates[0].Spec.OpenWhen[0].Label.Key = "never"
	w.reconcileDenied(t, &denyingWriter{deniesRecords: errForbidden}, logr.Discard(), 5, func() {
		_, _ = w.c.reconcile(t.Context(), "n0000") // which asks for a slot
		w.c.ledger.SetTerms(termsOf(w.c.set.Load()))
		w.c.ledger.SetFleet([]string{"n0000"}, 1, true)
	})
	if n := w.node("n0000"); w.written() != 0 || len(n.Taints) != 0 {
		t.Errorf("%d writes and taints %v, want none", w.written(), n.Taints)
	}
}

// While the write of a node that an override keeps open is denied, the node has no record and does
// not use up the budget.
func TestDeniedOverriddenNodeUsesNoBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", budget("1"), func(s *v1alpha1.NodeGateSpec) { s.ExistingNodes = v1alpha1.ExistingClose }))
		w.add(2, func(i int, n *gate.Node) {
			if i == 0 {
				delete(n.Labels, "fit")
				overrideFor(time.Hour, "gate", v1alpha1.StateOpen)(n)
			} else {
				isOpen(n, "gate")
			}
		})
		w.fail = func(node string) error {
			if node == "n0000" {
				return fmt.Errorf("patching: %w", write.ErrDenied)
			}
			return nil
		}
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second)
		w.change("n0001", func(n *gate.Node) { delete(n.Labels, "fit") })
		controllertest.Pass(2 * time.Second)
		if !w.tainted("n0001") {
			t.Error("the other node is open, want it closed within the budget")
		}
	})
}
