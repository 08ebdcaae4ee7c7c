// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
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
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/bypass"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/boundpods"
	"github.com/nodegate/nodegate/internal/telemetry"
)

// bypassing gates mind their bypassed pods.
func withBypassedPods(p v1alpha1.BypassedPods) func(*v1alpha1.NodeGateSpec) {
	return func(s *v1alpha1.NodeGateSpec) { s.BypassedPods = p }
}

// started returns pods that were bound yesterday and started a moment ago.
func started(n int, change ...func(i int, p *gate.BoundPod)) []gate.BoundPod {
	yesterday := time.Now().Add(-24 * time.Hour)
	var pods []gate.BoundPod
	for i := range n {
		name := fmt.Sprintf("p%02d", i)
		p := gate.BoundPod{
			Namespace: "default", Name: name, UID: types.UID(name), Owned: true, Created: yesterday, Bound: yesterday,
			Starts: []gate.Start{{At: time.Now().Add(-time.Minute), Running: true}},
		}
		for _, f := range change {
			f(i, &p)
		}
		pods = append(pods, p)
	}
	return pods
}

// bypassWorld has one node that was closed ten minutes ago for a reboot, and
// these pods on it.
func bypassWorld(t *testing.T, policy v1alpha1.BypassedPods, all ...gate.BoundPod) (*world, *nodePods) {
	w := newWorld(t, controllertest.Gate("gate", withBypassedPods(policy)))
	pods := newNodePods()
	w.pods = pods
	w.add(1, func(i int, n *gate.Node) { unfit(i, n); isClosed(n, "gate", v1alpha1.ReasonRebooted) })
	pods.set("n0000", all...)
	return w, pods
}

// open has the node become fit.
func (w *world) open(t *testing.T) {
	controllertest.Pass(5 * time.Second)
	w.change("n0000", func(n *gate.Node) { n.Labels["fit"] = "" })
	controllertest.Pass(time.Millisecond)
	if w.closed() != 0 {
		t.Error("the node is closed still")
	}
}

func (w *world) events() []eventsv1.Event {
	w.t.Helper()
	var list eventsv1.EventList
	if err := w.c.client.List(w.t.Context(), &list, client.InNamespace("default")); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// warnings are the Events that warn of a node.
func (w *world) warnings() []eventsv1.Event {
	w.t.Helper()
	return slices.DeleteFunc(w.events(), func(e eventsv1.Event) bool {
		return e.Type != corev1.EventTypeWarning || e.Regarding.Kind != "Node"
	})
}

func TestSeedCiliumBypassedPodsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pods := bypassWorld(t, v1alpha1.BypassedReport, append(started(12), aDaemon, aWorkload)...)
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		w.open(t)
		if pods.listed() != 0 {
			t.Error("the pods were listed before the gate had opened, or with it")
		}
		controllertest.Pass(time.Minute)
		events := w.warnings()
		if len(events) != 1 {
			t.Fatalf("%d events, want one: %+v", len(events), events)
		}
		e := events[0]
		if e.Type != corev1.EventTypeWarning || e.Reason != v1alpha1.EventBypassedPods || e.Regarding.Name != "n0000" || e.Regarding.UID != "uid-of-n0000" ||
			!strings.HasPrefix(e.Note, "12 pods had started while gate gate was closed") || !strings.Contains(e.Note, "default/p09 and 2 more") {
			t.Errorf("the event is %+v", e)
		}
		if n := testutil.ToFloat64(w.c.metrics.Bypasses.WithLabelValues("gate")); n != 12 || len(pods.evicted) > 0 {
			t.Errorf("%v pods are counted, want 12; evicted: %v", n, pods.evicted)
		}
	})
}

// Nothing is looked for where nobody asked for it.
func TestBypassedPodsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pods := bypassWorld(t, v1alpha1.BypassedIgnore, started(1)...)
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		w.open(t)
		controllertest.Pass(time.Minute)
		if pods.listed() != 0 || len(w.warnings()) != 0 {
			t.Errorf("%d lists, events %v", pods.listed(), w.warnings())
		}
	})
}

// Evictions are paced, tried again while a PodDisruptionBudget is in the way, and
// leave alone what must be.
func TestSeedCiliumBypassedPodsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := started(24, func(i int, p *gate.BoundPod) {
			switch i {
			case 0:
				p.Daemon = true
			case 1:
				p.HostNetwork = true
			case 2:
				p.Owned = false
			case 3:
				p.Mirror = true
			}
		})
		w, pods := bypassWorld(t, v1alpha1.BypassedEvict, all...)
		var at []time.Time
		pods.evict = func(p *gate.BoundPod) boundpods.Eviction {
			at = append(at, time.Now())
			if p.Name == "p04" && pods.evicted["p04"] < 4 {
				return boundpods.EvictionBlocked
			}
			return boundpods.Evicted
		}
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		w.open(t)
		controllertest.Pass(10 * time.Minute)
		if left := pods.byNode["n0000"]; len(left) != 4 || left[0].Name != "p00" || left[3].Name != "p03" {
			t.Errorf("these are left: %+v", left)
		}
		if pods.evicted["p04"] != 4 || len(pods.evicted) != 20 {
			t.Errorf("evictions: %v", pods.evicted)
		}
		for i := range at {
			if j := i + bypass.EvictRate; j < len(at) && at[j].Sub(at[i]) < time.Second-time.Millisecond {
				t.Errorf("more than %d evictions within %s", bypass.EvictRate, at[j].Sub(at[i]))
			}
		}
		if n := testutil.ToFloat64(w.c.metrics.Evictions.WithLabelValues("gate", "blocked")); n != 3 {
			t.Errorf("%v evictions are counted as blocked, want 3", n)
		}
		if n := len(w.warnings()); n != 1 {
			t.Errorf("%d events, want one", n)
		}
	})
}

// Evictions are given up some time, and that is told.
func TestEvictionHasALimitOfAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pods := bypassWorld(t, v1alpha1.BypassedEvict, started(1)...)
		pods.evict = func(*gate.BoundPod) boundpods.Eviction { return boundpods.EvictionBlocked }
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		w.open(t)
		controllertest.Pass(time.Hour)
		if n := pods.evicted["p00"]; n != bypass.Tries+1 {
			t.Errorf("%d attempts, want %d", n, bypass.Tries+1)
		}
		events := w.warnings()
		if !slices.ContainsFunc(events, func(e eventsv1.Event) bool { return e.Reason == v1alpha1.EventBypassedPodsRemain }) {
			t.Errorf("the events are %+v", events)
		}
		if w.c.bypass.Waiting() > 0 {
			t.Error("the opening is kept for ever")
		}
	})
}

// A pod is evicted for one opening only: not after the gate closed again, nor in
// another boot, nor once the gate says otherwise, nor without the right.
func TestEvictionStopsWhenTheOpeningIsObsolete(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"closed again": func(w *world) { w.change("n0000", func(n *gate.Node) { delete(n.Labels, "fit") }) },
		"rebooted":     func(w *world) { w.change("n0000", func(n *gate.Node) { n.BootID = "next" }) }, // closed again too
		"rebooted, and the gate does not mind": func(w *world) {
			ng := controllertest.Gate("gate", withBypassedPods(v1alpha1.BypassedEvict), func(s *v1alpha1.NodeGateSpec) { s.ReclosePolicy = v1alpha1.RecloseNever })
			ng.Generation = 2
			w.setGates(true, ng)
			controllertest.Pass(time.Second)
			w.change("n0000", func(n *gate.Node) { n.BootID = "next" })
		},
		"replaced": func(w *world) { w.change("n0000", func(n *gate.Node) { n.UID = "another" }) },
		"deleted":  func(w *world) { w.remove("n0000"); w.c.NodeChanged("n0000", gate.Everything()) },
		"edited": func(w *world) {
			ng := controllertest.Gate("gate", withBypassedPods(v1alpha1.BypassedIgnore))
			ng.Generation = 2
			w.setGates(true, ng)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, pods := bypassWorld(t, v1alpha1.BypassedEvict, started(1)...)
				pods.evict = func(*gate.BoundPod) boundpods.Eviction { return boundpods.EvictionBlocked }
				defer w.start(logr.Discard(), allowingAllBut(nil))()
				w.open(t)
				controllertest.Pass(6 * time.Second)
				if pods.evicted["p00"] != 1 {
					t.Fatalf("%d attempts at first", pods.evicted["p00"])
				}
				end(w)
				controllertest.Pass(time.Hour)
				if pods.evicted["p00"] != 1 {
					t.Errorf("%d attempts more", pods.evicted["p00"]-1)
				}
			})
		})
	}
}

func TestPermissionToEvictMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pods := bypassWorld(t, v1alpha1.BypassedEvict, started(1)...)
		defer w.start(logr.Discard(), allowingAllBut(func(what string) bool { return what == "create pods/eviction" }))()
		w.open(t)
		controllertest.Pass(time.Minute)
		ready := meta.FindStatusCondition(w.stored("gate").Status.Conditions, v1alpha1.ConditionReady)
		if ready.Reason != v1alpha1.ReasonPermissionMissing || !strings.Contains(ready.Message, "'nodegate manifests --evict-pods'") {
			t.Errorf("the condition Ready is %+v", ready)
		}
		if len(pods.evicted) != 0 || len(w.warnings()) != 1 {
			t.Errorf("evictions %v, events %v, want the pod told of and left alone", pods.evicted, w.warnings())
		}
	})
}

// A burst of warnings is written at a rate of its own, keeps nobody waiting, and
// what is too much is counted.
func TestWarningsAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMetrics()
		w := newWorld(t)
		w.c = New(Options{}, controllertest.Client(t, interceptor.Funcs{}), m)
		defer w.c.queue.ShutDown()
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		began := time.Now()
		for i := range telemetry.UrgentEvents.Waiting + 200 {
			w.c.events.Warning(&gate.Node{Name: fmt.Sprint("n", i)}, nil, "Reason", "Action", strings.Repeat("x", 5000))
		}
		if !time.Now().Equal(began) {
			t.Error("recording waited")
		}
		running.Go(func() { w.c.events.Run(ctx) })
		controllertest.Pass(10 * time.Second)
		written := testutil.ToFloat64(m.Events.WithLabelValues("written"))
		if want := float64(telemetry.UrgentEvents.Burst) + 10*float64(telemetry.UrgentEvents.Rate); written < want-1 || written > want+1 {
			t.Errorf("%v events were written in 10 seconds, want %v", written, want)
		}
		if n := testutil.ToFloat64(m.Events.WithLabelValues("dropped")); n != 200 {
			t.Errorf("%v events are counted as dropped, want 200", n)
		}
		if note := w.events()[0].Note; len(note) > telemetry.EventNoteMax {
			t.Errorf("a note has %d bytes", len(note))
		}
		stop()
		running.Wait()
	})
}
