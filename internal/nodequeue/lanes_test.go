// SPDX-License-Identifier: Apache-2.0

package nodequeue

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	"pgregory.net/rapid"
)

// Changed nodes are processed next, even if thousands of nodes wait to be reconciled
// again, and even if they were already in the queue.
func TestChangedNodesGoFirst(t *testing.T) {
	const fleet = 5000
	synctest.Test(t, func(t *testing.T) {
		order := NewLanes()
		q := New(clock.RealClock{}, order, time.Millisecond, time.Second)
		defer q.ShutDown()
		changed := func(name string) { order.MarkChanged(name); q.Add(name) }
		take := func() string { name, _ := q.Get(); q.Done(name); return name }
		for _, name := range names(fleet) {
			q.AddAfter(name, time.Minute) // all at the same moment
		}
		<-time.After(2 * time.Minute)
		synctest.Wait()
		changed("new")
		changed("n4999") // already queued
		if got := []string{take(), take()}; !slices.Equal(got, []string{"new", "n4999"}) {
			t.Errorf("%v were returned first, want new and n4999", got)
		}
		returned := map[string]bool{"n4999": true}
		for q.Len() > 0 {
			name := take()
			if returned[name] {
				t.Errorf("%s was returned twice", name)
			}
			returned[name] = true
		}
		if len(returned) != fleet {
			t.Errorf("%d of %d nodes were returned", len(returned), fleet)
		}
	})
}

// Continuous changes do not starve nodes of the other lane.
func TestChangedNodesDoNotStarveOthers(t *testing.T) {
	l := NewLanes()
	l.Push("old")
	for i := range maxChangedInARow + 1 {
		name := fmt.Sprint(i)
		l.MarkChanged(name)
		l.Push(name)
		if l.Pop() == "old" {
			if i < maxChangedInARow {
				t.Errorf("returned after %d changed nodes, want %d", i, maxChangedInARow)
			}
			return
		}
	}
	t.Errorf("not returned after %d changed nodes", maxChangedInARow+1)
}

// Every node is queued once and returned once, in order within its lane.
func TestQueueLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLanes()
		var changed, resync []string
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "name")
			isChanged := rapid.Bool().Draw(t, "changed")
			switch queued := slices.Contains(changed, name) || slices.Contains(resync, name); {
			case rapid.IntRange(0, 2).Draw(t, "pop") == 0 && l.Len() > 0:
				switch got := l.Pop(); {
				case len(changed) > 0 && got == changed[0]:
					changed = changed[1:]
				case len(resync) > 0 && got == resync[0]:
					resync = resync[1:]
				default:
					t.Fatalf("step %d: got %s, want the first of the lanes %v or %v", i, got, changed, resync)
				}
			case queued:
				if isChanged {
					l.MarkChanged(name)
				}
				if l.Touch(name); isChanged && slices.Contains(resync, name) {
					resync = slices.DeleteFunc(resync, func(n string) bool { return n == name })
					changed = append(changed, name)
				}
			case isChanged:
				l.MarkChanged(name)
				l.Push(name)
				changed = append(changed, name)
			default:
				l.Push(name)
				resync = append(resync, name)
			}
			if l.Len() != len(changed)+len(resync) {
				t.Fatalf("step %d: %d nodes are queued, want the lanes %v and %v", i, l.Len(), changed, resync)
			}
		}
	})
}
