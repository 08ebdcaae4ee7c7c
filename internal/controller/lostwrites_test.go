// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// silentWriter does not answer the first writes.
type silentWriter struct {
	*world
	// carries specifies, for each write without an answer, whether it is carried out.
	carries []bool
	// late is true if the feed reports what was carried out only when the node is read.
	late bool
}

func (u *silentWriter) Apply(ctx context.Context, n *gate.Node, d *gate.Decision) (*corev1.Node, error) {
	u.mu.Lock()
	if len(u.carries) == 0 {
		u.mu.Unlock()
		return u.world.Apply(ctx, n, d)
	}
	carry := u.carries[0]
	u.carries = u.carries[1:]
	before := u.nodes[n.Name]
	u.mu.Unlock()
	if carry {
		if _, err := u.world.Apply(ctx, n, d); err != nil {
			return nil, err
		}
	}
	if carry && u.late {
		u.mu.Lock()
		u.stale = map[string]gate.Node{n.Name: before}
		u.mu.Unlock()
	}
	return nil, fmt.Errorf("patching: %w", write.ErrUnanswered)
}

// Transitions are reported once, also if the API server carried out their write without an
// answer, at the first attempt or at a later one.
func TestTransitionsOfUnansweredWritesAreReported(t *testing.T) {
	for name, carries := range map[string][]bool{
		"carried out":                             {true},
		"not carried out":                         {false},
		"carried out, and then unreachable":       {true, false, false, false},
		"carried out when it was reachable again": {false, false, true},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, late %t", name, late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testUnansweredTransitions(t, carries, late) })
			})
		}
	}
}

func testUnansweredTransitions(t *testing.T, carries []bool, late bool) {
	w := newWorld(t, controllertest.Gate("gate", budget("1"), withBypassedPods(v1alpha1.BypassedReport)))
	w.add(1, func(_ int, n *gate.Node) { delete(n.Labels, "fit"); isClosed(n, "gate", v1alpha1.ReasonBirth) })
	u := &silentWriter{world: w, late: late}
	w.writer, w.pods = u, newNodePods()
	var log controllertest.LogLines
	defer w.start(log.Logger(), interceptor.Funcs{})()
	controllertest.Pass(5 * time.Second)
	lose := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		u.carries = carries
	}

	lose()
	w.change("n0000", func(n *gate.Node) { n.Labels["fit"] = "" })
	controllertest.Pass(time.Second)
	if w.closed() != 0 || w.c.bypass.Waiting() != 1 {
		t.Errorf("%d nodes are closed, and %d openings are searched for bypassed pods; want none and 1", w.closed(), w.c.bypass.Waiting())
	}
	if n := testutil.CollectAndCount(w.c.metrics.TimeToOpen); n != 1 {
		t.Errorf("%d times to open, want 1", n)
	}
	controllertest.Pass(time.Minute)

	lose()
	w.change("n0000", func(n *gate.Node) { delete(n.Labels, "fit") })
	controllertest.Pass(10 * time.Second)
	if w.closed() != 1 {
		t.Errorf("%d nodes are closed, want 1", w.closed())
	}
	for what, counted := range map[string]float64{
		"opened": testutil.ToFloat64(w.c.metrics.Opens.WithLabelValues("gate", string(v1alpha1.ReasonSignalsHold))),
		"closed": testutil.ToFloat64(w.c.metrics.Closes.WithLabelValues("gate", string(v1alpha1.ReasonRegression))),
	} {
		if lines := strings.Count(strings.Join(log.All(), "\n"), `"gate `+what+`"`); lines != 1 || counted != 1 {
			t.Errorf("%s %d times in the log and %v in metrics, want once", what, lines, counted)
		}
	}
}
