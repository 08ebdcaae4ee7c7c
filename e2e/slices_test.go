// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

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
