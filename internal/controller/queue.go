// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"container/list"
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// maxChangedInARow is how many changed nodes are processed in a row while
// others wait. It keeps those that wait from doing so for ever.
const maxChangedInARow = 8

// lanes is the order in which nodes are taken from the queue: those of which
// there is news before those that are only looked at again, because gates have
// changed, time has passed or a write is to be tried again. Of the latter there
// may be a whole fleet at the same moment. (controller-runtime's priority queue
// would have them wait for as long as there is news of any node.) The queue calls
// its methods under a lock of its own.
type laneQueue struct {
	mu sync.Mutex
	// marked are changed nodes that have not been processed yet.
	isChanged map[string]bool
	// news and others are the nodes that wait, first come first served, and places
	// is where each of them waits.
	changed, resync *list.List
	elements        map[string]*list.Element
	// row counts how many news were taken up in a row while others waited.
	inARow int
}

var _ workqueue.Queue[string] = (*laneQueue)(nil)

func newLaneQueue() *laneQueue {
	return &laneQueue{isChanged: make(map[string]bool), changed: list.New(), resync: list.New(), elements: make(map[string]*list.Element)}
}

// mark tells that there is news of a node. It is to be added to the queue then.
func (l *laneQueue) markChanged(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isChanged[name] = true
}

// Touch implements workqueue.Queue: a node that waits is added again.
func (l *laneQueue) Touch(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if waits := l.resync.Len(); l.isChanged[name] && l.elements[name] != nil {
		if l.resync.Remove(l.elements[name]); l.resync.Len() < waits { // it was not among the news
			l.enqueue(name)
		}
	}
}

// Push implements workqueue.Queue.
func (l *laneQueue) Push(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enqueue(name)
}

func (l *laneQueue) enqueue(name string) {
	lane := l.resync
	if l.isChanged[name] {
		lane = l.changed
	}
	l.elements[name] = lane.PushBack(name)
}

// Len implements workqueue.Queue.
func (l *laneQueue) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed.Len() + l.resync.Len()
}

// Pop implements workqueue.Queue.
func (l *laneQueue) Pop() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lane := l.changed
	if l.changed.Len() == 0 || l.resync.Len() > 0 && l.inARow == maxChangedInARow {
		lane, l.inARow = l.resync, 0
	} else if l.resync.Len() > 0 {
		l.inARow++
	}
	name := lane.Remove(lane.Front()).(string)
	delete(l.elements, name)
	if lane == l.changed {
		delete(l.isChanged, name)
	}
	return name
}

// newNodeQueue returns a workqueue with the order of a priorityQueue.
func newNodeQueue(o *Options, order *laneQueue) workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryMax),
		workqueue.TypedRateLimitingQueueConfig[string]{DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[string]{Clock: o.Clock, Queue: workqueue.NewTypedWithConfig(
				workqueue.TypedQueueConfig[string]{Clock: o.Clock, Queue: order})})})
}
