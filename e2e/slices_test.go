// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// The gate opens when the node's pool is complete, and ResourceSlices of a deleted Node with the
// same name do not count.
func TestResourceSlicesSignal(t *testing.T) {
	e := newEnv(t)
	start := time.Now()
	e.startController(0)
	ng := e.declare(newGate("dra", keyA, v1alpha1.SignalSource{ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: draDriver}}))
	e.must(e.condition("dra", v1alpha1.ConditionAccepted, "True", v1alpha1.ReasonNoBootEvidence))
	k, neighbour := e.kubelet("n1"), e.kubelet("n2")
	born := k.register()
	neighbour.register()
	e.waitsFor("dra", "n1", v1alpha1.ReadingMissing)
	k.publishesForAll("switch")
	neighbour.publishes("gpu-0", 1, 1)
	neighbour.becomes("dra", isOpen, keyA)
	e.must(k.is("dra", isClosed, keyA))

	// A pool is complete when all slices of its newest generation exist.
	first := k.publishes("gpu-0", 1, 2)
	e.waitsFor("dra", "n1", v1alpha1.ReadingPoolIncomplete)
	e.must(k.is("dra", isClosed, keyA))
	second := k.publishes("gpu-1", 2, 2)
	k.settled()
	e.must(k.is("dra", isClosed, keyA))
	k.republishes(first, 2, 2)
	k.becomes("dra", isOpen, keyA)

	// Another machine with the same name registers while the old slices still exist.
	e.must(e.admin.Delete(t.Context(), born))
	k.register()
	e.waitsFor("dra", "n1", v1alpha1.ReadingFormerNode)
	e.must(k.is("dra", isClosed, keyA))
	e.must(k.api.Delete(t.Context(), first))
	e.must(k.api.Delete(t.Context(), second))
	k.publishes("gpu-2", 1, 1)
	k.becomes("dra", isOpen, keyA)
	k.wrote(1)

	ended := e.requestsFor("resourceslices", "watch", start)
	e.must(e.admin.Delete(t.Context(), ng))
	e.eventually("the controller stops watching ResourceSlices", func() error {
		return unless(e.requestsFor("resourceslices", "watch", start) > ended)
	})
}

// A node can publish slices only of itself. A slice that it publishes in another node's pool, of a newer
// generation, does not change what that node's gates read.
func TestSlicesOfAnotherNode(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(onRegression(newGate("dra", keyA, v1alpha1.SignalSource{ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: draDriver}})))
	open, closed, malicious := e.kubelet("open"), e.kubelet("closed"), e.kubelet("malicious")
	for _, k := range []*kubelet{open, closed, malicious} {
		k.register()
	}
	open.publishes("gpu", 1, 1)
	open.becomes("dra", isOpen, keyA)
	closed.publishes("gpu", 1, 2)
	e.waitsFor("dra", "closed", v1alpha1.ReadingPoolIncomplete)

	slice := func(change func(*resourcev1.ResourceSliceSpec)) *resourcev1.ResourceSlice {
		o := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{GenerateName: "forged-"}, Spec: resourcev1.ResourceSliceSpec{
			Driver: draDriver, Pool: resourcev1.ResourcePool{Name: "closed", Generation: 2, ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "gpu"}},
		}}
		change(&o.Spec)
		return o
	}
	for what, change := range map[string]func(*resourcev1.ResourceSliceSpec){
		"another node's": func(s *resourcev1.ResourceSliceSpec) { s.NodeName = new("closed") },
		"all nodes'":     func(s *resourcev1.ResourceSliceSpec) { s.AllNodes = new(true) },
		"for each device": func(s *resourcev1.ResourceSliceSpec) {
			s.PerDeviceNodeSelection, s.Devices[0].NodeName = new(true), new("closed")
		},
		"a pool's counter": func(s *resourcev1.ResourceSliceSpec) {
			s.AllNodes, s.Devices, s.SharedCounters = new(true), nil, []resourcev1.CounterSet{{Name: "c"}}
		},
	} {
		if err := malicious.api.Create(t.Context(), slice(change)); !apierrors.IsForbidden(err) {
			t.Errorf("%s: the API server returned %v, want a rejection", what, err)
		}
	}
	for _, victim := range []string{"closed", "open"} {
		own := slice(func(s *resourcev1.ResourceSliceSpec) {
			s.NodeName, s.Pool.Name, s.Pool.ResourceSliceCount = &malicious.name, victim, 2
		})
		own.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: malicious.name, UID: malicious.node().UID}}
		e.must(malicious.api.Create(t.Context(), own))
		malicious.deletedAtEnd(own)
	}
	e.waitsFor("dra", "malicious", v1alpha1.ReadingPoolIncomplete) // both have been observed
	e.settled()
	e.must(open.is("dra", isOpen, keyA))
	e.must(closed.is("dra", isClosed, keyA))
}
