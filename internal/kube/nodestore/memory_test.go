// SPDX-License-Identifier: Apache-2.0

package nodestore

import (
	"math"
	"testing"

	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/packed"
)

// A heartbeat does not replace the facts in memory, and allocates little.
func TestHeartbeatsAllocateLittle(t *testing.T) {
	s := newWatched(Options{})
	for i := range 200 { // so that common texts are numbered
		s.Put(s.Pack(kubetest.CloudNode(i % 100)))
	}
	beat := kubetest.CloudNode(1)
	s.Put(s.Pack(beat))
	allocs := math.Inf(1) // the minimum of several runs: with -race, a sync.Pool drops some of its items
	for range 100 {
		allocs = min(allocs, testing.AllocsPerRun(1, func() { s.Put(s.Pack(beat)) }))
	}
	if allocs > 12 {
		t.Errorf("%.0f allocations a heartbeat", allocs)
	}
	before := s.byName[beat.Name]
	beat.ResourceVersion = "9999999"
	s.Put(s.Pack(beat))
	after := s.byName[beat.Name]
	if after == before || !packed.SameFacts(before, after) || after.ResourceVersion() != "9999999" {
		t.Error("a heartbeat was not stored, or has changed the facts")
	}
}
