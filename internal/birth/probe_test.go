// SPDX-License-Identifier: Apache-2.0

package birth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// proving is a Reconciler with a fake API server.
type proving struct {
	*Reconciler
	gates []*v1alpha1.NodeGate
	set   atomic.Pointer[gateset.Set]
	// closing are the gates that the API server closes at birth, in their version there.
	closing atomic.Pointer[[]*v1alpha1.NodeGate]
	// taken are the names of existing nodes.
	taken []string
	// took is the time that the API server needs for each probe.
	took atomic.Int64
	// probes counts the probes.
	probes atomic.Int32
	// readFails and writeFails, if set, are the results of reads and writes of parameters.
	readFails, writeFails atomic.Pointer[error]
	log                   controllertest.LogLines
}

// newProving starts to probe gates. pool returns the value of the label by which a gate
// selects nodes, or "" for all nodes. It must be called in a synctest bubble.
func newProving(t *testing.T, gates int, pool func(int) string, taken ...string) *proving {
	return newProvingBy(t, admission.ByPolicy, gates, pool, taken...)
}

func newProvingBy(t *testing.T, by admission.Birth, gates int, pool func(int) string, taken ...string) *proving {
	p := &proving{taken: taken}
	p.Reconciler = New(controllertest.Client(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			if node, probe := obj.(*corev1.Node); probe {
				return p.create(ctx, node)
			}
			if err := p.writeFails.Load(); err != nil {
				return *err
			}
			return c.Create(ctx, obj, o...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.UpdateOption) error {
			if err := p.writeFails.Load(); err != nil {
				return *err
			}
			return c.Update(ctx, obj, o...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
			if err := p.readFails.Load(); err != nil {
				return *err
			}
			return c.Get(ctx, key, obj, o...)
		},
	}), "nodegate-system", p.log.Logger())
	p.By = by
	var all []*v1alpha1.NodeGate
	for i := range gates {
		ng := controllertest.Gate(fmt.Sprintf("gate-%03d", i))
		if value := pool(i); value != "" {
			ng.Spec.NodeSelector.MatchLabels = map[string]string{"pool": value}
		}
		all = append(all, ng)
	}
	p.works(all...)
	p.declare(all...)
	go p.Run(t.Context(), clock.RealClock{}, &p.set)
	return p
}

// declare sets the gates of the Reconciler.
func (p *proving) declare(gates ...*v1alpha1.NodeGate) {
	p.gates = gates
	p.set.Store(gateset.New(&gateset.Set{}, gateset.Snapshot{Source: v1alpha1.SourceCRD, Gates: gates, Complete: true}, gate.KeyPolicy{}))
	p.Changed()
}

// works sets the gates that the API server closes at birth.
func (p *proving) works(gates ...*v1alpha1.NodeGate) { p.closing.Store(&gates) }

func (p *proving) create(ctx context.Context, node *corev1.Node) error {
	p.probes.Add(1)
	if err := takes(ctx, p.took.Load()); err != nil {
		return err
	}
	if slices.Contains(p.taken, node.Name) {
		return apierrors.NewAlreadyExists(corev1.Resource("nodes"), node.Name)
	}
	for _, ng := range *p.closing.Load() {
		selector, err := ng.Spec.NodeSelector.AsSelector()
		if err != nil {
			return err
		}
		if selector.Matches(labels.Set(node.Labels)) {
			controllertest.CloseAtBirth(node, ng.Name, ng.Spec.Taint.Key, ng.Spec.Taint.Effect)
		}
	}
	return nil
}

// wantProved checks that all gates are proved except the named ones.
func (p *proving) wantProved(t *testing.T, except ...string) {
	t.Helper()
	for _, ng := range p.gates {
		if err := p.Proved(ng); (err == nil) == slices.Contains(except, ng.Name) {
			t.Errorf("gate %s: %v", ng.Name, err)
		}
	}
}

func anyNode(int) string { return "" }

func TestManyGatesAreNotProbedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 60
		b := newProving(t, many, strconv.Itoa)
		var last, most int32
		for range 180 {
			controllertest.Pass(time.Second)
			now := b.probes.Load()
			most, last = max(most, now-last), now
		}
		if most > 3*birthAtOnce { // one batch every half second
			t.Errorf("up to %d probes per second", most)
		}
		if last < 3*many || last > 5*many {
			t.Errorf("%d probes in three minutes, want about one per minute for each of %d gates", last, many)
		}
		b.wantProved(t)
		for range 50 { // as for changes of DaemonSets
			b.Changed()
			controllertest.Pass(10 * time.Millisecond)
		}
		if n := b.probes.Load() - last; n > 10 {
			t.Errorf("%d probes in half a second in which no gate changed", n)
		}
	})
}

// Gates with the same selector share a probe, because its cost grows with the number of
// gates.
func TestGatesOfOneSelectorNeedOneProbe(t *testing.T) {
	tests := map[string]struct {
		pool  func(int) string
		probe int32 // the number of probes per round
	}{
		"one selector": {anyNode, 1},
		"three":        {func(i int) string { return []string{"", "a", "b"}[i%3] }, 3}, // the first one also selects the nodes of the others
	}
	for name, test := range tests {
		synctest.Test(t, func(t *testing.T) {
			b := newProving(t, 200, test.pool)
			controllertest.Pass(time.Second)
			b.wantProved(t)
			if n := b.probes.Load(); n != test.probe {
				t.Errorf("%s: %d probes at first, want %d", name, n, test.probe)
			}
			controllertest.Pass(3 * BirthProved)
			b.wantProved(t)
			if n := b.probes.Load(); n < 4*test.probe || n > 5*test.probe {
				t.Errorf("%s: %d probes in three minutes, want about one per minute for each of %d selectors", name, n, test.probe)
			}
		})
	}
}

// A shared probe proves each gate separately.
func TestProbeProvesOneGateAndNotAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sick = "gate-001"
		b := newProving(t, 3, anyNode)
		controllertest.Pass(time.Second)
		b.wantProved(t)

		b.works(b.gates[0], b.gates[2])
		controllertest.Pass(BirthProved + time.Second)
		b.wantProved(t, sick)
		if n := b.probes.Load(); n > 20 {
			t.Errorf("%d probes in a minute", n)
		}
		b.works(b.gates...)
		controllertest.Pass(BirthLater + time.Second)
		b.wantProved(t)
	})
}

// An edited gate is probed immediately, and not by a probe that only shows that its previous
// version is in force.
func TestEditedGateHasAProbeOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const widened = "gate-002"
		b := newProving(t, 3, func(int) string { return "a" })
		controllertest.Pass(time.Second)
		b.wantProved(t)

		edited := b.gates[2].DeepCopy()
		edited.Generation, edited.Spec.NodeSelector.MatchLabels = 2, nil
		b.declare(b.gates[0], b.gates[1], edited)
		controllertest.Pass(5 * time.Second)
		b.wantProved(t, widened)
		b.works(b.gates...)
		controllertest.Pass(2 * time.Second)
		b.wantProved(t)
	})
}

// widened returns a gate of pool a after it was edited to select pool b, too.
func widened(ng *v1alpha1.NodeGate) *v1alpha1.NodeGate {
	edited := ng.DeepCopy()
	edited.Generation, edited.Spec.NodeSelector.MatchLabels = 2, nil
	edited.Spec.NodeSelector.MatchExpressions = []v1alpha1.LabelSelectorRequirement{{Key: "pool", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}}}
	return edited
}

// A gate that is edited to select more nodes is not proved by a node that its previous version
// selects, too.
func TestWidenedGateIsNotProvedByItsPreviousVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newProving(t, 1, func(int) string { return "a" })
		controllertest.Pass(time.Second)
		b.wantProved(t)

		b.declare(widened(b.gates[0]))
		controllertest.Pass(5 * time.Second)
		b.wantProved(t, b.gates[0].Name)
		b.works(b.gates...)
		controllertest.Pass(2 * time.Second)
		b.wantProved(t)
	})
}

// While the parameter does not contain the current version of a gate, no probe proves that.
func TestGateWhoseEntryIsNotWrittenIsNotProved(t *testing.T) {
	failure := error(apierrors.NewInternalError(errors.New("etcd is full")))
	for name, fail := range map[string]func(*proving){
		"not read":    func(p *proving) { p.readFails.Store(&failure) },
		"not written": func(p *proving) { p.writeFails.Store(&failure) },
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newProving(t, 1, func(int) string { return "a" })
			controllertest.Pass(time.Second)
			b.wantProved(t)

			fail(b)
			edited := widened(b.gates[0])
			b.works(edited)
			b.declare(edited)
			controllertest.Pass(5 * time.Second)
			if err := b.Proved(edited); !errors.Is(err, failure) {
				t.Errorf("%s: %v, want the failure of the parameter", name, err)
			}
		})
	}
}

// If a node with the name of a probe exists, the probe uses the name of another gate.
func TestProbeWhoseNameIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pools := func(i int) string { return []string{"a", "a", "b"}[i] }
		b := newProving(t, 3, pools, "nodegate-probe-gate-000", "nodegate-probe-gate-002")
		controllertest.Pass(time.Second)
		b.wantProved(t, "gate-002")
		if err := b.Proved(b.gates[2]); !strings.Contains(err.Error(), "a node named nodegate-probe-gate-002 exists") {
			t.Errorf("error: %v", err)
		}
	})
}

// While the parameter cannot be read or written, proved gates are probed again, but those that
// wait for a probe are probed, too. The failure is logged once.
func TestEveryGateIsProbedWithoutAParameter(t *testing.T) {
	failure := error(apierrors.NewInternalError(errors.New("etcd is full")))
	for name, c := range map[string]struct {
		fail func(*proving)
		log  string
	}{
		"not read":    {func(p *proving) { p.readFails.Store(&failure) }, "cannot read the birth parameter"},
		"not written": {func(p *proving) { p.writeFails.Store(&failure) }, "cannot write the birth parameter"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const many = 60
				b := newProving(t, many, strconv.Itoa)
				controllertest.Pass(time.Minute)
				b.wantProved(t)

				c.fail(b)
				edited := b.gates[many-1].DeepCopy()
				edited.Generation, edited.Spec.NodeSelector.MatchLabels = 2, map[string]string{"pool": "edited"}
				lost := b.gates[many-2]
				b.works(b.gates[:many-2]...)
				b.declare(append(slices.Clone(b.gates[:many-1]), edited)...)
				controllertest.Pass(time.Minute)
				b.wantProved(t, lost.Name, edited.Name)
				for _, ng := range []*v1alpha1.NodeGate{lost, edited} {
					if err := b.Proved(ng); !errors.Is(err, failure) {
						t.Errorf("gate %s: %v, want the failure of the parameter", ng.Name, err)
					}
				}
				if n := b.log.Count(c.log); n != 1 {
					t.Errorf("%q is logged %d times, want once", c.log, n)
				}
			})
		})
	}
}
