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

// withBypassedPods sets a gate's bypassedPods.
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

// bypassWorld returns a world with one node, which was closed ten minutes ago because of a
// reboot, and these pods on it.
func bypassWorld(t *testing.T, policy v1alpha1.BypassedPods, all ...gate.BoundPod) (*world, *nodePods) {
	w := newWorld(t, controllertest.Gate("gate", withBypassedPods(policy)))
	pods := newNodePods()
	w.pods = pods
	w.add(1, func(i int, n *gate.Node) { unfit(i, n); isClosed(n, "gate", v1alpha1.ReasonRebooted) })
	pods.set("n0000", all...)
	return w, pods
}

// open makes the node fit, and checks that it opens.
func (w *world) open(t *testing.T) {
	controllertest.Pass(5 * time.Second)
	w.change("n0000", func(n *gate.Node) { n.Labels["fit"] = "" })
	controllertest.Pass(time.Millisecond)
	if w.closed() != 0 {
		t.Error("the node is still closed")
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

// warnings returns the Events of type Warning about nodes.
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
			t.Error("the pods were listed before the gate had opened, or at that moment")
		}
		controllertest.Pass(time.Minute)
		events := w.warnings()
		if len(events) != 1 {
			t.Fatalf("%d Events, want 1: %+v", len(events), events)
		}
		e := events[0]
		if e.Type != corev1.EventTypeWarning || e.Reason != v1alpha1.EventBypassedPods || e.Regarding.Name != "n0000" || e.Regarding.UID != "uid-of-n0000" ||
			!strings.HasPrefix(e.Note, "12 pods started while gate gate was closed") || !strings.Contains(e.Note, "default/p09 and 2 more") {
			t.Errorf("the Event is %+v", e)
		}
		if n := testutil.ToFloat64(w.c.metrics.Bypasses.WithLabelValues("gate", "certain")); n != 12 || len(pods.evictions()) > 0 {
			t.Errorf("%v pods are counted, want 12; evicted: %v, want none", n, pods.evictions())
		}
	})
}

// Pods that the kubelet rejected while the gate was closed are reported and never evicted: first
// those that no controller replaces.
func TestRejectedPodsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rejected := started(3, func(i int, p *gate.BoundPod) {
			p.Starts, p.Finished, p.Owned = nil, true, i > 0
			p.Rejection = &gate.Rejection{Reason: "UnexpectedAdmissionError", Reported: time.Now().Add(-time.Minute)}
		})
		rejected[2].Rejection.Reported = time.Now().Add(-10*time.Minute - 30*time.Second) // just before the new boot was observed
		w, pods := bypassWorld(t, v1alpha1.BypassedEvict, rejected...)
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		w.open(t)
		controllertest.Pass(time.Minute)
		events := w.warnings()
		const want = "the kubelet rejected 1 pod while gate gate was closed, and no controller replaces it: default/p00 (UnexpectedAdmissionError); " +
			"the kubelet rejected 1 pod while gate gate was closed, and its controller may replace it: default/p01 (UnexpectedAdmissionError); " +
			"the kubelet rejected 1 pod at about the time at which gate gate closed or opened, and its controller may replace it: default/p02 (UnexpectedAdmissionError)"
		if len(events) != 1 || events[0].Reason != v1alpha1.EventRejectedPods || events[0].Action != v1alpha1.EventActionReport || events[0].Note != want {
			t.Errorf("the Events are %+v, want one with the note\n%s", events, want)
		}
		for labels, want := range map[[2]string]float64{
			{telemetry.Certain, telemetry.OwnedByNone}: 1, {telemetry.Certain, telemetry.OwnedByController}: 1,
			{telemetry.Possible, telemetry.OwnedByNone}: 0, {telemetry.Possible, telemetry.OwnedByController}: 1,
		} {
			if n := testutil.ToFloat64(w.c.metrics.Rejections.WithLabelValues("gate", labels[0], labels[1])); n != want {
				t.Errorf("%v pods are counted with %v, want %v", n, labels, want)
			}
		}
		if n := testutil.ToFloat64(w.c.metrics.Bypasses.WithLabelValues("gate", telemetry.Certain)); n != 0 || len(pods.evictions()) > 0 {
			t.Errorf("%v pods are counted as bypassed, and %v were evicted, want none", n, pods.evictions())
		}
	})
}

// With bypassedPods: Ignore, pods are not listed.
func TestBypassedPodsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pods := bypassWorld(t, v1alpha1.BypassedIgnore, started(1)...)
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		w.open(t)
		controllertest.Pass(time.Minute)
		if pods.listed() != 0 || len(w.warnings()) != 0 {
			t.Errorf("%d lists and Events %v, want none", pods.listed(), w.warnings())
		}
	})
}

// Evictions are rate-limited, and retried while a PodDisruptionBudget blocks them. Pods of
// DaemonSets, pods in the host network, pods without a controller, and mirror pods are not
// evicted.
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
		if left := pods.on("n0000"); len(left) != 4 || left[0].Name != "p00" || left[3].Name != "p03" {
			t.Errorf("the remaining pods are %+v, want p00 to p03", left)
		}
		if all := pods.evictions(); all["p04"] != 4 || len(all) != 20 {
			t.Errorf("evictions: %v", all)
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
			t.Errorf("%d Events, want 1", n)
		}
	})
}

// The number of attempts to evict a pod is limited. An Event reports the remaining pods.
func TestEvictionHasALimitOfAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pods := bypassWorld(t, v1alpha1.BypassedEvict, started(1)...)
		pods.evict = func(*gate.BoundPod) boundpods.Eviction { return boundpods.EvictionBlocked }
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		w.open(t)
		controllertest.Pass(time.Hour)
		if n := pods.evictions()["p00"]; n != bypass.Tries+1 {
			t.Errorf("%d attempts, want %d", n, bypass.Tries+1)
		}
		events := w.warnings()
		if !slices.ContainsFunc(events, func(e eventsv1.Event) bool { return e.Reason == v1alpha1.EventBypassedPodsRemain }) {
			t.Errorf("no Event reports the remaining pod: %+v", events)
		}
		if w.c.bypass.Waiting() > 0 {
			t.Error("the opening is still stored")
		}
	})
}

// The number of attempts to list a node's pods is limited, too.
func TestListsOfBypassedPodsHaveALimitOfAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pods := bypassWorld(t, v1alpha1.BypassedReport, started(1)...)
		lists := 0
		pods.onList = func(string) error { lists++; return errors.New("this always fails") }
		defer w.start(logr.Discard(), allowingAllBut(nil))()
		w.open(t)
		controllertest.Pass(time.Hour)
		if lists != bypass.Tries+1 {
			t.Errorf("%d attempts, want %d", lists, bypass.Tries+1)
		}
		if w.c.bypass.Waiting() > 0 {
			t.Error("the opening is still stored")
		}
	})
}

// While Nodes are listed again, nothing is known about an opening. It is neither forgotten, nor does
// it use up its tries.
func TestBypassedPodsWhileNodesAreListedAgain(t *testing.T) {
	listAgain := func(w *world, d time.Duration) {
		w.setUnsynced(true)
		controllertest.Pass(d)
		w.setUnsynced(false)
	}
	for name, c := range map[string]struct {
		blocked bool
		relist  func(w *world)
	}{
		"before the search":  {false, func(w *world) { listAgain(w, time.Hour) }},
		"between two tries":  {true, func(w *world) { controllertest.Pass(7 * time.Second); listAgain(w, time.Hour) }},
		"during an eviction": {true, func(w *world) { controllertest.Pass(5100 * time.Millisecond); listAgain(w, 10*time.Second) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, pods := bypassWorld(t, v1alpha1.BypassedEvict, started(2)...)
				if c.blocked {
					pods.evict = func(*gate.BoundPod) boundpods.Eviction { return boundpods.EvictionBlocked }
				}
				defer w.start(logr.Discard(), allowingAllBut(nil))()
				w.open(t)
				c.relist(w)
				controllertest.Pass(15 * time.Minute)
				want, last := 1, v1alpha1.EventBypassedPods
				if c.blocked {
					want, last = bypass.Tries, v1alpha1.EventBypassedPodsRemain
				}
				for _, name := range []string{"p00", "p01"} {
					if n := pods.evictions()[name]; n < want {
						t.Errorf("%d attempts to evict %s, want %d", n, name, want)
					}
				}
				if !slices.ContainsFunc(w.warnings(), func(e eventsv1.Event) bool { return e.Reason == last }) {
					t.Errorf("no Event %s: %+v", last, w.warnings())
				}
			})
		})
	}
}

// A pod is evicted because of one opening: not after the gate has closed again, in another
// boot, or after the gate was edited. The opening is then forgotten.
func TestEvictionStopsWhenTheOpeningIsObsolete(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"closed again": func(w *world) { w.change("n0000", func(n *gate.Node) { delete(n.Labels, "fit") }) },
		"rebooted":     func(w *world) { w.change("n0000", func(n *gate.Node) { n.BootID = "next" }) }, // closed again too
		"rebooted, and the gate ignores reboots": func(w *world) {
			ng := controllertest.Gate("gate", withBypassedPods(v1alpha1.BypassedEvict), func(s *v1alpha1.NodeGateSpec) { s.ReclosePolicy = v1alpha1.RecloseNever })
			ng.Generation = 2
			w.setGates(true, ng)
			controllertest.Pass(time.Second)
			w.change("n0000", func(n *gate.Node) { n.BootID = "next" })
		},
		"replaced":         func(w *world) { w.change("n0000", func(n *gate.Node) { n.UID = "another" }) },
		"a user closes it": func(w *world) { w.change("n0000", overrideFor(time.Hour, "gate", v1alpha1.StateClosed)) },
		"deleted":          func(w *world) { w.remove("n0000"); w.c.NodeChanged("n0000", gate.Everything()) },
		"edited": func(w *world) {
			ng := controllertest.Gate("gate", withBypassedPods(v1alpha1.BypassedIgnore))
			ng.Generation = 2
			w.setGates(true, ng)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, pods := bypassWorld(t, v1alpha1.BypassedEvict, started(24)...)
				pods.evict = func(*gate.BoundPod) boundpods.Eviction { return boundpods.EvictionBlocked }
				defer w.start(logr.Discard(), allowingAllBut(nil))()
				w.open(t)
				controllertest.Pass(6 * time.Second) // the search is after five seconds, and evictions are paced
				if all := pods.evictions(); len(all) == 0 || len(all) == 24 || all["p00"] != 1 {
					t.Fatalf("attempts at first: %v, want one for some of the pods", all)
				}
				end(w)
				tried := len(pods.evictions())
				controllertest.Pass(time.Hour)
				all := pods.evictions()
				for name, attempts := range all {
					if attempts != 1 || len(all) != tried {
						t.Errorf("%d attempts for %s, and %d further pods, want one attempt and no further pod", attempts, name, len(all)-tried)
					}
				}
				if w.c.bypass.Waiting() > 0 {
					t.Error("the opening is still stored")
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
		if len(pods.evictions()) != 0 || len(w.warnings()) != 1 {
			t.Errorf("evictions %v, Events %v, want the pod reported and not evicted", pods.evictions(), w.warnings())
		}
	})
}

// A burst of warnings is written at a limited rate. Recording does not block, and dropped
// Events are counted.
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
			t.Error("recording blocked")
		}
		running.Go(func() { w.c.events.Run(ctx) })
		controllertest.Pass(10 * time.Second)
		written := testutil.ToFloat64(m.Events.WithLabelValues("written"))
		if want := float64(telemetry.UrgentEvents.Burst) + 10*float64(telemetry.UrgentEvents.Rate); written < want-1 || written > want+1 {
			t.Errorf("%v Events were written in 10 seconds, want %v", written, want)
		}
		if n := testutil.ToFloat64(m.Events.WithLabelValues("dropped")); n != 200 {
			t.Errorf("%v Events are counted as dropped, want 200", n)
		}
		if note := w.events()[0].Note; len(note) > telemetry.EventNoteMax {
			t.Errorf("a note has %d bytes, want at most %d", len(note), telemetry.EventNoteMax)
		}
		stop()
		running.Wait()
	})
}
