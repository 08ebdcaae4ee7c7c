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

// guarded is a GuardProber with a fake API server.
type guarded struct {
	*GuardProber
	// answer is the answer to every probe of RecordsPolicy. The other guards reject theirs,
	// except AcknowledgePolicy if allowed is set.
	answer  atomic.Pointer[error]
	allowed atomic.Bool
	// withoutGates is set if there is no NodeGate.
	withoutGates atomic.Bool
	// took is the time that the API server needs for each probe of Nodes, and tookOthers that
	// for each of the others.
	took, tookOthers atomic.Int64
	// probes counts the probes of RecordsPolicy.
	probes atomic.Int32
	log    controllertest.LogLines
}

func (g *guarded) answers(err error) { g.answer.Store(&err) }

// newGuarded starts to probe guards. It must be called in a synctest bubble.
func newGuarded(t *testing.T, nodes ...string) *guarded {
	g := &guarded{}
	g.answers(controllertest.DeniedBy(admission.RecordsPolicy))
	api := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.CreateOption) error {
			if err := takes(ctx, g.tookOthers.Load()); err != nil {
				return err
			}
			return controllertest.DeniedBy(admission.ParametersPolicy)
		},
		SubResourcePatch: func(ctx context.Context, _ client.Client, _ string, _ client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
			if err := takes(ctx, g.tookOthers.Load()); err != nil {
				return err
			}
			if g.allowed.Load() {
				return nil
			}
			return controllertest.DeniedBy(admission.AcknowledgePolicy)
		},
		Patch: func(ctx context.Context, _ client.WithWatch, obj client.Object, p client.Patch, _ ...client.PatchOption) error {
			if err := takes(ctx, g.took.Load()); err != nil {
				return err
			}
			if body, err := p.Data(obj); err != nil || strings.Contains(string(body), "labels") {
				return controllertest.DeniedBy(admission.ConfinementPolicy)
			}
			g.probes.Add(1)
			return *g.answer.Load()
		},
	}).Build()
	g.GuardProber = NewGuardProber(api, "nodegate-system", g.log.Logger(), telemetry.NewMetrics(prometheus.NewRegistry()))
	go g.Run(t.Context(), clock.RealClock{}, func() []string { return nodes }, func() []string {
		if g.withoutGates.Load() {
			return nil
		}
		return []string{"gate"}
	})
	return g
}

// wantSeries checks the number of guards with series.
func (g *guarded) wantSeries(t *testing.T, want int) {
	t.Helper()
	if n := testutil.CollectAndCount(g.metrics.Guards); n != want {
		t.Errorf("%d guards have series of nodegate_guard_proved, want %d", n, want)
	}
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

// A missing guard is reported after a minute and three probes, until it is restored.
func TestMissingGuardIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, "n1")
		controllertest.Pass(time.Second)
		g.want(t, "", 1)
		g.answers(nil)
		controllertest.Pass(time.Minute + guardTries*guardsSoon)
		g.want(t, "guard nodegate-records is not in force", 0)
		if missing := g.Missing(); strings.Contains(missing, admission.ConfinementPolicy) || strings.Contains(missing, admission.ParametersPolicy) {
			t.Errorf("other guards are reported: %s", missing)
		}
		controllertest.Pass(time.Hour)
		g.answers(controllertest.DeniedBy(admission.RecordsPolicy))
		controllertest.Pass(guardsLater)
		g.want(t, "", 1)
		if lines := strings.Join(g.log.All(), "\n"); strings.Count(lines, "is not in force") != 2 || strings.Count(lines, `"guard is in force"`) != 5 { // once in the reason
			t.Errorf("log:\n%s", lines)
		}
	})
}

// Neither a single unexpected answer nor an API server that does not answer changes the
// result for a guard. But after some time without an answer, it no longer counts as proved.
func TestUnclearAnswersAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, "n1")
		controllertest.Pass(time.Second)
		g.answers(errors.New("connection refused"))
		controllertest.Pass(guardsOutdated - time.Minute)
		g.want(t, "", 1)
		g.wantSeries(t, 4)
		controllertest.Pass(time.Hour)
		g.wantSeries(t, 3)
		g.answers(controllertest.DeniedBy(admission.RecordsPolicy))
		controllertest.Pass(time.Minute)
		g.want(t, "", 1)
		g.answers(nil)
		controllertest.Pass(time.Minute + guardTries*guardsSoon)
		g.answers(errors.New("connection refused"))
		controllertest.Pass(time.Hour)
		g.want(t, "not in force", 0)
	})
}

// If another policy rejects the probe, the guard is not proved.
func TestGuardBehindAnotherPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, "n1")
		g.answers(controllertest.DeniedBy("no-annotations"))
		controllertest.Pass(time.Minute + guardTries*guardsSoon) // the first answer may have been that of the guard
		g.want(t, "'no-annotations'", 0)
	})
}

// Without Nodes, the guards of Nodes are not probed and not reported.
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

// A slow API server processes probes for at most a tenth of the time.
func TestSlowGuards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, "n1")
		g.answers(nil)
		g.took.Store(int64(4 * time.Second)) // for each of two probes
		controllertest.Pass(time.Hour)
		if most := int32(time.Hour / (80 * time.Second)); g.probes.Load() > most+1 || g.probes.Load() < most/2 {
			t.Errorf("%d probes in an hour, want at most about %d", g.probes.Load(), most)
		}
	})
}

// After probes have timed out, the next ones do not wait for minutes.
func TestGuardsAfterTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, "n1")
		g.took.Store(int64(time.Hour))
		g.tookOthers.Store(int64(time.Hour))
		controllertest.Pass(10*time.Minute + 30*time.Second)
		before := g.probes.Load()
		g.took.Store(0)
		g.tookOthers.Store(0)
		controllertest.Pass(4*birthTimeout + guardsSlow)
		if g.probes.Load() == before {
			t.Errorf("no guard was probed")
		}
	})
}

// A guard that can no longer be probed is not reported.
func TestGuardWithoutProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, "n1")
		g.allowed.Store(true)
		controllertest.Pass(time.Minute + guardTries*guardsSoon) // the first answer may have been that of the guard
		if missing := g.Missing(); !strings.Contains(missing, admission.AcknowledgePolicy) {
			t.Errorf("missing is %q", missing)
		}
		g.wantSeries(t, 4)
		g.withoutGates.Store(true)
		controllertest.Pass(time.Minute)
		g.want(t, "", 1)
		g.wantSeries(t, 3)
	})
}
