// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Existing nodes that need nothing but a record are written to at this rate.
const (
	paceRate  = 10 // a second
	paceBurst = 10
)

// allocator grants what a single node's decision cannot know: whether so many
// nodes are closed already that one more must wait. There is one in a process.
// A slot is held from the grant until the write is accounted for, or failed.
type allocator struct {
	tally *tally
	pace  *rate.Limiter

	mu    sync.Mutex
	slots map[slotKey]map[string]bool // nodes whose write is in flight
}

// slotKey is what a budget is for: one gate in one zone.
type slotKey struct{ gate, zone string }

func newAllocator(t *tally) *allocator {
	return &allocator{
		tally: t,
		pace:  rate.NewLimiter(paceRate, paceBurst),
		slots: make(map[slotKey]map[string]bool),
	}
}

// grant answers a verdict's want. Where it refuses, the duration says when to
// ask again.
func (a *allocator) grant(v *gate.Verdict, ng *v1alpha1.NodeGate, node, zone string, now time.Time) (bool, time.Duration) {
	if v.Wants == gate.WantPace {
		r := a.pace.ReserveN(now, 1)
		if delay := r.DelayFrom(now); delay > 0 {
			r.CancelAt(now)
			return false, delay
		}
		return true, 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	key := slotKey{v.Gate, zone}
	members, closed := a.tally.budgeted(v.Gate, zone, a.slots[key])
	if closed+len(a.slots[key]) >= limit(ptr.Deref(ng.Spec.Budget.MaxReclosed, defaultBudget), members) {
		return false, throttledRetry
	}
	if a.slots[key] == nil {
		a.slots[key] = make(map[string]bool)
	}
	a.slots[key][node] = true
	return true, 0
}

// release gives back the slot that a node's write held, if it held one.
func (a *allocator) release(gateName, zone, node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := slotKey{gateName, zone}
	delete(a.slots[key], node)
	if len(a.slots[key]) == 0 {
		delete(a.slots, key)
	}
}

// throttledRetry is how long a node waits before it asks for budget again.
const throttledRetry = 5 * time.Second

// defaultBudget is what the API server fills in.
var defaultBudget = intstr.FromString("20%")

// limit is how many of a number of nodes a budget lets be closed. A percentage
// is rounded up, so that a small zone is not left without any.
func limit(budget intstr.IntOrString, nodes int) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(&budget, nodes, true)
	if err != nil { // the schema lets nothing else in
		return 0
	}
	return n
}

// isBudgeted tells whether closing for this reason counts against the budget.
func isBudgeted(reason v1alpha1.Reason) bool {
	return reason == v1alpha1.ReasonRegression || reason == v1alpha1.ReasonExisting
}
