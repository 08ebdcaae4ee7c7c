// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nodegate/nodegate/internal/gate"
)

// The rate at which records are written to existing nodes that need no other change.
const (
	paceRate  = 10 // a second
	paceBurst = 10
	// turnLifetime is the time after which a turn that was not taken is dropped. Without it,
	// nodes that no longer need their turns, because a gate was deleted, could all be written
	// at once for another gate. It is long enough for nodes that are evaluated late.
	turnLifetime = time.Minute
)

// ThrottledRetry is the minimum time until a node that is not queued for budget is
// evaluated again. The maximum is twice that, so that nodes that were throttled together
// are not evaluated together. Queued nodes are not retried: they are evaluated when there
// is budget for them.
const ThrottledRetry = 5 * time.Second

// Reservations grants permissions that the decision about a single node cannot give, such
// as closing one more node within the budget. There is one per leader. A
// reservation is held from the grant until the ledger counts the node as closed, or the
// write is known to have failed.
type Reservations struct {
	ledger *Ledger

	mu   sync.Mutex
	pace *rate.Limiter
	// turns contains the times at which nodes may be written that wait because of the pace.
	turns map[string]time.Time
}

// NewReservations returns Reservations based on a ledger.
func NewReservations(l *Ledger) *Reservations {
	return &Reservations{ledger: l, pace: rate.NewLimiter(paceRate, paceBurst), turns: make(map[string]time.Time)}
}

// Grant reports whether the permission that a verdict wants is granted. If not, it also
// returns the time after which to ask again, or zero for a node that is queued. now must be
// the time of the call (see Ledger.Reserve).
func (a *Reservations) Grant(v *gate.Verdict, queues bool, n *gate.Node, now time.Time) (bool, time.Duration) {
	switch {
	case v.Wants == gate.WantPace:
		delay := a.turn(n.Name, now)
		return delay == 0, delay
	case a.ledger.Reserve(BudgetScope{v.Gate, n.Zone(), v.Wants == gate.WantCondition}, n.Name, now):
		return true, 0
	case queues:
		return false, 0
	}
	return false, a.retryAfter(v.Gate)
}

// retryAfter returns the time after which to request budget again for a node that is not
// queued.
func (a *Reservations) retryAfter(gateName string) time.Duration {
	if !a.ledger.IsCounted(gateName) {
		return wait.Jitter(CountInterval, 1)
	}
	return wait.Jitter(ThrottledRetry, 1)
}

// Delay returns how long to wait before checking whether a node must be closed, because
// there is no budget for it. It is zero if there is budget.
func (a *Reservations) Delay(s BudgetScope, node string) time.Duration {
	if a.ledger.Admits(s, node) {
		return 0
	}
	return a.retryAfter(s.Gate)
}

// turn returns the time that a node has to wait for its turn. A waiting node keeps its
// turn until it is dropped; otherwise, repeated requests would use up all turns.
func (a *Reservations) turn(node string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, waiting := a.turns[node]
	if !waiting || now.Sub(at) > turnLifetime {
		at = now.Add(a.pace.ReserveN(now, 1).DelayFrom(now))
	}
	if delay := at.Sub(now); delay > 0 {
		a.turns[node] = at
		return delay
	}
	delete(a.turns, node)
	return 0
}

// Forget drops a deleted node.
func (a *Reservations) Forget(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.turns, node)
}
