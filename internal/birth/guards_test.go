// SPDX-License-Identifier: Apache-2.0

package birth

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/telemetry"
)

// guarded proves guards against an API server whose answers the test sets.
type guarded struct {
	*GuardProber
	// answer is that to every probe of RecordsPolicy; the other guards reject theirs.
	answer atomic.Pointer[error]
	// took is how long the API server takes over each.
	took atomic.Int64
	// probes counts what was asked of RecordsPolicy.
	probes atomic.Int32
	log    controllertest.LogLines
}

func (g *guarded) answers(err error) { g.answer.Store(&err) }

// newGuarded begins to prove guards. It is for use in a synctest bubble.
func newGuarded(t *testing.T, nodes ...string) *guarded {
	g := &guarded{}
	g.answers(controllertest.DeniedBy(admission.RecordsPolicy))
	api := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return controllertest.DeniedBy(admission.ParametersPolicy)
		},
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return controllertest.DeniedBy(admission.AcknowledgePolicy)
		},
		Patch: func(ctx context.Context, _ client.WithWatch, obj client.Object, p client.Patch, _ ...client.PatchOption) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Duration(g.took.Load())):
			}
			if body, err := p.Data(obj); err != nil || strings.Contains(string(body), "labels") {
				return controllertest.DeniedBy(admission.ConfinementPolicy)
			}
			g.probes.Add(1)
			return *g.answer.Load()
		},
	}).Build()
	g.GuardProber = NewGuardProber(api, "nodegate-system", g.log.Logger(), telemetry.NewMetrics(prometheus.NewRegistry()))
	go g.Run(t.Context(), clock.RealClock{}, func() []string { return nodes }, func() []string { return []string{"gate"} })
	return g
}

func (g *guarded) want(t *testing.T, missing string, proved float64) {
	t.Helper()
	if got := g.Missing(); (got == "") != (missing == "") || !strings.Contains(got, missing) {
		t.Errorf("missing is %q, want %q", got, missing)
	}
	if got := testutil.ToFloat64(g.metrics.Guards.WithLabelValues(admission.RecordsPolicy)); got != proved {
		t.Errorf("nodegate_guard_proved is %v, want %v", got, proved)
	}
}

// A missing guard is reported after a minute and three probes, and not once
// it is back.
func TestGuardIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, "n1")
		controllertest.Pass(time.Second)
		g.want(t, "", 1)
		g.answers(nil)
		controllertest.Pass(time.Minute + guardTries*guardsSoon)
		g.want(t, "guard nodegate-records is not in force", 0)
		if missing := g.Missing(); strings.Contains(missing, admission.ConfinementPolicy) || strings.Contains(missing, admission.ParametersPolicy) {
			t.Errorf("others are missed too: %s", missing)
		}
		controllertest.Pass(time.Hour)
		g.answers(controllertest.DeniedBy(admission.RecordsPolicy))
		controllertest.Pass(guardsLater)
		g.want(t, "", 1)
		if lines := strings.Join(g.log.All(), "\n"); strings.Count(lines, "is not in force") != 2 || strings.Count(lines, `"guard is in force"`) != 5 { // once in the reason
			t.Errorf("logged is\n%s", lines)
		}
	})
}

// Neither one odd answer nor an API server that does not answer makes a guard missed
// or found.
func TestGuardIsNotMissedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, "n1")
		controllertest.Pass(time.Second)
		g.answers(errors.New("connection refused"))
		controllertest.Pass(time.Hour)
		g.want(t, "", 1)
		g.answers(nil)
		controllertest.Pass(time.Minute + guardTries*guardsSoon)
		g.answers(errors.New("connection refused"))
		controllertest.Pass(time.Hour)
		g.want(t, "not in force", 0)
	})
}

// What is not ours, and rejects the probe, hides whether the guard is there.
func TestGuardBehindAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, "n1")
		g.answers(controllertest.DeniedBy("no-annotations"))
		controllertest.Pass(time.Minute + guardTries*guardsSoon) // the first answer may have been another
		g.want(t, "'no-annotations'", 0)
	})
}

// Without any Node there is nothing to be guarded, and nothing to complain of.
func TestGuardsWithoutNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t)
		g.answers(nil)
		controllertest.Pass(time.Hour)
		if missing := g.Missing(); missing != "" || g.probes.Load() > 0 {
			t.Errorf("after %d probes: %s", g.probes.Load(), missing)
		}
	})
}

// Probes take at most a tenth of the time: a busy API server has better things to do.
func TestSlowGuards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, "n1")
		g.answers(nil)
		g.took.Store(int64(4 * time.Second)) // each of two
		controllertest.Pass(time.Hour)
		if most := int32(time.Hour / (80 * time.Second)); g.probes.Load() > most+1 || g.probes.Load() < most/2 {
			t.Errorf("%d probes in an hour, want some %d", g.probes.Load(), most)
		}
	})
}
