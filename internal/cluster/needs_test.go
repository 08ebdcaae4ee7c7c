// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/internal/gate"
)

// everyKind is each kind of objects that some signal needs and others do not, by
// what needs it.
var everyKind = map[string]struct {
	needs gate.Needs
	kind  func(*fakeAPI) *fakeKind
}{
	"pods":           {gate.Needs{Pods: []gate.PodQuery{query}}, func(a *fakeAPI) *fakeKind { return a.pods(query) }},
	"DaemonSets":     {gate.Needs{DaemonSetNamespaces: []string{"ns"}}, func(a *fakeAPI) *fakeKind { return a.daemonSets("ns") }},
	"CSINodes":       {gate.Needs{CSINodes: true}, (*fakeAPI).csiNodes},
	"ResourceSlices": {gate.Needs{ResourceSlices: []string{draDriver}}, func(a *fakeAPI) *fakeKind { return a.slices(draDriver) }},
}

// everything is all of that, and all that is kept of Nodes where it is needed.
func everything() gate.Needs {
	all := gate.Needs{Annotations: []string{"needed"}, Resources: []string{"example.com/gpu"}, NodeInfo: []string{"kernelVersion"}}
	for _, k := range everyKind {
		all.Add(k.needs)
	}
	return all
}

// watched counts the watches of a kind that go on.
func (k *fakeKind) watched() (n int) {
	k.api.mu.Lock()
	defer k.api.mu.Unlock()
	for _, w := range k.watchers {
		if !w.IsStopped() {
			n++
		}
	}
	return n
}

// Each kind is observed while a gate needs it, whatever else is needed, and not
// before or after.
func TestFeedsRunWhileTheyAreNeeded(t *testing.T) {
	for name, c := range everyKind {
		t.Run(name, func(t *testing.T) {
			runFeed(t, func(api *fakeAPI) { api.nodes().put(testNode("a", "a1")) }, func(t *testing.T, f *testFeed) {
				kind := c.kind(f.api)
				var others gate.Needs
				for other, k := range everyKind {
					if other != name {
						others.Add(k.needs)
					}
				}
				f.SetNeeds(others)
				pass(time.Hour)
				synctest.Wait()
				if kind.calls > 0 {
					t.Errorf("asked for %d times before it was needed", kind.calls)
				}
				f.SetNeeds(everything())
				pass(time.Minute)
				synctest.Wait()
				if kind.lists != 1 || kind.watched() != 1 {
					t.Errorf("while it is needed it was listed %d times, and is watched %d times", kind.lists, kind.watched())
				}
				f.SetNeeds(others)
				synctest.Wait()
				calls := kind.calls
				pass(time.Hour)
				synctest.Wait()
				if kind.watched() > 0 || kind.calls > calls {
					t.Errorf("not needed any more: watched %d times, asked for %d times", kind.watched(), kind.calls-calls)
				}
				for other, k := range everyKind {
					if o := k.kind(f.api); other != name && (o.lists != 1 || o.watched() != 1) {
						t.Errorf("%s, needed all the time, were listed %d times and are watched %d times", other, o.lists, o.watched())
					}
				}
			})
		})
	}
}

// busyNode is a node of which everything that can be needed is there.
func busyNode(name string, beat time.Time) *corev1.Node {
	n := cloudNode(1)
	n.Name, n.Annotations = name, map[string]string{"needed": "1", "gate.nodegate.dev/cilium": `{"state":"Open"}`}
	n.Status.NodeInfo.KernelVersion = "6.1"
	n.Status.NodeInfo.BootID = "boot"
	n.Status.Allocatable = corev1.ResourceList{"example.com/gpu": resource.MustParse("8"), "cpu": resource.MustParse("4")}
	n.UID = "uid"
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(beat)
	}
	return n
}

// However much is needed, a thousand heartbeats have nobody look at a node; with
// a gate that goes by their age, each has. Leases are not observed at all.
func TestHeartbeatsAreFree(t *testing.T) {
	const beats = 1000
	for name, c := range map[string]struct {
		heartbeats bool
		want       int
	}{
		"whatever is needed":                        {false, 0},
		"for maxHeartbeatAgeSeconds, one look each": {true, beats},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1700000000, 0)
			runFeed(t, func(api *fakeAPI) { api.nodes().put(busyNode("a", start)) }, func(t *testing.T, f *testFeed) {
				needs := everything()
				needs.Heartbeats = c.heartbeats
				f.SetNeeds(needs)
				pass(time.Minute)
				f.told.take()
				for i := range beats {
					f.api.nodes().put(busyNode("a", start.Add(time.Duration(i+1)*10*time.Second)))
					synctest.Wait()
				}
				if n := len(f.told.nodes); n != c.want {
					t.Errorf("%d heartbeats had the node looked at %d times, want %d", beats, n, c.want)
				}
				if f.told.gates != 0 {
					t.Errorf("they had the whole fleet looked at %d times", f.told.gates)
				}
				if got := f.facts(t, "a").Node.Conditions[0].Heartbeat; !got.Equal(start.Add(beats * 10 * time.Second)) {
					t.Errorf("the last heartbeat was not seen: %s", got)
				}
			})
		})
	}
}
