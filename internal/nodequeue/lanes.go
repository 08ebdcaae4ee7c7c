// SPDX-License-Identifier: Apache-2.0

// Package nodequeue determines the order in which nodes are processed: changed nodes before
// those that are only processed again.
package nodequeue

import (
	"container/list"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// maxChangedInARow is the number of changed nodes that are processed in a row while
// nodes of the other lane wait, so that these are not starved.
const maxChangedInARow = 8

// Lanes is a workqueue.Queue with two lanes. Changed nodes come before nodes that are
// only reconciled again because gates have changed, time has passed or a write is
// retried. The second lane may contain a whole fleet at once. (controller-runtime's
// priority queue would starve it while there are changed nodes.) The workqueue calls the
// methods under a lock of its own.
type Lanes struct {
	mu sync.Mutex
	// isChanged has the nodes that have changed since they were last processed.
	isChanged map[string]bool
	// changed and resync are the lanes, each in order of arrival. elements has the
	// position of each queued node.
	changed, resync *list.List
	elements        map[string]*list.Element
	// inARow is the number of changed nodes processed in a row while others waited.
	inARow int
}

var _ workqueue.Queue[string] = (*Lanes)(nil)

// NewLanes returns empty lanes.
func NewLanes() *Lanes {
	return &Lanes{isChanged: make(map[string]bool), changed: list.New(), resync: list.New(), elements: make(map[string]*list.Element)}
}

// MarkChanged makes a node use the lane of changed nodes. The caller must add the node to
// the workqueue afterwards.
func (q *Lanes) MarkChanged(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.isChanged[name] = true
}

// Touch implements workqueue.Queue: a queued node is added again.
func (q *Lanes) Touch(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if before := q.resync.Len(); q.isChanged[name] && q.elements[name] != nil {
		if q.resync.Remove(q.elements[name]); q.resync.Len() < before { // it was in this lane
			q.enqueue(name)
		}
	}
}

// Push implements workqueue.Queue.
func (q *Lanes) Push(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.enqueue(name)
}

func (q *Lanes) enqueue(name string) {
	lane := q.resync
	if q.isChanged[name] {
		lane = q.changed
	}
	q.elements[name] = lane.PushBack(name)
}

// Len implements workqueue.Queue.
func (q *Lanes) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changed.Len() + q.resync.Len()
}

// Pop implements workqueue.Queue.
func (q *Lanes) Pop() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	lane := q.changed
	if q.changed.Len() == 0 || q.resync.Len() > 0 && q.inARow == maxChangedInARow {
		lane, q.inARow = q.resync, 0
	} else if q.resync.Len() > 0 {
		q.inARow++
	}
	name := lane.Remove(lane.Front()).(string)
	delete(q.elements, name)
	if lane == q.changed {
		delete(q.isChanged, name)
	}
	return name
}

// New returns a workqueue that uses these lanes. A node that is added with a rate limit
// waits for retryFirst, and then exponentially longer up to retryMax.
func New(c clock.WithTicker, lanes *Lanes, retryFirst, retryMax time.Duration) workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryMax),
		workqueue.TypedRateLimitingQueueConfig[string]{DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[string]{Clock: c, Queue: workqueue.NewTypedWithConfig(
				workqueue.TypedQueueConfig[string]{Clock: c, Queue: lanes})})})
}
