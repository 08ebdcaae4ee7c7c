// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"container/list"
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// newsInARow is how many changed nodes are processed in a row while
// others wait. It keeps those that wait from doing so for ever.
const newsInARow = 8

// lanes is the order in which nodes are taken from the queue: those of which
// there is news before those that are only looked at again, because gates have
// changed, time has passed or a write is to be tried again. Of the latter there
// may be a whole fleet at the same moment. (controller-runtime's priority queue
// would have them wait for as long as there is news of any node.) The queue calls
// its methods under a lock of its own.
type lanes struct {
	mu sync.Mutex
	// marked are changed nodes that have not been processed yet.
	marked map[string]bool
	// news and others are the nodes that wait, first come first served, and places
	// is where each of them waits.
	news, others *list.List
	places       map[string]*list.Element
	// row counts how many news were taken up in a row while others waited.
	row int
}

var _ workqueue.Queue[string] = (*lanes)(nil)

func newLanes() *lanes {
	return &lanes{marked: make(map[string]bool), news: list.New(), others: list.New(), places: make(map[string]*list.Element)}
}

// mark tells that there is news of a node. It is to be added to the queue then.
func (l *lanes) mark(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marked[name] = true
}

// Touch implements workqueue.Queue: a node that waits is added again.
func (l *lanes) Touch(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if waits := l.others.Len(); l.marked[name] && l.places[name] != nil {
		if l.others.Remove(l.places[name]); l.others.Len() < waits { // it was not among the news
			l.place(name)
		}
	}
}

// Push implements workqueue.Queue.
func (l *lanes) Push(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.place(name)
}

func (l *lanes) place(name string) {
	lane := l.others
	if l.marked[name] {
		lane = l.news
	}
	l.places[name] = lane.PushBack(name)
}

// Len implements workqueue.Queue.
func (l *lanes) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.news.Len() + l.others.Len()
}

// Pop implements workqueue.Queue.
func (l *lanes) Pop() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lane := l.news
	if l.news.Len() == 0 || l.others.Len() > 0 && l.row == newsInARow {
		lane, l.row = l.others, 0
	} else if l.others.Len() > 0 {
		l.row++
	}
	name := lane.Remove(lane.Front()).(string)
	delete(l.places, name)
	if lane == l.news {
		delete(l.marked, name)
	}
	return name
}

// newNodeQueue returns a workqueue with the order of a priorityQueue.
func newNodeQueue(o *Options, order *lanes) workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryMax),
		workqueue.TypedRateLimitingQueueConfig[string]{DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[string]{Clock: o.Clock, Queue: workqueue.NewTypedWithConfig(
				workqueue.TypedQueueConfig[string]{Clock: o.Clock, Queue: order})})})
}
