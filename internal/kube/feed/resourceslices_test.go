// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/clients"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

const draDriver = "gpu.example.com"

func testSlice(name, node string, owner types.UID, generation, count int64) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("slice-" + name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: owner}},
		},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: draDriver, NodeName: &node,
			Pool: resourcev1.ResourcePool{Name: node, Generation: generation, ResourceSliceCount: count},
		},
	}
}

func TestResourceSlices(t *testing.T) {
	needs := gate.Needs{ResourceSlices: []string{draDriver}}
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		api.nodes().Put(kubetest.Node("b", "b1"))
		api.slices(draDriver).Put(testSlice("a-x", "a", "a1", 1, 2))
	}, func(t *testing.T, f *testFeed) {
		dra := f.api.slices(draDriver)
		on := func(node string) ([]gate.ResourceSlice, bool) {
			list, observed := f.facts(t, node).ResourceSlices[draDriver]
			return list, observed
		}
		if _, observed := on("a"); observed || dra.calls > 0 {
			t.Errorf("%d requests for ResourceSlices before they are needed", dra.calls)
		}
		f.handler.take()
		f.SetNeeds(needs)
		if _, gates := f.handler.take(); gates == 0 {
			t.Error("it was not announced that the slices are known")
		}
		if list, observed := on("b"); !observed || len(list) > 0 {
			t.Errorf("b, which has no slices: %+v, observed: %v", list, observed)
		}
		before, _ := on("a")
		dra.Put(testSlice("a-y", "a", "a1", 1, 2))
		f.wantChanged(t, "another slice", "a")
		dra.Put(testSlice("a-x", "a", "a1", 2, 1))
		f.wantChanged(t, "another generation", "a")
		x1 := gate.ResourceSlice{Name: "a-x", Owner: "a1", Pool: "a", Generation: 1, Count: 2}
		x2, y := x1, x1
		x2.Generation, x2.Count, y.Name = 2, 1, "a-y"
		if now, _ := on("a"); !slices.Equal(before, []gate.ResourceSlice{x1}) || !slices.Equal(now, []gate.ResourceSlice{x2, y}) {
			t.Errorf("slices were %+v, and are %+v", before, now)
		}
		same := testSlice("a-x", "a", "a1", 2, 1)
		same.Spec.Devices = []resourcev1.Device{{Name: "gpu-0"}}
		dra.Put(same)
		f.wantChanged(t, "irrelevant change")
		dra.Put(testSlice("a-x", "a", "a2", 2, 1))
		f.wantChanged(t, "slice of another Node", "a")
		dra.remove("a-x")
		f.wantChanged(t, "deleted", "a")
		dra.remove("a-y")
		f.wantChanged(t, "last slice deleted", "a")
		if list, observed := on("a"); !observed || len(list) > 0 {
			t.Errorf("slices = %+v after they were deleted", list)
		}
		dra.Put(testSlice("b-x", "b", "b1", 1, 1))
		f.wantChanged(t, "on another node", "b")

		dra.set(errForbidden)
		dra.hangUp()
		kubetest.Pass(time.Second)
		if list, observed := on("b"); observed {
			t.Errorf("slices = %+v while they cannot be observed", list)
		}
		dra.set(nil)
		kubetest.Pass(time.Minute)
		if list, _ := on("b"); len(list) != 1 {
			t.Errorf("slices = %+v when they are observed again", list)
		}
		f.handler.take()
		f.SetNeeds(gate.Needs{})
		synctest.Wait()
		dra.Put(testSlice("b-y", "b", "b1", 1, 1))
		f.wantChanged(t, "no longer needed")
		if _, observed := on("b"); observed {
			t.Error("slices are known although they are not needed")
		}
	})
}

// An older API server, or one without dynamic resource allocation, does not serve
// ResourceSlices. The error explains that, and the feed does not count as unsynced.
func TestResourceSlicesNotServed(t *testing.T) {
	notServed := apierrors.NewGenericServerResponse(404, "list", resourcev1.Resource("resourceslices"), "", "404 page not found", 0, true)
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		api.slices(draDriver).set(notServed)
		api.slices("forbidden").set(errForbidden)
	}, func(t *testing.T, f *testFeed) {
		f.SetNeeds(gate.Needs{ResourceSlices: []string{draDriver}})
		synctest.Wait()
		if got := f.Unsynced(); len(got) > 0 {
			t.Errorf("unsynced = %v although the kind is not served", got)
		}
		status := f.StatusOf(gate.Needs{ResourceSlices: []string{draDriver}})
		i := slices.IndexFunc(status, func(s reflector.Status) bool { return s.Name == slicesName(SliceSource{Driver: draDriver}) })
		if i < 0 || status[i].Synced || !errors.Is(status[i].Err, clients.ErrNotServed) || !strings.Contains(status[i].Err.Error(), "1.34") {
			t.Errorf("status = %+v", status)
		}
		if other := f.StatusOf(gate.Needs{CSINodes: true}); slices.ContainsFunc(other, func(s reflector.Status) bool { return s.Name == slicesName(SliceSource{Driver: draDriver}) }) {
			t.Errorf("status of a gate that needs no slices: %+v", other)
		}
		if _, observed := f.facts(t, "a").ResourceSlices[draDriver]; observed {
			t.Error("slices count as observed although they are not served")
		}
		f.api.slices(draDriver).set(nil)
		kubetest.Pass(time.Minute)
		if _, observed := f.facts(t, "a").ResourceSlices[draDriver]; !observed {
			t.Error("slices are not observed although the API server serves them now")
		}
		f.SetNeeds(gate.Needs{ResourceSlices: []string{"forbidden"}})
		synctest.Wait()
		if got := f.Unsynced(); !slices.Equal(got, []string{slicesName(SliceSource{Driver: "forbidden"})}) {
			t.Errorf("unsynced = %v", got)
		}
	})
}

func TestResourceSliceFacts(t *testing.T) {
	s := NewResourceSlices(nodestore.New(nodestore.Options{}), draDriver, SliceNeeds{Plain: true}, func(gate.Aspect) func(string) { return IgnoreNode })
	got := s.Convert(testSlice("x", "n", "u", 3, 2))
	want := &ResourceSlice{node: "n", ResourceSlice: gate.ResourceSlice{Name: "x", Owner: "u", Pool: "n", Generation: 3, Count: 2}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("fact = %+v, want %+v", got, want)
	}
	for name, change := range otherOwners {
		o := testSlice("x", "n", "u", 3, 2)
		change(&o.OwnerReferences[0])
		if got := s.Convert(o); got.Owner != "" {
			t.Errorf("%s: owner %s, want none", name, got.Owner)
		}
	}
}

// The watch of node-local slices receives only slices that name a node, and that of shared
// slices only the others.
func TestSliceSelectors(t *testing.T) {
	if got := clients.SharedSlicesOf(draDriver); got != "spec.driver=gpu.example.com,spec.nodeName=" {
		t.Errorf("field selector of shared slices %q", got)
	}
	if got := clients.LocalSlicesOf(draDriver); got != "spec.driver=gpu.example.com,spec.nodeName!=" {
		t.Errorf("field selector %q", got)
	}
	if shared, local := clients.SharedSlicesOf(""), clients.LocalSlicesOf(""); shared != "spec.nodeName=" || local != "spec.nodeName!=" {
		t.Errorf("field selectors of all drivers %q and %q", shared, local)
	}
}
