// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

func member(zone, state string, reason v1alpha1.Reason) []GateState {
	return []GateState{{Gate: "gate", Selected: true, Zone: zone, State: state, Reason: reason}}
}

// While sixteen workers close and open nodes of three zones and some writes fail, no zone
// ever has more closed nodes than its budget allows.
func TestBudgetIsNeverOvershot(t *testing.T) {
	const zones, perZone = 3, 25
	budget := new(intstr.FromString("20%"))
	most := gate.MaxReclosed(budget, perZone)
	ledger := NewLedger()
	ledger.SetTerms(map[string]BudgetTerms{"gate": {Budget: budget}})
	var truth struct {
		sync.Mutex
		closed, peak [zones]int
	}
	var running sync.WaitGroup
	for i := range zones * perZone {
		ledger.Set(fmt.Sprint("n", i), member(fmt.Sprint("z", i%zones), v1alpha1.StateOpen, ""), 1)
	}
	work := func(node string, z int, rng *rand.Rand) {
		zone := fmt.Sprint("z", z)
		if !ledger.Reserve(BudgetScope{Gate: "gate", Zone: zone}, node, time.Time{}) {
			return
		}
		if rng.IntN(3) == 0 {
			ledger.Release(node)
			return
		}
		truth.Lock()
		truth.closed[z]++
		truth.peak[z] = max(truth.peak[z], truth.closed[z])
		truth.Unlock()
		ledger.Set(node, member(zone, v1alpha1.StateClosed, v1alpha1.ReasonRegression), 1)
		truth.Lock()
		truth.closed[z]--
		truth.Unlock()
		ledger.Set(node, member(zone, v1alpha1.StateOpen, ""), 1)
	}
	for w := range 16 {
		running.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for range 2000 {
				// Each node is processed by only one worker.
				n := rng.IntN(zones*perZone/16)*16 + w
				if n < zones*perZone {
					work(fmt.Sprint("n", n), n%zones, rng)
				}
			}
		})
	}
	running.Wait()
	for z, peak := range truth.peak {
		if peak > most || peak == 0 {
			t.Errorf("zone %d had up to %d closed nodes, want 1 to %d", z, peak, most)
		}
	}
	for zone, z := range ledger.gates["gate"].zones {
		if z.members != perZone || z.used != 0 || z.inFlight != 0 || z.queue.len() != 0 {
			t.Errorf("final counts of zone %v: %+v, want %d members and no others", zone, *z, perZone)
		}
	}
}

func TestLedgerFollowsNodesFromZoneToZone(t *testing.T) {
	ledger := NewLedger()
	ledger.SetTerms(map[string]BudgetTerms{"gate": {Budget: new(intstr.FromInt32(1))}})
	ledger.Set("n1", member("a", v1alpha1.StateClosed, v1alpha1.ReasonExisting), 1)
	if ledger.Reserve(BudgetScope{Gate: "gate", Zone: "a"}, "n2", time.Time{}) {
		t.Error("zone a has budget for a second node, want none")
	}
	ledger.Set("n1", member("b", v1alpha1.StateClosed, v1alpha1.ReasonExisting), 1)
	if !ledger.Reserve(BudgetScope{Gate: "gate", Zone: "a"}, "n2", time.Time{}) || ledger.Reserve(BudgetScope{Gate: "gate", Zone: "b"}, "n3", time.Time{}) {
		t.Error("the node's new zone has budget, or its old one has none")
	}
	// A node that is closed because of a boot does not count.
	ledger.Set("n1", member("b", v1alpha1.StateClosed, v1alpha1.ReasonRebooted), 1)
	if !ledger.Reserve(BudgetScope{Gate: "gate", Zone: "b"}, "n3", time.Time{}) {
		t.Error("a rebooted node counts against the budget")
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		ledger.Forget(n)
	}
	if len(ledger.gates)+len(ledger.reservations)+len(ledger.nodes) != 0 {
		t.Errorf("entries of forgotten nodes remain: %+v", ledger.gates)
	}
}

func TestPacedNodesKeepTheirTurns(t *testing.T) {
	a, now := NewReservations(NewLedger()), time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	const fleet = 100
	waits := map[string]time.Duration{}
	for i := range fleet {
		node := fmt.Sprint("n", i)
		waits[node] = a.turn(node, now)
	}
	for node, delay := range waits {
		if got := a.turn(node, now.Add(delay)); delay > 0 && got != 0 {
			t.Errorf("after waiting for %s, node %s has to wait another %s", delay, node, got)
		}
	}
	if longest := waits[fmt.Sprint("n", fleet-1)]; longest < 8*time.Second || longest > 10*time.Second {
		t.Errorf("the last of %d nodes waits %s, want about 9s", fleet, longest)
	}
}

// Nodes may cease to need their turns, for example because their gate is deleted. If they
// need turns again later, their writes are limited as if they had never had any.
func TestMissedTurnsAreDropped(t *testing.T) {
	a, now := NewReservations(NewLedger()), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const fleet = 100
	for _, at := range []time.Time{now, now.Add(time.Hour), now.Add(2 * time.Hour)} {
		granted := 0
		for i := range fleet {
			if a.turn(fmt.Sprint("n", i), at) == 0 {
				granted++
			}
		}
		if granted != paceBurst {
			t.Errorf("after %s, %d of %d nodes are written at once, want %d", at.Sub(now), granted, fleet, paceBurst)
		}
	}
}
