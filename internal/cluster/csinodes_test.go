// SPDX-License-Identifier: Apache-2.0

package cluster

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
		api.nodes().put(testNode("a", "a1"))
		api.nodes().put(testNode("b", "b1"))
		api.csiNodes().put(testCSINode("a", "a1"))
	}, func(t *testing.T, f *testFeed) {
		csi := f.api.csiNodes()
		if csi.calls > 0 || f.facts(t, "a").CSINode.Observed {
			t.Errorf("CSINodes were asked for %d times before they are needed", csi.calls)
		}
		f.told.take()
		f.SetNeeds(gate.Needs{CSINodes: true})
		if _, gates := f.told.take(); gates == 0 {
			t.Error("nobody was told that the CSINodes are known")
		}
		if c := f.facts(t, "b").CSINode; !c.Observed || c.Owner != "" {
			t.Errorf("b, which has none: %+v", c)
		}
		csi.put(testCSINode("a", "a1", driver("d")))
		f.wantTold(t, "registered", "a")
		csi.put(testCSINode("a", "a1", driver("d", 24)))
		f.wantTold(t, "its limit", "a")
		want := gate.CSINode{Observed: true, Owner: "a1", Drivers: map[string]bool{"d": true}}
		if c := f.facts(t, "a").CSINode; !reflect.DeepEqual(c, want) {
			t.Errorf("CSINode = %+v, want %+v", c, want)
		}
		same := testCSINode("a", "a1", driver("d", 25))
		same.Annotations = map[string]string{"storage.alpha.kubernetes.io/migrated-plugins": "x"}
		csi.put(same)
		f.wantTold(t, "nothing that matters")
		csi.put(testCSINode("a", "a2", driver("d", 25)))
		f.wantTold(t, "of another Node", "a")
		csi.remove("a")
		f.wantTold(t, "deleted", "a")
		if c := f.facts(t, "a").CSINode; !c.Observed || len(c.Drivers) > 0 {
			t.Errorf("CSINode = %+v after it was deleted", c)
		}
		csi.put(testCSINode("a", "a1", driver("d")))
		f.wantTold(t, "made again", "a")

		csi.hangUp()
		csi.set(errForbidden)
		pass(time.Second)
		if c := f.facts(t, "a").CSINode; c.Observed || c.Drivers != nil {
			t.Errorf("CSINode = %+v while it cannot be observed", c)
		}
		csi.set(nil)
		pass(time.Minute)
		if !f.facts(t, "a").CSINode.Observed {
			t.Error("CSINodes are not observed again")
		}
		f.told.take()
		f.SetNeeds(gate.Needs{})
		synctest.Wait()
		csi.put(testCSINode("b", "b1", driver("d")))
		f.wantTold(t, "not needed any more")
		if c := f.facts(t, "a").CSINode; c.Observed {
			t.Errorf("CSINode = %+v, and nobody needs it", c)
		}
	})
}

// A CSINode that cannot be read at all is named among what is not known.
func TestCSINodesUnreadable(t *testing.T) {
	runFeed(t, func(api *fakeAPI) {
		api.nodes().put(testNode("a", "a1"))
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
			t.Errorf("unsynced = %v, and nothing is needed", got)
		}
	})
}

func TestCSINodeFacts(t *testing.T) {
	s := newCSINodeSet(func(string) {}, newNodeStore(unheard))
	uncounted := driver("c")
	uncounted.Allocatable = &storagev1.VolumeNodeResources{}
	got := s.convert(testCSINode("n", "u", driver("a"), driver("b", 0), uncounted))
	want := &csiNodeFact{node: "n", owner: "u", drivers: map[string]bool{"a": false, "b": true, "c": false}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("fact = %+v, want %+v", got, want)
	}
	stranger := testCSINode("n", "u")
	stranger.OwnerReferences[0].Kind = "Machine"
	if got := s.convert(stranger); got.owner != "" {
		t.Errorf("a CSINode that no Node owns is taken for that of %s", got.owner)
	}
}

func TestResourcesThatBecomeNeeded(t *testing.T) {
	allocatable := func(gpus string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus), "cpu": resource.MustParse("4")}
		}
	}
	runFeed(t, func(api *fakeAPI) {
		api.nodes().put(testNode("a", "a1", allocatable("1")))
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
		f.told.take()
		f.api.nodes().put(testNode("a", "a1", allocatable("0")))
		f.wantTold(t, "it came to be 0", "a")
		f.api.nodes().put(testNode("a", "a1", allocatable("0"), func(n *corev1.Node) {
			n.Status.Allocatable["cpu"] = resource.MustParse("3")
		}))
		f.wantTold(t, "what nobody needs")
		f.SetNeeds(gate.Needs{})
		f.SetNeeds(gate.Needs{Resources: []string{"nvidia.com/gpu"}})
		synctest.Wait()
		if got := f.api.nodes().lists; got != 2 {
			t.Errorf("nodes were listed %d times", got)
		}
	})
}
