// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

var query = gate.PodQuery{Namespace: "ns", Selector: "app=agent"}

// wantChanged checks which nodes have been announced since it was last called.
func (f *testFeed) wantChanged(t *testing.T, what string, want ...string) {
	t.Helper()
	if got, _ := f.handler.take(); !slices.Equal(got, want) {
		t.Errorf("%s: announced %v, want %v", what, got, want)
	}
}

func (f *testFeed) facts(t *testing.T, node string) gate.Facts {
	t.Helper()
	facts, ok := f.Facts(node)
	if !ok {
		t.Fatalf("no facts about %s; feeds: %+v", node, f.Status())
	}
	return facts
}

func TestFeedObserves(t *testing.T) {
	for _, unsupported := range []bool{false, true} {
		name := "streamed"
		if unsupported {
			name = "listed"
		}
		t.Run(name, func(t *testing.T) {
			runFeed(t, func(api *fakeAPI) {
				api.nodes().Put(kubetest.Node("a", "a1", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{kubetest.Taint("k", "v", "NoSchedule")} }))
				api.gates().Put(kubetest.Gate("g"))
				api.pods(query).Put(kubetest.Pod("p", "p1", "a", true))
				api.pods(query).Put(kubetest.Pod("pending", "p2", "", false))
				api.csiNodes().Put(testCSINode("a", "a1", driver("d")))
				if unsupported {
					for _, k := range []*fakeKind{api.nodes(), api.gates(), api.pods(query), api.csiNodes()} {
						k.streamErr = apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)
					}
				}
			}, func(t *testing.T, f *testFeed) {
				f.SetNeeds(gate.Needs{Pods: []gate.PodQuery{query, query}, CSINodes: true})
				synctest.Wait()
				if got := f.Unsynced(); got != nil {
					t.Errorf("unsynced = %v", got)
				}
				facts := f.facts(t, "a")
				if n := facts.Node; n.UID != "a1" || n.BootID != "boot" || len(n.Taints) != 1 || n.Labels[corev1.LabelHostname] != "a" {
					t.Errorf("node = %+v", n)
				}
				if pods := facts.Pods[query]; len(pods) != 1 || pods[0].UID != "p1" || !pods[0].Ready {
					t.Errorf("pods = %+v", facts.Pods)
				}
				if c := facts.CSINode; c.Owner != "a1" || len(c.Drivers) != 1 {
					t.Errorf("CSINode = %+v", c)
				}
				if gates, complete := f.Gates(); len(gates) != 1 || !complete || !facts.CompleteSources["crd"] {
					t.Errorf("gates = %v, complete %v; %v", gates, complete, f.GatesError())
				}
				for _, k := range f.api.kinds {
					if k.lists != 1 {
						t.Errorf("%T was listed %d times", k.one, k.lists)
					}
				}
			})
		})
	}
}

func TestUnsyncedNamesWhatIsNotRead(t *testing.T) {
	runFeed(t, func(api *fakeAPI) { api.pods(query).set(errForbidden) }, func(t *testing.T, f *testFeed) {
		f.SetNeeds(gate.Needs{Pods: []gate.PodQuery{query}})
		if got := f.Unsynced(); !slices.Equal(got, []string{PodsName(query)}) {
			t.Errorf("unsynced = %v as soon as pods are needed", got)
		}
		synctest.Wait()
		if got := f.Unsynced(); !slices.Equal(got, []string{PodsName(query)}) {
			t.Errorf("unsynced = %v while the pods cannot be read", got)
		}
		f.api.pods(query).set(nil)
		kubetest.Pass(time.Minute)
		if got := f.Unsynced(); got != nil {
			t.Errorf("unsynced = %v when the pods have been read", got)
		}
	})
}

// Facts say whether something is being read for the first time. A failed attempt ends
// that: it can last.
func TestLoading(t *testing.T) {
	for name, err := range map[string]error{"succeeds": nil, "fails": errForbidden} {
		t.Run(name, func(t *testing.T) {
			runFeed(t, func(api *fakeAPI) {
				api.nodes().Put(kubetest.Node("a", "a1"))
				api.pods(query).set(err)
			}, func(t *testing.T, f *testFeed) {
				synctest.Wait()
				if f.facts(t, "a").Loading {
					t.Error("nothing is needed, yet it loads")
				}
				read := make(chan struct{})
				pods := f.api.pods(query)
				f.api.set(func() { pods.onRead = func() { <-read } })
				needs := gate.Needs{Pods: []gate.PodQuery{query}}
				f.SetNeeds(needs)
				synctest.Wait()
				if part, _ := f.FactsOf("a", &needs); !part.Loading || !f.facts(t, "a").Loading {
					t.Error("it does not load when pods are needed")
				}
				close(read)
				synctest.Wait()
				if part, _ := f.FactsOf("a", &needs); part.Loading || f.facts(t, "a").Loading {
					t.Error("it still loads after the first attempt")
				}
			})
		})
	}
}

func TestHeartbeatsAreNotAnnounced(t *testing.T) {
	runFeed(t, func(api *fakeAPI) { api.nodes().Put(kubetest.Node("a", "a1")) }, func(t *testing.T, f *testFeed) {
		f.handler.take()
		later := kubetest.Node("a", "a1")
		later.Annotations = map[string]string{"some": "annotation"}
		later.Status.Conditions[0].LastHeartbeatTime = metav1.Unix(1700000300, 0)
		later.Status.Images = []corev1.ContainerImage{{SizeBytes: 1}}
		f.api.nodes().Put(later)
		f.wantChanged(t, "heartbeat")
		facts := f.facts(t, "a")
		if got := facts.Node.Conditions[0].Heartbeat; got.Unix() != 1700000300 {
			t.Errorf("heartbeat = %v", got)
		}
		if !facts.Node.HasAnnotations || facts.Node.ResourceVersion != "12" {
			t.Errorf("node = %+v", facts.Node)
		}
		kubetest.SetReady(later, corev1.ConditionFalse, "[container runtime is down, node is shutting down]")
		f.api.nodes().Put(later)
		f.wantChanged(t, "shutdown", "a")
		if !f.facts(t, "a").Node.ShuttingDown {
			t.Error("not shutting down")
		}
	})
}

// If a gate depends on the age of heartbeats, each heartbeat is announced.
func TestHeartbeatsThatAreNeeded(t *testing.T) {
	runFeed(t, func(api *fakeAPI) { api.nodes().Put(kubetest.Node("a", "a1")) }, func(t *testing.T, f *testFeed) {
		f.SetNeeds(gate.Needs{Heartbeats: true})
		synctest.Wait()
		f.handler.take()
		later := kubetest.Node("a", "a1")
		beat := func(at int64) {
			later.Status.Conditions[0].LastHeartbeatTime = metav1.Unix(at, 0)
			f.api.nodes().Put(later)
		}
		beat(1700000300)
		f.wantChanged(t, "needed", "a")
		beat(1700000300)
		f.wantChanged(t, "same heartbeat")
		f.SetNeeds(gate.Needs{})
		beat(1700000600)
		f.wantChanged(t, "no longer needed")
	})
}

func TestNodeRecreatedAndDeleted(t *testing.T) {
	runFeed(t, func(api *fakeAPI) { api.nodes().Put(kubetest.Node("a", "a1")) }, func(t *testing.T, f *testFeed) {
		f.handler.take()
		f.api.nodes().remove("a")
		f.api.nodes().Put(kubetest.Node("a", "a2"))
		f.wantChanged(t, "recreated", "a")
		if got := f.facts(t, "a").Node.UID; got != "a2" {
			t.Errorf("uid = %v", got)
		}
		f.api.nodes().remove("a")
		f.wantChanged(t, "deleted", "a")
		if _, ok := f.Facts("a"); ok || !f.NodesSynced() {
			t.Error("deleted node is known")
		}
	})
}

func TestObserve(t *testing.T) {
	runFeed(t, func(api *fakeAPI) { api.nodes().Put(kubetest.Node("a", "a1")) }, func(t *testing.T, f *testFeed) {
		tainted := func(key string) *corev1.Node {
			return kubetest.Node("a", "a1", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{kubetest.Taint(key, "", "NoSchedule")} })
		}
		f.handler.take()
		// The result of nodegate's own write is stored before the watch delivers it and
		// earlier events.
		written := tainted("ours")
		written.ResourceVersion = "100"
		f.Observe(written)
		f.wantChanged(t, "observed", "a")
		f.api.nodes().Put(tainted("older"))
		f.wantChanged(t, "stale event")
		if got := f.facts(t, "a").Node.Taints[0].Key; got != "ours" {
			t.Errorf("taint = %v", got)
		}
		f.api.set(func() { f.api.version = 99 })
		f.api.nodes().Put(tainted("ours"))
		f.wantChanged(t, "own write")
		f.api.nodes().Put(tainted("newer"))
		f.wantChanged(t, "newer event", "a")
		f.Observe(written)
		f.wantChanged(t, "late response")
		// A response that arrives after the node's deletion does not restore it.
		f.api.nodes().remove("a")
		f.handler.take()
		written.ResourceVersion = "200"
		f.Observe(written)
		f.wantChanged(t, "response for a deleted node")
		if _, ok := f.Facts("a"); ok {
			t.Error("deleted node is back")
		}
	})
}

func TestRefresh(t *testing.T) {
	runFeed(t, func(api *fakeAPI) { api.nodes().Put(kubetest.Node("a", "a1")) }, func(t *testing.T, f *testFeed) {
		nodes := f.api.nodes()
		f.handler.take()
		kubetest.Pass(2 * time.Second) // a shorter watch counts as broken
		f.api.set(func() { nodes.muted = true })
		nodes.Put(kubetest.Node("a", "a2"))
		if err := f.Refresh(t.Context(), "a"); err != nil {
			t.Errorf("refreshing failed: %v", err)
		}
		f.wantChanged(t, "another Node with this name", "a")
		nodes.remove("a")
		if err := f.Refresh(t.Context(), "a"); err != nil {
			t.Errorf("refreshing failed: %v", err)
		}
		f.wantChanged(t, "deleted", "a")
		if names := f.NodeNames(); len(names) != 0 {
			t.Errorf("names = %v", names)
		}
		// The resumed watch delivers all these events again, from the beginning.
		f.api.set(func() { nodes.muted = false })
		nodes.hangUp()
		kubetest.Pass(time.Minute)
		synctest.Wait()
		if names := f.NodeNames(); len(names) != 0 || !f.NodesSynced() || nodes.lists != 1 {
			t.Errorf("names = %v, synced %v, listed %d times", names, f.NodesSynced(), nodes.lists)
		}
	})
}

// set makes all requests for a kind fail with err, or succeed if it is nil.
func (k *fakeKind) set(err error) { k.api.set(func() { k.err = err }) }

func TestAnnotationsThatBecomeNeeded(t *testing.T) {
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1", func(n *corev1.Node) {
			n.Annotations = map[string]string{"needed": "1", "other": "2", "gate.nodegate.dev/g": "record"}
		}))
	}, func(t *testing.T, f *testFeed) {
		if n := f.facts(t, "a").Node; n.Annotations != nil || n.Records["g"] != "record" {
			t.Errorf("node = %+v", n)
		}
		f.handler.take()
		f.api.nodes().set(errForbidden) // delays reading the annotation
		f.SetNeeds(gate.Needs{Annotations: []string{"needed"}})
		if _, ok := f.Facts("a"); ok || f.NodesSynced() || !slices.Contains(f.Unsynced(), nodesName) {
			t.Error("there are facts about a node although a needed annotation is unknown")
		}
		f.api.nodes().set(nil)
		kubetest.Pass(time.Minute)
		if n := f.facts(t, "a").Node; n.Annotations["needed"] != "1" || len(n.Annotations) != 1 {
			t.Errorf("annotations = %v", n.Annotations)
		}
		if _, gates := f.handler.take(); gates == 0 {
			t.Error("it was not announced that the nodes are known")
		}
		f.SetNeeds(gate.Needs{})
		f.SetNeeds(gate.Needs{Annotations: []string{"needed"}})
		synctest.Wait()
		if got := f.api.nodes().lists; got != 2 {
			t.Errorf("nodes were listed %d times", got)
		}
	})
}

func TestZones(t *testing.T) {
	silent := func(n *corev1.Node) { kubetest.SetReady(n, corev1.ConditionUnknown, "") }
	in := func(zone string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = zone }
	}
	runFeed(t, func(api *fakeAPI) {
		for _, name := range []string{"a", "b", "c"} {
			api.nodes().Put(kubetest.Node(name, "1", in("z")))
		}
		api.nodes().Put(kubetest.Node("elsewhere", "1", silent))
	}, func(t *testing.T, f *testFeed) {
		nodes := f.api.nodes()
		f.handler.take()
		nodes.Put(kubetest.Node("a", "1", in("z"), silent))
		f.wantChanged(t, "one of three is unreachable", "a")
		nodes.Put(kubetest.Node("b", "1", in("z"), silent))
		f.wantChanged(t, "two of three: partitioned", "a", "b")
		if got := f.facts(t, "c").Zone; got != (gate.Zone{Nodes: 3, Silent: 2}) {
			t.Errorf("zone = %+v", got)
		}
		nodes.Put(kubetest.Node("d", "1", in("z")))
		f.wantChanged(t, "two of four: not partitioned", "a", "b", "d")
		nodes.Put(kubetest.Node("d", "1", in("y")))
		f.wantChanged(t, "one moves to another zone: partitioned again", "a", "b", "d")
		nodes.remove("b")
		f.wantChanged(t, "deleted: not partitioned", "a", "b")
		if got := f.facts(t, "elsewhere").Zone; got != (gate.Zone{Nodes: 1, Silent: 1}) {
			t.Errorf("zone = %+v", got)
		}
	})
}

func TestAPIServerRestart(t *testing.T) {
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		api.gates().Put(kubetest.Gate("g"))
		api.pods(query).Put(kubetest.Pod("p", "p1", "a", true))
	}, func(t *testing.T, f *testFeed) {
		f.SetNeeds(gate.Needs{Pods: []gate.PodQuery{query}})
		synctest.Wait()
		kubetest.Pass(2 * time.Second) // a shorter watch counts as broken
		kinds := []*fakeKind{f.api.nodes(), f.api.gates(), f.api.pods(query)}
		for _, k := range kinds {
			k.set(syscall.ECONNREFUSED)
			k.hangUp()
		}
		kubetest.Pass(10 * time.Second)
		if _, complete := f.Gates(); complete || f.NodesSynced() || f.GatesError() == nil {
			t.Error("objects that cannot be observed count as known")
		}
		f.api.nodes().Put(kubetest.Node("a", "a1", func(n *corev1.Node) { n.Status.NodeInfo.BootID = "new" }))
		for _, k := range kinds {
			k.set(nil)
		}
		kubetest.Pass(10 * time.Second)
		synctest.Wait()
		if got := f.facts(t, "a"); got.Node.BootID != "new" || len(got.Pods[query]) != 1 {
			t.Errorf("facts = %+v", got)
		}
		if gates, complete := f.Gates(); !complete || len(gates) != 1 {
			t.Errorf("gates = %v, %v", gates, f.GatesError())
		}
		for _, k := range kinds {
			if k.lists != 2 {
				t.Errorf("%T was listed %d times, want once at the start and once after the outage", k.one, k.lists)
			}
		}
	})
}

// If the API server is restored to an earlier state, newer versions no longer count.
func TestRestoredAPIServer(t *testing.T) {
	runFeed(t, func(api *fakeAPI) { api.version = 1000; api.nodes().Put(kubetest.Node("a", "a1")) }, func(t *testing.T, f *testFeed) {
		f.api.nodes().restart()
		f.api.set(func() { f.api.version = 500 })
		f.api.nodes().Put(kubetest.Node("a", "a1", func(n *corev1.Node) { n.Status.NodeInfo.BootID = "then" }))
		kubetest.Pass(time.Minute)
		synctest.Wait()
		if got := f.facts(t, "a").Node.BootID; got != "then" {
			t.Errorf("boot = %v", got)
		}
	})
}

func TestStopWhileTheAPIServerIsAway(t *testing.T) {
	runFeed(t, func(api *fakeAPI) {
		api.nodes().err, api.gates().err = syscall.ECONNREFUSED, syscall.ECONNREFUSED
	}, func(t *testing.T, f *testFeed) {
		f.SetNeeds(gate.Needs{Pods: []gate.PodQuery{query}, DaemonSetNamespaces: []string{"ns"}})
		kubetest.Pass(time.Minute)
		if got := f.api.nodes().calls; got > 60 {
			t.Errorf("%d requests in a minute", got)
		}
	})
}
