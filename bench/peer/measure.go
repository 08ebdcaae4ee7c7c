// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/figure"
	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
)

// foreignTaint is a taint that another writer adds while subjects remove theirs.
var foreignTaint = corev1.Taint{Key: "example.com/foreign", Effect: corev1.TaintEffectPreferNoSchedule}

// Numbers of nodes that become ready one after the other, in turns: without and with another
// writer.
const (
	quietTurns     = 4
	contendedTurns = 2
	// nodesPerSecond is how many of them become ready per second.
	nodesPerSecond = 10
)

// A bench measures nodegate and peers in the same control plane.
type bench struct{ *figure.Env }

// Measure measures nodegate and peers, one after the other and each once. If a peer
// waits for a CSI driver, nodegate is also measured with a gate that waits for it.
func Measure(ctx context.Context, env *figure.Env, peers []*Peer) ([]report.Subject, error) {
	e := &bench{env}
	if err := e.Prepare(ctx, e.nodes(), nil); err != nil {
		return nil, err
	}
	all, err := e.measureOwn(ctx, nil, "", "nodegate")
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(peers, func(p *Peer) bool { return p.CSIDriver != "" }); i >= 0 {
		if all, err = e.measureOwn(ctx, all, peers[i].CSIDriver, "nodegate, CSI driver"); err != nil {
			return all, err
		}
	}
	for _, p := range peers {
		e.Say("%s", p.Name)
		measured, err := e.measureOther(ctx, p)
		if err != nil {
			return all, fmt.Errorf("measuring %s: %w", p.Name, err)
		}
		all = append(all, measured)
	}
	return all, nil
}

// nodes is the number of nodes with which a program is measured.
func (e *bench) nodes() int { return (quietTurns+contendedTurns)*e.Paced + e.Fleets[0] }

// withEvidence calls measure with the evidence that a program waits for: the named CSI driver
// or, if there is no name, the DaemonSet. Nothing is ready before.
func (e *bench) withEvidence(ctx context.Context, csiDriver string, measure func(*evidence) error) (err error) {
	v := e.daemonReady()
	if csiDriver != "" {
		csi, err := e.Fleet.NewCSINodes(ctx, e.nodes(), csiDriver)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, csi.Delete(ctx)) }()
		v = driverRegistered(csi)
	}
	_, err = e.Fleet.Report(ctx, e.nodes(), false)
	if err := errors.Join(err, v.all(ctx, e.nodes(), false)); err != nil {
		return err
	}
	return measure(v)
}

// measureOwn adds what was measured of nodegate to the other results.
func (e *bench) measureOwn(ctx context.Context, all []report.Subject, csiDriver, name string) ([]report.Subject, error) {
	e.Say("%s", name)
	var spec map[string]any
	if csiDriver != "" {
		spec = fixture.OpensWithCSI(csiDriver)
	}
	err := e.withEvidence(ctx, csiDriver, func(v *evidence) error {
		if err := errors.Join(e.SetGate(ctx, spec), e.Reset(ctx, nil, e.nodes())); err != nil {
			return err
		}
		measured, err := e.measureSubject(ctx, name, fixture.Taint, v, func(ctx context.Context) (*process, error) {
			controller, err := e.StartNodegate(ctx)
			if err != nil {
				return nil, err
			}
			return &process{controller.PID(), controller.Stop}, nil
		})
		all = append(all, measured)
		return errors.Join(err, e.SetGate(ctx, nil))
	})
	return all, err
}

func (e *bench) measureOther(ctx context.Context, p *Peer) (measured report.Subject, err error) {
	taint, err := ParseTaint(p.Taint)
	if err != nil {
		return report.Subject{}, err
	}
	err = e.withEvidence(ctx, p.CSIDriver, func(v *evidence) (err error) {
		measured, err = e.measureSubject(ctx, p.Name, taint, v, func(ctx context.Context) (*process, error) {
			return e.start(ctx, p, taint)
		})
		return err
	})
	return measured, err
}

// start starts a peer, whose taint all nodes have.
func (e *bench) start(ctx context.Context, p *Peer, taint corev1.Taint) (*process, error) {
	if err := e.closeFor(ctx, taint, e.nodes()); err != nil {
		return nil, err
	}
	if p.Objects != "" {
		content, err := os.ReadFile(p.Objects)
		if err != nil {
			return nil, fmt.Errorf("reading the peer's objects: %w", err)
		}
		objects, err := testbed.ParseObjects(content)
		if err != nil {
			return nil, err
		}
		if err := e.Applier.Apply(ctx, objects...); err != nil {
			return nil, err
		}
	}
	kubeconfig := filepath.Join(e.Cluster.Dir(), "peer.kubeconfig")
	if err := testcluster.WriteKubeconfig(kubeconfig, e.Cluster.User(figure.PeerUser, "system:masters")); err != nil {
		return nil, err
	}
	running, err := p.Start(e.Cluster, kubeconfig)
	if err != nil {
		return nil, err
	}
	return &process{running.PID(), running.Stop}, nil
}

// closeFor writes the first nodes with the given taint only, and without nodegate's
// records.
func (e *bench) closeFor(ctx context.Context, taint corev1.Taint, count int) error {
	nodes, err := e.Driver.Nodes(ctx)
	if err != nil {
		return err
	}
	stored, err := driver.StoreAll(count, func(i int) *corev1.Node {
		node := &nodes[i]
		node.Spec.Taints = []corev1.Taint{taint}
		delete(node.Annotations, v1alpha1.RecordAnnotationPrefix+fixture.Daemon)
		return node
	})
	if err != nil {
		return err
	}
	_, err = e.Driver.Put(ctx, stored)
	return errors.Join(err, e.AwaitQuiet(ctx, nil))
}

// measureSubject starts a program that removes a taint, and measures it.
func (e *bench) measureSubject(ctx context.Context, name string, taint corev1.Taint, v *evidence, start func(context.Context) (*process, error)) (result report.Subject, err error) {
	watching, err := observer.Start(ctx, e.Cluster, taint)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, watching.Stop()) }()
	s, err := start(ctx)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	this := &turn{bench: e, watching: watching, evidence: v, process: s}
	result, err = this.measure(ctx)
	result.Name = name
	return result, err
}

// A process is the program that is measured.
type process struct {
	pid  int
	stop func() error
}

// A turn measures a program: with nodes that become ready one after the other, also
// while another writer adds taints to them, and with nodes that become ready at once.
type turn struct {
	*bench
	watching *observer.Observer
	evidence *evidence
	process  *process
}

func (t *turn) measure(ctx context.Context) (r report.Subject, err error) {
	all := t.Fleet.Nodes()[:t.nodes()]
	first, quiet, rest := all[0], all[1:quietTurns*t.Paced], all[quietTurns*t.Paced:]
	contended, rest := rest[:contendedTurns*t.Paced], rest[contendedTurns*t.Paced:]
	err = errors.Join(meter.AwaitQuiet(ctx, t.process.pid), t.evidence.one(ctx, first), t.watching.AwaitSeen(ctx, observer.Open, 1), t.AwaitQuiet(ctx, &figure.Subject{PID: t.process.pid}))
	if err != nil {
		return r, fmt.Errorf("removing the first taint: %w", err)
	}
	mark, err := t.Audit.Mark()
	if err != nil {
		return r, err
	}
	before, err := meter.CPU(t.process.pid)
	if err != nil {
		return r, err
	}
	if r.Latencies, err = t.oneByOne(ctx, quiet, false); err != nil {
		return r, err
	}
	if r.Contended, err = t.oneByOne(ctx, contended, true); err != nil {
		return r, err
	}
	if r.PerSecond, err = t.atOnce(ctx, len(all), len(rest)); err != nil {
		return r, err
	}
	r.Foreign = len(contended)
	r.Lost, err = t.lost(ctx, contended)
	err = errors.Join(err, t.costs(ctx, &r, before, mark, float64(len(all)-1)))
	return r, err
}

// costs adds the program's costs per node since its CPU time and a mark of the audit log.
func (t *turn) costs(ctx context.Context, r *report.Subject, before time.Duration, mark int64, nodes float64) error {
	if err := t.AwaitQuiet(ctx, &figure.Subject{PID: t.process.pid}); err != nil {
		return err
	}
	after, err := meter.CPU(t.process.pid)
	if err != nil {
		return err
	}
	memory, err := meter.Memory(t.process.pid)
	if err != nil {
		return err
	}
	requests, err := t.Audit.Since(mark)
	r.CPU, r.Memory = 1e3*(after-before).Seconds()/nodes, float64(memory.VmHWM)/(1<<20)
	r.Requests, r.Writes = float64(len(requests))/nodes, float64(meter.Count(requests, meter.NodeWrite))/nodes
	return err
}

// oneByOne writes the evidence of one node after the other, and returns the times until the
// program's taints are removed. Another writer may add a taint to each node meanwhile.
func (t *turn) oneByOne(ctx context.Context, nodes []string, contended bool) ([]float64, error) {
	t.watching.Reset()
	pace := rate.NewLimiter(nodesPerSecond, 1)
	var writes errgroup.Group
	for _, node := range nodes {
		if err := pace.Wait(ctx); err != nil {
			return nil, errors.Join(err, writes.Wait())
		}
		writes.Go(func() error { return t.evidence.one(ctx, node) })
		if contended {
			writes.Go(func() error { return t.addForeignTaint(ctx, node) })
		}
	}
	if err := writes.Wait(); err != nil {
		return nil, err
	}
	return t.watching.Latencies(ctx, nodes, t.evidence.event, observer.Event{State: observer.Open, Object: observer.Node})
}

// addForeignTaint adds a taint as a careful writer does: it reads the node, and updates what
// it has read.
func (t *turn) addForeignTaint(ctx context.Context, name string) error {
	nodes := t.Driver.Client().CoreV1().Nodes()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Spec.Taints = append(node.Spec.Taints, foreignTaint)
		_, err = nodes.Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("adding a taint to node %s: %w", name, err)
	}
	return nil
}

// atOnce writes the evidence of all nodes and returns how many taints are removed per
// second. Before, the given number of nodes had the taint.
func (t *turn) atOnce(ctx context.Context, all, closed int) (float64, error) {
	t.watching.Reset()
	if err := t.evidence.all(ctx, all, true); err != nil {
		return 0, err
	}
	if err := t.watching.AwaitSeen(ctx, observer.Open, closed); err != nil {
		return 0, err
	}
	ready := slices.MinFunc(slices.Collect(maps.Values(t.watching.Seen(t.evidence.event.State))), time.Time.Compare)
	open := slices.MaxFunc(slices.Collect(maps.Values(t.watching.Seen(observer.Open))), time.Time.Compare)
	return float64(closed) / open.Sub(ready).Seconds(), nil
}

// lost returns the number of nodes that do not have the other writer's taint.
func (t *turn) lost(ctx context.Context, names []string) (count int, err error) {
	for _, name := range names {
		node, err := t.Driver.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return 0, fmt.Errorf("reading node %s: %w", name, err)
		}
		if !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.MatchTaint(&foreignTaint) }) {
			count++
		}
	}
	return count, nil
}
