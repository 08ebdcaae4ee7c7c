// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// closedWorld is a world of closed nodes. The tests change what writes do.
type closedWorld struct {
	*world
	mu   sync.Mutex
	what func(node string) error
}

func newClosedWorld(t *testing.T, nodes int) *closedWorld {
	w := &closedWorld{world: newWorld(t, controllertest.Gate("gate")), what: func(string) error { return nil }}
	w.closeAll(nodes)
	w.fail = func(node string) error {
		w.mu.Lock()
		what := w.what
		w.mu.Unlock()
		return what(node)
	}
	return w
}

func (w *closedWorld) closeAll(nodes int) {
	w.add(nodes, func(_ int, n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
}

func (w *closedWorld) writes(what func(node string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.what = what
}

// hasEnded returns the error that Start has returned, or nil.
func (w *closedWorld) hasEnded() error {
	select {
	case err := <-w.ended:
		return err
	default:
		return nil
	}
}

// One stuck worker ends the process, even if the others work.
func TestStuckWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClosedWorld(t, 100)
		release := make(chan struct{})
		var once sync.Once
		var stuck string
		w.writes(func(node string) error {
			once.Do(func() { stuck = node })
			if node == stuck {
				<-release
			}
			return nil
		})
		stop := w.start(logr.Discard(), interceptor.Funcs{})
		defer stop()
		defer close(release)
		controllertest.Pass(stuckChecks*watchdogInterval - time.Second)
		if err := w.hasEnded(); err != nil {
			t.Errorf("ended too early: %v", err)
		}
		controllertest.Pass(2*watchdogInterval + time.Second)
		if err := w.hasEnded(); err == nil || !strings.Contains(err.Error(), stuck) {
			t.Errorf("a worker is stuck at %s, and Start returned: %v", stuck, err)
		}
	})
}

// An API server that does not respond, and a long queue, do not end the process: writes
// time out.
func TestSlowWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClosedWorld(t, 2000)
		w.writes(func(string) error { <-time.After(writeTimeout); return write.ErrUnanswered })
		stop := w.start(logr.Discard(), interceptor.Funcs{})
		defer stop()
		controllertest.Pass(20 * time.Minute)
		if err := w.hasEnded(); err != nil {
			t.Errorf("ended: %v", err)
		}
	})
}

func TestLeaderWithoutResponsesGivesUp(t *testing.T) {
	noResponse := fmt.Errorf("patching node: %w", write.ErrUnanswered)
	denied := fmt.Errorf("patching node: %w", write.ErrDenied)
	failed := fmt.Errorf("patching node: %w", apierrors.NewInternalError(errors.New("failed calling webhook")))
	unsent := fmt.Errorf("patching node: %w", write.ErrUnsent)
	for name, c := range map[string]struct {
		alone         bool // without leader election
		first, second error
		want          bool
	}{
		"success, then no response":            {first: nil, second: noResponse, want: true},
		"success":                              {first: nil, second: nil},
		"never a response":                     {first: noResponse, second: noResponse},
		"success, then denied":                 {first: nil, second: denied},
		"denied, then no response":             {first: denied, second: noResponse, want: true},
		"success, then a webhook fails":        {first: nil, second: failed},
		"a webhook fails, then no response":    {first: failed, second: noResponse, want: true},
		"success, then nothing is sent":        {first: nil, second: unsent},
		"nothing is sent, then no response":    {first: unsent, second: noResponse},
		"no response, then success":            {first: noResponse, second: nil},
		"no response, without leader election": {alone: true, first: nil, second: noResponse},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClosedWorld(t, 20)
				w.giveUpLease = !c.alone
				w.writes(func(string) error { return c.first })
				stop := w.start(logr.Discard(), interceptor.Funcs{})
				defer stop()
				controllertest.Pass(time.Minute)
				w.writes(func(string) error { return c.second })
				w.closeAll(20)
				w.c.GatesChanged() // enqueues all nodes
				controllertest.Pass(write.NoResponseTimeout - watchdogInterval)
				if err := w.hasEnded(); err != nil {
					t.Errorf("ended too early: %v", err)
				}
				controllertest.Pass(2*write.NoResponseTimeout + watchdogInterval)
				if err := w.hasEnded(); (err != nil) != c.want {
					t.Errorf("ended: %v, want it to end: %t", err, c.want)
				}
			})
		})
	}
}

// The answer of one patch is lost, and the watch delivers its effect, so nothing is written
// afterwards.
func TestLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClosedWorld(t, 1)
		w.giveUpLease = true
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		lost := 0
		w.writes(func(string) error { lost++; return write.ErrUnanswered })
		w.closeAll(1)
		w.c.NodeChanged("n0000", gate.Everything())
		controllertest.Pass(time.Millisecond)
		w.writes(nil)
		w.change("n0000", func(n *gate.Node) { isOpen(n, "gate"); n.Taints = nil })
		before := w.written()
		controllertest.Pass(5 * write.NoResponseTimeout)
		if err := w.hasEnded(); err != nil {
			t.Errorf("ended: %v", err)
		}
		if lost == 0 || w.written() != before {
			t.Errorf("%d answers were lost, and %d patches followed; want some, and none", lost, w.written()-before)
		}
	})
}

// Patches of one node hang, so that each fails long after other nodes' patches have been answered.
// The process ends only if they are no longer answered.
func TestOneNodeWithoutResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClosedWorld(t, 2)
		w.giveUpLease = true
		w.hangs("n0000")
		defer w.start(logr.Discard(), dryRuns(context.DeadlineExceeded))()
		for range 5 * 60 {
			w.change("n0001", func(n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
			controllertest.Pass(time.Second)
			if err := w.hasEnded(); err != nil {
				t.Fatalf("ended although the last patch was answered a second ago: %v", err)
			}
		}
		controllertest.Pass(write.NoResponseTimeout - time.Second)
		if err := w.hasEnded(); err != nil {
			t.Errorf("ended less than %s after the last answer: %v", write.NoResponseTimeout, err)
		}
		controllertest.Pass(10 * time.Minute) // until further patches have failed
		if w.hasEnded() == nil {
			t.Error("did not end without answers")
		}
	})
}

// Patches of some nodes hang, and nothing has to be written to the others. A webhook may answer for all
// nodes but one, and the next leader could not write that one either.
func TestNodesWhosePatchesHang(t *testing.T) {
	for name, c := range map[string]struct {
		nodes, hanging int
		// dryRun is the result of a patch in a dry run.
		dryRun error
		want   bool
	}{
		"one node, and another one's patch succeeds":        {nodes: 3, hanging: 1},
		"one node, and another one's patch is denied":       {nodes: 3, hanging: 1, dryRun: controllertest.DeniedBy("some-policy")},
		"one node, and another one's patch is not answered": {nodes: 3, hanging: 1, dryRun: context.DeadlineExceeded, want: true},
		"the only node":      {nodes: 1, hanging: 1, want: true},
		"two of three nodes": {nodes: 3, hanging: 2, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClosedWorld(t, c.nodes)
				w.giveUpLease = true
				defer w.start(logr.Discard(), dryRuns(c.dryRun))()
				controllertest.Pass(time.Minute)
				hanging := []string{"n0000", "n0001"}[:c.hanging]
				w.hangs(hanging...)
				for _, node := range hanging {
					w.change(node, func(n *gate.Node) { isClosed(n, "gate", v1alpha1.ReasonBirth) })
				}
				controllertest.Pass(10 * time.Minute)
				if err := w.hasEnded(); (err != nil) != c.want {
					t.Errorf("ended: %v, want it to end: %t", err, c.want)
				}
			})
		})
	}
}

// hangs makes the patches of these nodes hang.
func (w *closedWorld) hangs(nodes ...string) {
	w.writes(func(node string) error {
		if slices.Contains(nodes, node) {
			<-time.After(writeTimeout)
			return write.ErrUnanswered
		}
		return nil
	})
}

// dryRuns makes a client return this result for patches of nodes that change nothing.
func dryRuns(result error) interceptor.Funcs {
	return interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, o ...client.PatchOption) error {
		if _, ok := obj.(*corev1.Node); ok {
			return result
		}
		return c.Patch(ctx, obj, p, o...)
	}}
}
