// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// closedWorld is a world of closed nodes, whose writes take and fail as it is said at the
// time.
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

// hasEnded returns what Start ended with, or nil if it goes on.
func (w *closedWorld) hasEnded() error {
	select {
	case err := <-w.ended:
		return err
	default:
		return nil
	}
}

// One worker that is stuck ends the process, though the others work.
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
			t.Errorf("ended early: %v", err)
		}
		controllertest.Pass(2*watchdogInterval + time.Second)
		if err := w.hasEnded(); err == nil || !strings.Contains(err.Error(), stuck) {
			t.Errorf("a worker is stuck at %s: %v", stuck, err)
		}
	})
}

// An API server that answers nothing, and a queue that is long, are no reason to end: a
// write ends with its time.
func TestSlowWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClosedWorld(t, 2000)
		w.writes(func(string) error { <-time.After(writeTimeout); return errors.New("no answer") })
		stop := w.start(logr.Discard(), interceptor.Funcs{})
		defer stop()
		controllertest.Pass(20 * time.Minute)
		if err := w.hasEnded(); err != nil {
			t.Errorf("ended: %v", err)
		}
	})
}

func TestLeaderWithoutResponsesGivesUp(t *testing.T) {
	noAnswer := fmt.Errorf("patching node: %w", context.DeadlineExceeded)
	denied := fmt.Errorf("patching node: %w", write.ErrDenied)
	for name, c := range map[string]struct {
		alone         bool // leads without a lease
		first, second error
		want          bool
	}{
		"could, and cannot any more":      {first: nil, second: noAnswer, want: true},
		"goes on":                         {first: nil, second: nil},
		"never could":                     {first: noAnswer, second: noAnswer},
		"may not, which is an answer":     {first: nil, second: denied},
		"is told why, then has no answer": {first: denied, second: noAnswer, want: true},
		"could not, and can":              {first: noAnswer, second: nil},
		"has nobody to give the lease to": {alone: true, first: nil, second: noAnswer},
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
				w.c.GatesChanged() // has all looked at
				controllertest.Pass(noResponseTimeout - watchdogInterval)
				if err := w.hasEnded(); err != nil {
					t.Errorf("ended too soon: %v", err)
				}
				controllertest.Pass(2*noResponseTimeout + watchdogInterval)
				if err := w.hasEnded(); (err != nil) != c.want {
					t.Errorf("ended: %v, want %v", err, c.want)
				}
			})
		})
	}
}
