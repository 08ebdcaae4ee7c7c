// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
)

// longDamping is the closeAfterSeconds of gates that do not close here.
const longDamping = 3600

// flipped is the condition that flips: of a gate, by its number, or of none.
type flipped int

const (
	unwatched flipped = -1 // that nobody looks at
	damped    flipped = 42
	closes    flipped = manyGates - 1 // whose gate has no damping
)

// flips is a control plane of its own with many gates, and a fleet on which all of
// them are open.
type flips struct {
	*pasture
	driver   *driver.Driver
	nodegate *testbed.Controller
	nodes    int
	nodeKB   float64
	flips    int // how many nodes change in a turn
}

func newFlips(ctx context.Context, e *Env) (_ *flips, err error) {
	f := &flips{nodes: e.Gated, flips: min(flipsInTurn, e.Gated/e.Rounds)}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	keys := make([]string, manyGates)
	for i := range keys {
		keys[i] = gateTaint(i)
	}
	if f.pasture, err = newPasture(ctx, e, keys); err != nil {
		return nil, err
	}
	if err := f.populate(ctx); err != nil {
		return nil, err
	}
	if f.driver, err = driver.New(ctx, f.cluster); err != nil {
		return nil, err
	}
	if err := f.fill(ctx); err != nil {
		return nil, err
	}
	if f.nodegate, err = testbed.StartController(ctx, f.cluster, f.installation); err != nil {
		return nil, err
	}
	names := make([]string, manyGates)
	for i := range names {
		names[i] = gateName(i)
	}
	return f, awaitOpen(ctx, f.nodegate, names, f.nodes)
}

func (f *flips) close() error {
	var errs []error
	if f.nodegate != nil {
		errs = append(errs, f.nodegate.Stop())
	}
	if f.driver != nil {
		errs = append(errs, f.driver.Close())
	}
	if f.pasture != nil {
		errs = append(errs, f.pasture.close())
	}
	return errors.Join(errs...)
}

// populate creates the gates.
func (f *flips) populate(ctx context.Context) error {
	var all []*unstructured.Unstructured
	for i := range manyGates {
		o, err := waitingGate(i)
		if err != nil {
			return err
		}
		all = append(all, o)
	}
	return f.pasture.populate(ctx, all)
}

// waitingGate is a gate that waits for a condition of its own name.
func waitingGate(i int) (*unstructured.Unstructured, error) {
	g := &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: gateName(i)}}
	g.Spec.Taint = v1alpha1.Taint{Key: gateTaint(i), Effect: corev1.TaintEffectNoSchedule}
	g.Spec.ReclosePolicy = v1alpha1.RecloseOnRegression
	signal := v1alpha1.Signal{Name: "condition"}
	signal.Condition = &v1alpha1.ConditionSignal{Type: gateName(i), Status: string(corev1.ConditionTrue)}
	g.Spec.OpenWhen = []v1alpha1.Signal{signal}
	damping := int32(longDamping)
	if flipped(i) == closes {
		damping = 0
	}
	g.Spec.Timing.CloseAfterSeconds = &damping
	o, err := unstructuredGate(g)
	if err != nil {
		return nil, err
	}
	return o, unstructured.SetNestedField(o.Object, "100%", "spec", "budget", "maxReclosed")
}

func unstructuredGate(g *v1alpha1.NodeGate) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(g)
	if err != nil {
		return nil, fmt.Errorf("writing a gate: %w", err)
	}
	delete(content, "status")
	o := &unstructured.Unstructured{Object: content}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeGate"))
	return o, nil
}

func gateName(i int) string { return fmt.Sprintf("gate-%03d", i) }

// fill puts the fleet into etcd.
func (f *flips) fill(ctx context.Context) error {
	stored := make([]driver.Stored, f.nodes)
	for i := range stored {
		var err error
		if stored[i], err = driver.StoreNode(f.nodeAt(i, nil)); err != nil {
			return err
		}
	}
	f.nodeKB = float64(len(stored[0].Value)) / 1e3
	_, err := f.driver.Fill(ctx, stored)
	return err
}

// nodeAt makes the node of a number, on which every gate is open, and every condition
// as it should be but for those that have flipped: of these types, at these times.
func (f *flips) nodeAt(i int, at map[corev1.NodeConditionType]time.Time) *corev1.Node {
	node := f.herd.nodeAt(i)
	conditions := append([]corev1.NodeCondition(nil), node.Status.Conditions...)
	for n := range manyGates {
		conditions = append(conditions, corev1.NodeCondition{
			Type: flipped(n).condition(), Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(f.herd.since),
		})
		node.Annotations[v1alpha1.RecordAnnotationPrefix+gateName(n)] = gate.Record{
			State: v1alpha1.StateOpen, Reason: v1alpha1.ReasonSignalsHold, Boot: node.Status.NodeInfo.BootID, Source: v1alpha1.SourceCRD,
			Since: f.herd.since.Add(time.Minute),
		}.String()
	}
	for n := range conditions {
		c := &conditions[n]
		if flippedAt, ok := at[c.Type]; ok {
			c.Status, c.LastTransitionTime = opposite[c.Status], metav1.NewTime(flippedAt)
		}
	}
	node.Status.Conditions = conditions
	return node
}

var opposite = map[corev1.ConditionStatus]corev1.ConditionStatus{
	corev1.ConditionTrue: corev1.ConditionFalse, corev1.ConditionFalse: corev1.ConditionTrue,
}

// condition is the type of the condition that flips.
func (what flipped) condition() corev1.NodeConditionType {
	if what == unwatched {
		return "KernelDeadlock"
	}
	return corev1.NodeConditionType(gateName(int(what)))
}

// rounds has the conditions of other nodes flip in each round.
func (f *flips) rounds(ctx context.Context, e *Env) (flipRounds, error) {
	var all flipRounds
	for n := range e.Rounds {
		e.Say("  round %d of %d", n+1, e.Rounds)
		round, at := map[flipped]report.Sample{}, map[corev1.NodeConditionType]time.Time{}
		for _, what := range []flipped{unwatched, damped, closes} {
			at[what.condition()] = time.Now()
			sample, err := f.turn(ctx, n*f.flips, at)
			if err != nil {
				return nil, err
			}
			round[what] = sample
		}
		all = append(all, round)
	}
	return all, nil
}

// turn writes nodes from the first on with conditions flipped, of which one was not
// before.
func (f *flips) turn(ctx context.Context, first int, at map[corev1.NodeConditionType]time.Time) (report.Sample, error) {
	stored := make([]driver.Stored, f.flips)
	for i := range stored {
		var err error
		if stored[i], err = driver.StoreNode(f.nodeAt(first+i, at)); err != nil {
			return nil, err
		}
	}
	cpu, writes, err := f.spent(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.pace(ctx, stored); err != nil {
		return nil, err
	}
	cpuAfter, writesAfter, err := f.spent(ctx)
	if err != nil {
		return nil, err
	}
	sample := report.Sample{}
	sample.Add(flipCPU, milliseconds(cpuAfter-cpu)/float64(f.flips))
	sample.Add(flipWrite, (writesAfter-writes)/float64(f.flips))
	return sample, nil
}

// pace writes nodes one after the other.
func (f *flips) pace(ctx context.Context, stored []driver.Stored) error {
	ticker := time.NewTicker(time.Second / flipRate)
	defer ticker.Stop()
	for i := range stored {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		if _, err := f.driver.Put(ctx, stored[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// spent returns nodegate's CPU time and the number of PATCHes of nodes so far, after
// all processes have become idle.
func (f *flips) spent(ctx context.Context) (cpu time.Duration, writes float64, err error) {
	err = meter.AwaitQuiet(ctx, f.nodegate.PID(), f.cluster.PID(testcluster.APIServer), f.cluster.PID(testcluster.Etcd))
	if err != nil {
		return 0, 0, err
	}
	if cpu, err = meter.CPU(f.nodegate.PID()); err != nil {
		return 0, 0, err
	}
	metrics, err := meter.OfAPIServer(ctx, f.cluster)
	if err != nil {
		return 0, 0, err
	}
	return cpu, metrics.Sum("apiserver_request_total", map[string]string{"resource": "nodes", "verb": "PATCH", "code": "200"}), nil
}
