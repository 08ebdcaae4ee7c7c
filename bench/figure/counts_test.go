// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// counting returns the gate with these counts in its status.
func counting(selected, open int64) *unstructured.Unstructured {
	nodes := map[string]any{"selected": selected, "open": open}
	return &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"nodes": nodes}}}
}

// All nodes are verified when all are counted, and counted as open.
func TestAwaitCount(t *testing.T) {
	for name, c := range map[string]struct {
		states []*unstructured.Unstructured // one each second
		want   time.Duration                // 0 for never
	}{
		"all at once":           {[]*unstructured.Unstructured{{Object: map[string]any{}}, counting(50, 50)}, 2 * time.Second},
		"little by little":      {[]*unstructured.Unstructured{counting(20, 20), counting(50, 49), counting(50, 50)}, 3 * time.Second},
		"some remain closed":    {[]*unstructured.Unstructured{counting(50, 49)}, 0},
		"some are not selected": {[]*unstructured.Unstructured{counting(49, 49)}, 0},
		"no status":             {[]*unstructured.Unstructured{{Object: map[string]any{}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events, began := watch.NewFakeWithChanSize(len(c.states), false), time.Now()
				for i, state := range c.states {
					time.AfterFunc(time.Duration(i+1)*time.Second, func() { events.Modify(state) })
				}
				at, err := awaitCount(t.Context(), events, 50)
				if (err == nil) != (c.want > 0) || err == nil && at.Sub(began) != c.want {
					t.Errorf("after %s: %v, want %s", at.Sub(began), err, c.want)
				}
			})
		})
	}
}
