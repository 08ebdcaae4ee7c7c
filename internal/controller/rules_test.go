// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// A rule of another controller that comes to manage a gate's taint is found out about
// within a minute, and one that goes likewise. While no rule changes nobody looks at
// nodes because of that, but for once in refreshInterval.
func TestRulesAreFollowed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const fleet = 50
		w := newWorld(t, testGate("gate"))
		w.add(fleet, func(_ int, n *gate.Node) { isOpen(n, "gate") })
		var managed atomic.Bool
		funcs := allowing(nil)
		others := funcs.List
		funcs.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			rules, is := list.(*unstructured.UnstructuredList)
			switch {
			case !is && others != nil:
				return others(ctx, c, list, options...)
			case !is:
				return c.List(ctx, list, options...)
			case managed.Load():
				rules.Items = []unstructured.Unstructured{{Object: map[string]any{
					"metadata": map[string]any{"name": "rule"},
					"spec":     map[string]any{"taint": map[string]any{"key": testKey}},
				}}}
			}
			return nil
		}
		defer w.start(logr.Discard(), funcs)()
		accepted := func() bool {
			return meta.IsStatusConditionTrue(w.stored("gate").Status.Conditions, v1alpha1.ConditionAccepted)
		}
		pass(10 * time.Second)
		w.mu.Lock()
		before := w.looks
		w.mu.Unlock()
		pass(refreshInterval + rulesInterval)
		w.mu.Lock()
		looks := w.looks - before
		w.mu.Unlock()
		if looks < fleet || looks > 2*fleet {
			t.Errorf("%d nodes were looked at %d times in %s, want once each", fleet, looks, refreshInterval+rulesInterval)
		}
		for _, now := range []bool{true, false} {
			managed.Store(now)
			pass(rulesInterval + 5*time.Second)
			if accepted() == now {
				t.Errorf("accepted: %t, while a rule manages its taint: %t", accepted(), now)
			}
		}
	})
}
