// SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/go-logr/logr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/boundpods"
)

func always() bool { return true }

// Nodes that need no longer be inspected when it is their turn are dropped, except those that were
// closed because they were idle.
func TestInspectionsThatAreNoLongerNeeded(t *testing.T) {
	i := NewInspector(nil, nil, logr.Discard())
	now := time.Now()
	never := func() bool { return false }
	for node, dropped := range map[string]bool{"needed": false, "not needed": true, "closed": false, "closed since": false, "closed before": false} {
		switch node {
		case "needed":
			i.Ask(node, now, always, false)
		case "closed since":
			i.Ask(node, now, never, false)
			i.Ask(node, now, nil, false)
		case "closed":
			i.Ask(node, now, nil, false)
		case "closed before":
			i.Ask(node, now, nil, false)
			i.Ask(node, now, never, false)
		default:
			i.Ask(node, now, never, false)
		}
		if got := i.drop(node); got != dropped {
			t.Errorf("%s: dropped %v, want %v", node, got, dropped)
		}
	}
	if i.Ask("not needed", now, always, false); !i.waiting["not needed"] || len(i.needed) != 1 {
		t.Errorf("the node that was dropped is not inspected when it is needed: %v, %d", i.waiting, len(i.needed))
	}
}

// Nodes that only dry runs need are inspected last.
func TestDryRunsAreInspectedLast(t *testing.T) {
	i := NewInspector(nil, nil, logr.Discard())
	now := time.Now()
	for _, node := range []string{"dry1", "dry2", "both"} {
		i.Ask(node, now, always, true)
	}
	i.Ask("a", now, always, false)
	i.Ask("both", now, always, false)
	i.Ask("a", now, always, true)
	var order []string
	for node, ok := i.next(); ok; node, ok = i.next() {
		order = append(order, node)
	}
	if want := []string{"a", "both", "dry1", "dry2"}; !slices.Equal(order, want) {
		t.Errorf("inspected in the order %v, want %v", order, want)
	}
}

// A node is not considered to be idle because of an old list of its pods.
func TestOldListsAreNotUsed(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	i := NewInspector(NewPodLister(nil, clock), nil, logr.Discard())
	for age, used := range map[time.Duration]bool{listValid: true, listValid + time.Second: false} {
		i.note("n", &gate.PodList{At: clock.Now().Add(-age)}, nil)
		if list := i.Take("n"); (list != nil) != used {
			t.Errorf("a list from %s ago is used: %v, want %v", age, list != nil, used)
		}
	}
}

// While nothing is decided, for example because Nodes cannot be read, lists that are too old to be used
// do not accumulate.
func TestOldListsAreNotKept(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	i := NewInspector(NewPodLister(nil, clock), nil, logr.Discard())
	for n := range 100 {
		i.note(fmt.Sprint("n", n), &gate.PodList{At: clock.Now()}, nil)
		clock.SetTime(clock.Now().Add(listValid / 3))
	}
	if len(i.lists) > 4 || i.Take("n99") == nil {
		t.Errorf("%d lists are kept", len(i.lists))
	}
}

// blockingPods lists no pods. Each list announces itself in began, and waits for answer.
type blockingPods struct {
	boundpods.Client
	began, answer chan struct{}
}

func (p *blockingPods) List(ctx context.Context, _ string) ([]gate.BoundPod, error) {
	p.began <- struct{}{}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.answer:
		return nil, nil
	}
}

// Lists are not concurrent, and a caller that waits for another list can give up.
func TestPodsOfOneNodeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 3
		pods := &blockingPods{began: make(chan struct{}, callers), answer: make(chan struct{})}
		lister := NewPodLister(pods, clock.RealClock{})
		results := make(chan error, callers)
		for range callers {
			go func() {
				_, err := lister.list(t.Context(), "n")
				results <- err
			}()
		}
		for range callers {
			controllertest.Pass(time.Second) // for the rate limit
			if n := len(pods.began); n != 1 {
				t.Fatalf("%d lists are in progress, want 1", n)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := lister.list(ctx, "n"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a list whose context has ended: %v", err)
			}
			cancel()
			<-pods.began
			pods.answer <- struct{}{}
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		go func() { _, err := lister.list(t.Context(), "n"); results <- err }()
		if err := <-results; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a list without an answer: %v", err)
		}
	})
}

// Bypassed pods are no longer processed once the gate is not enforced.
func TestPauseEndsEvictions(t *testing.T) {
	for _, mode := range []v1alpha1.Mode{v1alpha1.ModePaused, v1alpha1.ModeDryRun} {
		set := gateset.New(&gateset.Set{}, gateset.Snapshot{Gates: []*v1alpha1.NodeGate{controllertest.Gate("gate", func(s *v1alpha1.NodeGateSpec) { s.Mode, s.BypassedPods = mode, v1alpha1.BypassedEvict })}}, gate.KeyPolicy{})
		node := gate.Node{Name: "n0000", UID: "uid-of-n0000", BootID: "boot", Records: map[string]string{"gate": gate.Record{State: v1alpha1.StateOpen}.String()}}
		b := New(Options{
			Gates: func() *gateset.Set { return set }, Clock: clock.RealClock{},
			Facts: func(string) (gate.Facts, bool) { return gate.Facts{Node: node}, true },
		})
		o := &opening{uid: "uid-of-n0000", boot: "boot", closure: gate.Closure{Until: time.Now()}}
		if _, _, is := b.current(key{node: "n0000", gate: "gate"}, o); is != obsolete || set.HandlesBypassed("gate") {
			t.Errorf("mode %s: bypassed pods are still processed", mode)
		}
		set.Declared["gate"].Spec.Mode = ""
		if _, _, is := b.current(key{node: "n0000", gate: "gate"}, o); is != current || !set.HandlesBypassed("gate") {
			t.Error("enforced: bypassed pods are not processed")
		}
	}
}
