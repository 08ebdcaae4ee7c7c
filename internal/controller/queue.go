// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"container/list"
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// maxChangedInARow is the number of changed nodes that are processed in a row while
// nodes of the other lane wait, so that these are not starved.
const maxChangedInARow = 8

// laneQueue is a workqueue.Queue with two lanes. Changed nodes come before nodes that are
// only reconciled again because gates have changed, time has passed or a write is
// retried. The second lane may contain a whole fleet at once. (controller-runtime's
// priority queue would starve it while there are changed nodes.) The workqueue calls the
// methods under a lock of its own.
type laneQueue struct {
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

var _ workqueue.Queue[string] = (*laneQueue)(nil)

func newLaneQueue() *laneQueue {
	return &laneQueue{isChanged: make(map[string]bool), changed: list.New(), resync: list.New(), elements: make(map[string]*list.Element)}
}

// markChanged makes a node use the lane of changed nodes. The caller must add the node to
// the workqueue afterwards.
func (q *laneQueue) markChanged(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.isChanged[name] = true
}

// Touch implements workqueue.Queue: a queued node is added again.
func (q *laneQueue) Touch(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if before := q.resync.Len(); q.isChanged[name] && q.elements[name] != nil {
		if q.resync.Remove(q.elements[name]); q.resync.Len() < before { // it was in this lane
			q.enqueue(name)
		}
	}
}

// Push implements workqueue.Queue.
func (q *laneQueue) Push(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.enqueue(name)
}

func (q *laneQueue) enqueue(name string) {
	lane := q.resync
	if q.isChanged[name] {
		lane = q.changed
	}
	q.elements[name] = lane.PushBack(name)
}

// Len implements workqueue.Queue.
func (q *laneQueue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changed.Len() + q.resync.Len()
}

// Pop implements workqueue.Queue.
func (q *laneQueue) Pop() string {
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

// newNodeQueue returns a rate-limiting workqueue that uses this order.
func newNodeQueue(o *Options, order *laneQueue) workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryMax),
		workqueue.TypedRateLimitingQueueConfig[string]{DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[string]{Clock: o.Clock, Queue: workqueue.NewTypedWithConfig(
				workqueue.TypedQueueConfig[string]{Clock: o.Clock, Queue: order})})})
}
