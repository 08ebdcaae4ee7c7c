// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// everyKind contains each kind of object that only some signals need, with the needs that
// require it.
var everyKind = map[string]struct {
	Needs gate.Needs
	kind  func(*fakeAPI) *fakeKind
}{
	"pods":             {gate.Needs{Pods: []gate.PodQuery{query}}, func(a *fakeAPI) *fakeKind { return a.pods(query) }},
	"DaemonSets":       {gate.Needs{DaemonSetNamespaces: []string{"ns"}}, func(a *fakeAPI) *fakeKind { return a.daemonSets("ns") }},
	"CSINodes":         {gate.Needs{CSINodes: true}, (*fakeAPI).csiNodes},
	"objects":          {gate.Needs{Objects: []gate.ObjectQuery{testQuery("", "")}}, func(a *fakeAPI) *fakeKind { return a.objects(testSource) }},
	"DeviceTaintRules": {gate.Needs{Devices: []gate.DeviceQuery{{Driver: "counted.example.com", Pools: v1alpha1.PoolsNodeLocal, Selectors: gate.SelectorsOf(nil)}}}, (*fakeAPI).rules},
	"shared ResourceSlices": {gate.Needs{Devices: []gate.DeviceQuery{{Driver: draDriver, Pools: v1alpha1.PoolsShared}}},
		func(a *fakeAPI) *fakeKind { return a.sharedSlices(draDriver) }},
	"ResourceSlices": {gate.Needs{ResourceSlices: []string{draDriver}}, func(a *fakeAPI) *fakeKind { return a.slices(draDriver) }},
}

// everything returns all these needs, and needs for all optional facts about Nodes.
func everything() gate.Needs {
	all := gate.Needs{Annotations: []string{"needed"}, Resources: []string{"example.com/gpu"}, NodeInfo: []string{"kernelVersion"}}
	for _, k := range everyKind {
		all.Add(k.Needs)
	}
	return all
}

// watched returns the number of open watches of a kind.
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

// Each kind is observed exactly while a gate needs it, whatever else is needed.
func TestFeedsRunWhileNeeded(t *testing.T) {
	for name, c := range everyKind {
		t.Run(name, func(t *testing.T) {
			runFeed(t, func(api *fakeAPI) { api.nodes().Put(kubetest.Node("a", "a1")) }, func(t *testing.T, f *testFeed) {
				kind := c.kind(f.api)
				var others gate.Needs
				for other, k := range everyKind {
					if other != name {
						others.Add(k.Needs)
					}
				}
				f.SetNeeds(others)
				kubetest.Pass(time.Hour)
				synctest.Wait()
				if kind.calls > 0 {
					t.Errorf("%d requests before it was needed", kind.calls)
				}
				f.SetNeeds(everything())
				kubetest.Pass(time.Minute)
				synctest.Wait()
				if kind.lists != 1 || kind.watched() != 1 {
					t.Errorf("while needed, listed %d times, and %d watches", kind.lists, kind.watched())
				}
				f.SetNeeds(others)
				synctest.Wait()
				calls := kind.calls
				kubetest.Pass(time.Hour)
				synctest.Wait()
				if kind.watched() > 0 || kind.calls > calls {
					t.Errorf("no longer needed, but %d watches and %d requests", kind.watched(), kind.calls-calls)
				}
				for other, k := range everyKind {
					if o := k.kind(f.api); other != name && (o.lists != 1 || o.watched() != 1) {
						t.Errorf("%s, which is always needed: listed %d times, %d watches", other, o.lists, o.watched())
					}
				}
			})
		})
	}
}

// busyNode returns a node that has everything that can be needed.
func busyNode(name string, beat time.Time) *corev1.Node {
	n := kubetest.CloudNode(1)
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

// A thousand heartbeats are not announced, whatever is needed, unless a gate depends on
// the age of heartbeats: then each is. Leases are not observed.
func TestHeartbeatsAreFree(t *testing.T) {
	const beats = 1000
	for name, c := range map[string]struct {
		heartbeats bool
		want       int
	}{
		"without maxHeartbeatAgeSeconds": {false, 0},
		"with maxHeartbeatAgeSeconds":    {true, beats},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1700000000, 0)
			runFeed(t, func(api *fakeAPI) { api.nodes().Put(busyNode("a", start)) }, func(t *testing.T, f *testFeed) {
				needs := everything()
				needs.Heartbeats = c.heartbeats
				f.SetNeeds(needs)
				kubetest.Pass(time.Minute)
				f.handler.take()
				for i := range beats {
					f.api.nodes().Put(busyNode("a", start.Add(time.Duration(i+1)*10*time.Second)))
					synctest.Wait()
				}
				if n := len(f.handler.nodes); n != c.want {
					t.Errorf("%d heartbeats were announced %d times, want %d", beats, n, c.want)
				}
				if f.handler.gates != 0 {
					t.Errorf("heartbeats caused %d calls of GatesChanged", f.handler.gates)
				}
				if got := f.facts(t, "a").Node.Conditions[0].Heartbeat; !got.Equal(start.Add(beats * 10 * time.Second)) {
					t.Errorf("the last heartbeat was not stored: %s", got)
				}
			})
		})
	}
}
