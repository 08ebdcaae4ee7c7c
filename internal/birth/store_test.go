// SPDX-License-Identifier: Apache-2.0

package birth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// rejecting is a Reconciler of 64 gates with entries in both parameters. The API server rejects
// one of them.
type rejecting struct {
	*Reconciler
	gates  []*v1alpha1.NodeGate
	set    atomic.Pointer[gateset.Set]
	writes atomic.Int32
	// allowed makes the API server accept all gates.
	allowed atomic.Bool
}

const refusedKey = "example.com/refused"

// newRejecting starts to reconcile. Each write of a parameter takes this long. It must be called
// in a synctest bubble.
func newRejecting(t *testing.T, each time.Duration) *rejecting {
	r := &rejecting{}
	refused := func(t corev1.Toleration) bool { return t.Key == refusedKey }
	write := func(ctx context.Context, obj client.Object) error {
		p, is := obj.(*corev1.PodTemplate)
		if !is {
			return nil
		}
		r.writes.Add(1)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(each):
		}
		if !r.allowed.Load() && slices.ContainsFunc(p.Template.Spec.Tolerations, refused) {
			return apierrors.NewForbidden(corev1.Resource("podtemplates"), p.Name, errors.New("not this taint"))
		}
		return nil
	}
	r.Reconciler = New(controllertest.Client(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			if err := write(ctx, obj); err != nil {
				return err
			}
			return controllertest.PolicyOf(ctx, c, obj, o...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.UpdateOption) error {
			if err := write(ctx, obj); err != nil {
				return err
			}
			return c.Update(ctx, obj, o...)
		},
	}), "nodegate-system", logr.Discard())
	for i := range 64 {
		ng := tolerating(fmt.Sprintf("gate-%02d", i))
		ng.Spec.NodeSelector.MatchLabels = map[string]string{"pool": ng.Name} // each has a probe of its own
		r.gates = append(r.gates, ng)
	}
	r.gates[40].Spec.Taint.Key = refusedKey
	r.declare()
	go r.Run(t.Context(), clock.RealClock{}, &r.set)
	return r
}

func (r *rejecting) declare() {
	r.set.Store(gateset.New(&gateset.Set{}, gateset.Snapshot{Source: v1alpha1.SourceCRD, Gates: r.gates, Complete: true}, gate.KeyPolicy{}))
	r.Changed()
}

// wantEntries checks the number of entries of both parameters.
func (r *rejecting) wantEntries(t *testing.T, when string, want int) {
	t.Helper()
	for _, name := range []string{v1alpha1.BirthParameter, v1alpha1.TolerationsParameter} {
		var p corev1.PodTemplate
		if err := r.client.Get(t.Context(), client.ObjectKey{Namespace: "nodegate-system", Name: name}, &p); err != nil {
			t.Errorf("%s: %v", when, err)
		} else if got := len(p.Template.Spec.Tolerations); got != want {
			t.Errorf("%s: %s has %d entries, want %d", when, name, got, want)
		}
	}
}

// A rejected entry is searched for every BirthLater, not whenever the gates are reconciled. It
// is reported all the time, and written as soon as it changes.
func TestRejectedEntryIsRememberedForSomeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRejecting(t, 0)
		bad := r.gates[40]
		controllertest.Pass(10 * time.Second)
		for range 50 {
			controllertest.Pass(time.Second)
			for _, err := range []error{r.Proved(bad), r.TolerationsError(bad.Name)} {
				if err == nil || !strings.Contains(err.Error(), "not this taint") {
					t.Fatalf("the rejected gate: %v", err)
				}
			}
		}
		const search = 16 // requests to find one of 64 entries, and to write the others
		if n := r.writes.Load(); n > 2*4*search {
			t.Errorf("%d writes in a minute, want at most %d", n, 2*4*search)
		}
		r.wantEntries(t, "with a rejected entry", 63)

		edited := bad.DeepCopy()
		edited.Generation, edited.Spec.Taint.Key = 2, "example.com/other"
		r.gates[40] = edited
		r.declare()
		controllertest.Pass(time.Second)
		r.wantEntries(t, "after it was edited", 64)

		r.gates[40] = bad
		r.declare()
		controllertest.Pass(time.Second)
		r.wantEntries(t, "after it was edited again", 63)
		r.allowed.Store(true)
		controllertest.Pass(2 * BirthLater)
		r.wantEntries(t, "after it was allowed", 64)
		if err := r.TolerationsError(bad.Name); err != nil {
			t.Errorf("after it was allowed: %v", err)
		}
	})
}

// The search for a rejected entry may take longer than a request.
func TestRejectedEntryOnASlowAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRejecting(t, 400*time.Millisecond)
		controllertest.Pass(20 * time.Second)
		r.wantEntries(t, "after 20 seconds", 63)
	})
}
