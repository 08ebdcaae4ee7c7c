// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/bench/steady"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
)

const (
	// manyGates is the number of gates. Each waits for its own condition.
	manyGates = 100
	// flipRate is the number of nodes that change per second.
	flipRate = 500
	// flipsPerTurn is the maximum number of nodes that change in a turn.
	flipsPerTurn = 200
	// decisionGoal is the goal for the time of a decision, in µs.
	decisionGoal = 20
)

var flipping = Figure{
	ID: "P12", Title: fmt.Sprintf("%d gates: one condition of a node changes", manyGates),
	Measure: measureGates,
}

func measureGates(ctx context.Context, e *Env) (r report.Result, err error) {
	e.Say("  deciding, in Go benchmarks")
	decisions, err := decisionRows(ctx, e.Rounds)
	if err != nil {
		return r, err
	}
	e.Say("  %d gates, %d nodes", manyGates, e.Gated)
	f, err := newFlips(ctx, e)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	pairs, err := f.pairs(ctx, e)
	cpu := func(what string, f flipped) report.Row {
		return report.Compare(what, "ms", pairs, f.cpu(), report.Mean, nil)
	}
	writes := func(what string, f flipped, goal float64) report.Row {
		return report.Counted(what, pairs, f.writes(), report.AtMost(goal))
	}
	r.Rows = append(decisions,
		cpu("nodegate's CPU for a flip that no gate reads", unread),
		cpu("nodegate's CPU for a flip, nothing to write", damped),
		writes("writes for a flip, nothing to write", damped, 0),
		cpu("nodegate's CPU for a flip, written", closes),
		writes("writes for a flip, written", closes, 1))
	r.Notes = []string{
		fmt.Sprintf("Decision: gathering the facts about one of %d nodes, and a decision that writes nothing. Measured by a Go benchmark (`BenchmarkFlip` in internal/controller), also in quick runs. It counts the signals that are evaluated; each gate has one.", decisionNodes),
		fmt.Sprintf("The other rows: a control plane with %d nodes of %.0f KB, on which all %d gates are open. In a turn, %d nodes change, %d per second, directly in etcd.", e.Gated, float64(f.flipped(0, nil).Size())/1e3, manyGates, f.flips, flipRate),
		"CPU is that of nodegate's process; writes are PATCHes in the API server's metrics. A change that no gate reads costs the decoding of a Node. The next row also includes the decision and the work around it.",
		fmt.Sprintf("Nothing to write: a gate whose damping (closeAfterSeconds %d) is not over. Written: a gate without damping, which closes the node.", longDamping),
	}
	return r, err
}

// longDamping is the closeAfterSeconds of gates that do not close during the measurement.
const longDamping = 3600

// flipped identifies the condition that changes: that of the gate with this number, or one
// that no gate reads.
type flipped int

const (
	unread flipped = -1
	damped flipped = 42
	closes flipped = manyGates - 1 // has no damping
)

// The quantities of a change, per changed node.
func (f flipped) cpu() string    { return fmt.Sprint("cpu ", int(f)) }    // of nodegate, in ms
func (f flipped) writes() string { return fmt.Sprint("writes ", int(f)) } // PATCHes of nodes

// condition returns the type of the condition that changes.
func (f flipped) condition() corev1.NodeConditionType {
	if f == unread {
		return "KernelDeadlock"
	}
	return corev1.NodeConditionType(gateName(int(f)))
}

// flips is a control plane with many gates, and a fleet on which all of them are open.
type flips struct {
	*steady.Fleet
	nodegate *testbed.Controller
	flips    int // number of nodes that change in a turn
}

func newFlips(ctx context.Context, e *Env) (_ *flips, err error) {
	f := &flips{flips: min(flipsPerTurn, e.Gated/(e.Rounds+repeatsAtMost))}
	var keys, names []string
	var gates []*unstructured.Unstructured
	for i := range manyGates {
		gate, err := waitingGate(i)
		if err != nil {
			return nil, err
		}
		keys, names, gates = append(keys, gateTaint(i)), append(names, gateName(i)), append(gates, gate)
	}
	if f.Fleet, err = steady.New(ctx, e.Installation.Program, keys, gates); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	err = driver.Fill(ctx, f.Driver, e.Gated, func(i int) *corev1.Node { return f.flipped(i, nil) })
	if err != nil {
		return nil, err
	}
	if f.nodegate, err = testbed.StartController(ctx, f.Cluster, f.Installation, "--metrics-secure=false"); err != nil {
		return nil, err
	}
	f.OnClose(f.nodegate.Stop)
	return f, steady.AwaitOpen(ctx, f.nodegate, names, e.Gated)
}

// waitingGate returns a gate that waits for the condition with its name.
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
		return nil, fmt.Errorf("converting a gate: %w", err)
	}
	delete(content, "status")
	o := &unstructured.Unstructured{Object: content}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeGate"))
	return o, nil
}

func gateName(i int) string { return fmt.Sprintf("gate-%03d", i) }

// flipped returns the i-th node, on which all gates are open. The conditions in at have
// changed at the given times.
func (f *flips) flipped(i int, at map[corev1.NodeConditionType]time.Time) *corev1.Node {
	return flippedNode(f.Node(i), f.Since, at)
}

// flippedNode changes a node that was created at the given time.
func flippedNode(node *corev1.Node, since time.Time, at map[corev1.NodeConditionType]time.Time) *corev1.Node {
	conditions := slices.Clone(node.Status.Conditions)
	for n := range manyGates {
		conditions = append(conditions, corev1.NodeCondition{
			Type: flipped(n).condition(), Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since),
		})
		steady.SetOpen(node, gateName(n), since.Add(time.Minute))
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

// pairs changes three conditions of some nodes, one after the other, and of other nodes in
// each round.
func (f *flips) pairs(ctx context.Context, e *Env) ([]report.Pair, error) {
	return e.referee.alone(e.Rounds, func(n int) (report.Sample, error) {
		sample, at := report.Sample{}, map[corev1.NodeConditionType]time.Time{}
		for _, what := range []flipped{unread, damped, closes} {
			at[what.condition()] = time.Now()
			var cpu time.Duration
			var writes float64
			if err := e.referee.turn(func() (err error) {
				cpu, writes, err = f.turn(ctx, n*f.flips, at)
				return err
			}); err != nil {
				return nil, err
			}
			sample.Add(what.cpu(), milliseconds(cpu)/float64(f.flips))
			sample.Add(what.writes(), writes/float64(f.flips))
		}
		return sample, nil
	})
}

// turn writes the nodes from the first on with changed conditions, and returns what that
// costs.
func (f *flips) turn(ctx context.Context, first int, at map[corev1.NodeConditionType]time.Time) (cpu time.Duration, writes float64, err error) {
	stored, err := driver.StoreAll(f.flips, func(i int) *corev1.Node { return f.flipped(first+i, at) })
	if err != nil {
		return 0, 0, err
	}
	cpuBefore, writesBefore, err := f.costs(ctx)
	if err != nil {
		return 0, 0, err
	}
	if _, err := f.Driver.PutAt(ctx, stored, flipRate); err != nil {
		return 0, 0, err
	}
	cpu, writes, err = f.costs(ctx)
	return cpu - cpuBefore, writes - writesBefore, err
}

// costs waits until all processes are idle, and returns nodegate's CPU time and the number
// of PATCHes of nodes so far.
func (f *flips) costs(ctx context.Context) (cpu time.Duration, writes float64, err error) {
	err = meter.AwaitQuiet(ctx, f.nodegate.PID(), f.Cluster.PID(testcluster.APIServer), f.Cluster.PID(testcluster.Etcd))
	if err != nil {
		return 0, 0, err
	}
	if cpu, err = meter.CPU(f.nodegate.PID()); err != nil {
		return 0, 0, err
	}
	metrics, err := meter.OfAPIServer(ctx, f.Cluster)
	return cpu, metrics.Sum("apiserver_request_total", map[string]string{"resource": "nodes", "verb": "PATCH", "code": "200"}), err
}
