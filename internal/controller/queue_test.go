// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// Changed nodes are processed next, even if thousands of nodes wait to be reconciled
// again, and even if they were already in the queue.
func TestChangedNodesGoFirst(t *testing.T) {
	const fleet = 5000
	synctest.Test(t, func(t *testing.T) {
		order := newLaneQueue()
		q := newNodeQueue(&Options{Clock: clock.RealClock{}}, order)
		defer q.ShutDown()
		changed := func(name string) { order.markChanged(name); q.Add(name) }
		take := func() string { name, _ := q.Get(); q.Done(name); return name }
		for _, name := range names(fleet) {
			q.AddAfter(name, time.Minute) // all at the same moment
		}
		controllertest.Pass(2 * time.Minute)
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
	l := newLaneQueue()
	l.Push("old")
	for i := range maxChangedInARow + 1 {
		name := fmt.Sprint(i)
		l.markChanged(name)
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
		l := newLaneQueue()
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
					l.markChanged(name)
				}
				if l.Touch(name); isChanged && slices.Contains(resync, name) {
					resync = slices.DeleteFunc(resync, func(n string) bool { return n == name })
					changed = append(changed, name)
				}
			case isChanged:
				l.markChanged(name)
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

// While thousands of nodes are reconciled because a gate has changed, each of them for a
// second, a node whose label is added is opened by the next free worker.
func TestNodeOpensDuringAResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(5000, func(_ int, n *gate.Node) {
			delete(n.Labels, "fit")
			isClosed(n, "gate", v1alpha1.ReasonBirth)
		})
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		w.fail = func(string) error { <-time.After(time.Second); return nil }
		edited := controllertest.Gate("gate", func(s *v1alpha1.NodeGateSpec) { s.Taint.Value = "edited" })
		edited.Generation++
		w.setGates(true, edited)
		controllertest.Pass(2500 * time.Millisecond)
		before := w.written()
		w.change("n4999", func(n *gate.Node) { n.Labels["fit"] = "" })
		began := time.Now()
		for !slices.Contains(w.writesFrom(before), "n4999") {
			controllertest.Pass(100 * time.Millisecond)
			if waited := time.Since(began); waited > time.Minute {
				t.Fatalf("not opened within %s", waited)
			}
		}
		if waited := time.Since(began); waited > 2*time.Second+200*time.Millisecond {
			t.Errorf("opened after %s, want two seconds: until a worker is free, and its write", waited)
		}
		if left := 5000 - w.written(); left < 4000 {
			t.Errorf("only %d nodes were waiting meanwhile, want thousands", left)
		}
	})
}
