// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
)

func testCSINode(name string, owner types.UID, drivers ...storagev1.CSINodeDriver) *storagev1.CSINode {
	return &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("csi-" + name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: owner}},
		},
		Spec: storagev1.CSINodeSpec{Drivers: drivers},
	}
}

func driver(name string, limit ...int32) storagev1.CSINodeDriver {
	d := storagev1.CSINodeDriver{Name: name, NodeID: "i-1"}
	if len(limit) > 0 {
		d.Allocatable = &storagev1.VolumeNodeResources{Count: &limit[0]}
	}
	return d
}

func TestCSINodes(t *testing.T) {
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		api.nodes().Put(kubetest.Node("b", "b1"))
		api.csiNodes().Put(testCSINode("a", "a1"))
	}, func(t *testing.T, f *testFeed) {
		csi := f.api.csiNodes()
		if csi.calls > 0 || f.facts(t, "a").CSINode.Observed {
			t.Errorf("%d requests for CSINodes before they are needed", csi.calls)
		}
		f.handler.take()
		f.SetNeeds(gate.Needs{CSINodes: true})
		if _, gates := f.handler.take(); gates == 0 {
			t.Error("it was not announced that the CSINodes are known")
		}
		if c := f.facts(t, "b").CSINode; !c.Observed || c.Owner != "" {
			t.Errorf("b, which has no CSINode: %+v", c)
		}
		csi.Put(testCSINode("a", "a1", driver("d")))
		f.wantChanged(t, "registered", "a")
		csi.Put(testCSINode("a", "a1", driver("d", 24)))
		f.wantChanged(t, "limit", "a")
		want := gate.CSINode{Observed: true, Owner: "a1", Drivers: map[string]bool{"d": true}}
		if c := f.facts(t, "a").CSINode; !reflect.DeepEqual(c, want) {
			t.Errorf("CSINode = %+v, want %+v", c, want)
		}
		same := testCSINode("a", "a1", driver("d", 25))
		same.Annotations = map[string]string{"storage.alpha.kubernetes.io/migrated-plugins": "x"}
		csi.Put(same)
		f.wantChanged(t, "irrelevant change")
		csi.Put(testCSINode("a", "a2", driver("d", 25)))
		f.wantChanged(t, "CSINode of another Node", "a")
		csi.remove("a")
		f.wantChanged(t, "deleted", "a")
		if c := f.facts(t, "a").CSINode; !c.Observed || len(c.Drivers) > 0 {
			t.Errorf("CSINode = %+v after it was deleted", c)
		}
		csi.Put(testCSINode("a", "a1", driver("d")))
		f.wantChanged(t, "created again", "a")

		csi.set(errForbidden)
		csi.hangUp()
		kubetest.Pass(time.Second)
		if c := f.facts(t, "a").CSINode; c.Observed || c.Drivers != nil {
			t.Errorf("CSINode = %+v while it cannot be observed", c)
		}
		csi.set(nil)
		kubetest.Pass(time.Minute)
		if !f.facts(t, "a").CSINode.Observed {
			t.Error("CSINodes are not observed again")
		}
		f.handler.take()
		f.SetNeeds(gate.Needs{})
		synctest.Wait()
		csi.Put(testCSINode("b", "b1", driver("d")))
		f.wantChanged(t, "no longer needed")
		if c := f.facts(t, "a").CSINode; c.Observed {
			t.Errorf("CSINode = %+v although it is not needed", c)
		}
	})
}

// If CSINodes cannot be read, their feed is unsynced.
func TestCSINodesUnreadable(t *testing.T) {
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		api.csiNodes().set(errForbidden)
	}, func(t *testing.T, f *testFeed) {
		f.SetNeeds(gate.Needs{CSINodes: true})
		synctest.Wait()
		if got := f.Unsynced(); !slices.Equal(got, []string{csiNodesName}) {
			t.Errorf("unsynced = %v", got)
		}
		f.SetNeeds(gate.Needs{})
		synctest.Wait()
		if got := f.Unsynced(); len(got) > 0 {
			t.Errorf("unsynced = %v although nothing is needed", got)
		}
	})
}

// otherOwners change a reference to a Node into one to another object.
var otherOwners = map[string]func(*metav1.OwnerReference){
	"another kind":      func(o *metav1.OwnerReference) { o.Kind = "Pod" },
	"another API group": func(o *metav1.OwnerReference) { o.APIVersion = "example.com/v1" },
	"another node":      func(o *metav1.OwnerReference) { o.Name = "m" },
}

func TestCSINodeFacts(t *testing.T) {
	s := NewCSINodes(func(string) {}, nodestore.New(nodestore.Options{}))
	uncounted := driver("c")
	uncounted.Allocatable = &storagev1.VolumeNodeResources{}
	got := s.Convert(testCSINode("n", "u", driver("a"), driver("b", 0), uncounted))
	want := &CSINode{node: "n", owner: "u", drivers: map[string]bool{"a": false, "b": true, "c": false}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("fact = %+v, want %+v", got, want)
	}
	for name, change := range otherOwners {
		stranger := testCSINode("n", "u")
		change(&stranger.OwnerReferences[0])
		if got := s.Convert(stranger); got.owner != "" {
			t.Errorf("%s: owner %s, want none", name, got.owner)
		}
	}
}

func TestResourcesThatBecomeNeeded(t *testing.T) {
	allocatable := func(gpus string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus), "cpu": resource.MustParse("4")}
		}
	}
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1", allocatable("1")))
	}, func(t *testing.T, f *testFeed) {
		if n := f.facts(t, "a").Node; n.Allocatable != nil {
			t.Errorf("allocatable = %v before it is needed", n.Allocatable)
		}
		f.SetNeeds(gate.Needs{Annotations: []string{"both"}, Resources: []string{"nvidia.com/gpu"}})
		synctest.Wait()
		n := f.facts(t, "a").Node
		if got := n.Allocatable["nvidia.com/gpu"]; got.String() != "1" || len(n.Allocatable) != 1 {
			t.Errorf("allocatable = %v", n.Allocatable)
		}
		f.handler.take()
		f.api.nodes().Put(kubetest.Node("a", "a1", allocatable("0")))
		f.wantChanged(t, "reduced to 0", "a")
		f.api.nodes().Put(kubetest.Node("a", "a1", allocatable("0"), func(n *corev1.Node) {
			n.Status.Allocatable["cpu"] = resource.MustParse("3")
		}))
		f.wantChanged(t, "resource that is not needed")
		f.SetNeeds(gate.Needs{})
		f.SetNeeds(gate.Needs{Resources: []string{"nvidia.com/gpu"}})
		synctest.Wait()
		if got := f.api.nodes().lists; got != 2 {
			t.Errorf("nodes were listed %d times", got)
		}
	})
}
