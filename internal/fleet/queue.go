// SPDX-License-Identifier: Apache-2.0

package fleet

import "container/list"

// queue contains nodes in order of arrival. Adding and removing take the same time in a long
// queue as in a short one: when a daemon fails everywhere, most of a fleet is queued, and every
// evaluation of a node adds it again. The zero value is an empty queue.
type queue struct {
	order list.List
	at    map[string]*list.Element
}

func (q *queue) len() int { return q.order.Len() }

// add adds a node at the end. A node that is queued keeps its position.
func (q *queue) add(node string) {
	if q.at[node] != nil {
		return
	}
	if q.at == nil {
		q.at = make(map[string]*list.Element)
	}
	q.at[node] = q.order.PushBack(node)
}

// remove removes a node, and reports whether it was queued.
func (q *queue) remove(node string) bool {
	e := q.at[node]
	if e == nil {
		return false
	}
	q.order.Remove(e)
	delete(q.at, node)
	return true
}

// first returns the first n nodes, or all if there are fewer.
func (q *queue) first(n int) (nodes []string) {
	for e := q.order.Front(); e != nil && len(nodes) < n; e = e.Next() {
		nodes = append(nodes, e.Value.(string))
	}
	return nodes
}

// isAmongFirst reports whether a node is one of the first n.
func (q *queue) isAmongFirst(n int, node string) bool {
	of := q.at[node]
	for e := q.order.Front(); of != nil && e != nil && n > 0; e, n = e.Next(), n-1 {
		if e == of {
			return true
		}
	}
	return false
}
