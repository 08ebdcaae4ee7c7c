// SPDX-License-Identifier: Apache-2.0

package figure

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
	limiter "golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/peer"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
)

// peerUser is the user name of all peers, which has all permissions.
const peerUser = "bench-peer"

// foreignTaint is a taint that another writer adds while subjects remove theirs.
var foreignTaint = corev1.Taint{Key: "example.com/foreign", Effect: corev1.TaintEffectPreferNoSchedule}

// MeasurePeers measures nodegate and peers, one after the other and each once.
func (e *Env) MeasurePeers(ctx context.Context, peers []*peer.Peer) ([]report.Subject, error) {
	nodes := e.Paced + e.Fleets[0]
	if err := e.prepare(ctx, nodes, nil); err != nil {
		return nil, err
	}
	e.Say("nodegate")
	own, err := e.measureSubject(ctx, nodegateName, fixture.Taint, func(ctx context.Context) (*Subject, error) {
		if err := e.Reset(ctx, nil, nodes); err != nil {
			return nil, err
		}
		controller, err := e.StartNodegate(ctx)
		if err != nil {
			return nil, err
		}
		return &Subject{Name: nodegateName, PID: controller.PID(), stop: controller.Stop}, nil
	})
	if err != nil {
		return nil, err
	}
	all := []report.Subject{own}
	for _, p := range peers {
		e.Say("%s", p.Name)
		measured, err := e.measurePeer(ctx, p, nodes)
		if err != nil {
			return all, fmt.Errorf("measuring %s: %w", p.Name, err)
		}
		all = append(all, measured)
	}
	return all, nil
}

func (e *Env) measurePeer(ctx context.Context, p *peer.Peer, nodes int) (report.Subject, error) {
	taint, err := peer.ParseTaint(p.Taint)
	if err != nil {
		return report.Subject{}, err
	}
	return e.measureSubject(ctx, p.Name, taint, func(ctx context.Context) (*Subject, error) {
		if err := e.closeFor(ctx, taint, nodes); err != nil {
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
		if err := testcluster.WriteKubeconfig(kubeconfig, e.Cluster.User(peerUser, "system:masters")); err != nil {
			return nil, err
		}
		process, err := p.Start(e.Cluster, kubeconfig)
		if err != nil {
			return nil, err
		}
		return &Subject{Name: p.Name, PID: process.PID(), stop: process.Stop}, nil
	})
}

// closeFor writes the first nodes with the given taint only, and without nodegate's
// records, and their daemons as not ready.
func (e *Env) closeFor(ctx context.Context, taint corev1.Taint, count int) error {
	nodes, err := e.Driver.Nodes(ctx)
	if err != nil {
		return err
	}
	if _, err := e.Fleet.Report(ctx, count, false); err != nil {
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
func (e *Env) measureSubject(ctx context.Context, name string, taint corev1.Taint, start func(context.Context) (*Subject, error)) (result report.Subject, err error) {
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
	turn := &peerTurn{Env: e, watching: watching, subject: s}
	result, err = turn.measure(ctx)
	result.Name = name
	return result, err
}

// A peerTurn measures a program: with nodes that become ready one after the other, while
// another writer adds taints to them, and with nodes that become ready at once.
type peerTurn struct {
	*Env
	watching *observer.Observer
	subject  *Subject
}

func (t *peerTurn) measure(ctx context.Context) (r report.Subject, err error) {
	all := t.Fleet.Nodes()[:t.Paced+t.Fleets[0]]
	first, paced, rest := all[0], all[1:t.Paced], all[t.Paced:]
	err = errors.Join(meter.AwaitQuiet(ctx, t.subject.PID), t.Fleet.ReportOne(ctx, first, true), t.watching.AwaitSeen(ctx, observer.Open, 1), t.AwaitQuiet(ctx, t.subject))
	if err != nil {
		return r, fmt.Errorf("removing the first taint: %w", err)
	}
	mark, err := t.Audit.Mark()
	if err != nil {
		return r, err
	}
	before, err := meter.CPU(t.subject.PID)
	if err != nil {
		return r, err
	}
	if r.Latencies, err = t.oneByOne(ctx, paced); err != nil {
		return r, err
	}
	if r.PerSecond, err = t.atOnce(ctx, len(all), len(rest)); err != nil {
		return r, err
	}
	r.Foreign = len(paced)
	r.Lost, err = t.lost(ctx, paced)
	err = errors.Join(err, t.costs(ctx, &r, before, mark, float64(len(paced)+len(rest))))
	return r, err
}

// costs adds the program's costs per node since its CPU time and a mark of the audit log.
func (t *peerTurn) costs(ctx context.Context, r *report.Subject, before time.Duration, mark int64, nodes float64) error {
	if err := t.AwaitQuiet(ctx, t.subject); err != nil {
		return err
	}
	after, err := meter.CPU(t.subject.PID)
	if err != nil {
		return err
	}
	memory, err := meter.Memory(t.subject.PID)
	if err != nil {
		return err
	}
	requests, err := t.Audit.Since(mark)
	r.CPU, r.Memory = milliseconds(after-before)/nodes, float64(memory.VmHWM)/mebibyte
	r.Requests, r.Writes = float64(len(requests))/nodes, float64(meter.Count(requests, meter.NodeWrite))/nodes
	return err
}

// oneByOne makes daemons ready while another writer adds a taint to each node, and returns
// the times until the program's taints are removed.
func (t *peerTurn) oneByOne(ctx context.Context, nodes []string) ([]float64, error) {
	t.watching.Reset()
	pace := limiter.NewLimiter(rate, 1)
	var writes errgroup.Group
	for _, node := range nodes {
		if err := pace.Wait(ctx); err != nil {
			return nil, errors.Join(err, writes.Wait())
		}
		writes.Go(func() error { return t.Fleet.ReportOne(ctx, node, true) })
		writes.Go(func() error { return t.addForeignTaint(ctx, node) })
	}
	if err := writes.Wait(); err != nil {
		return nil, err
	}
	return latencies(ctx, t.watching, nodes, observer.Ready, observer.Open, func(node string) string { return node })
}

// addForeignTaint adds a taint as a careful writer does: it reads the node, and updates what
// it has read.
func (t *peerTurn) addForeignTaint(ctx context.Context, name string) error {
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

// atOnce makes the daemons of all nodes ready and returns how many taints are removed per
// second. Before, the given number of nodes had the taint.
func (t *peerTurn) atOnce(ctx context.Context, all, closed int) (float64, error) {
	t.watching.Reset()
	if _, err := t.Fleet.Report(ctx, all, true); err != nil {
		return 0, err
	}
	if err := t.watching.AwaitSeen(ctx, observer.Open, closed); err != nil {
		return 0, err
	}
	ready := slices.MinFunc(slices.Collect(maps.Values(t.watching.Seen(observer.Ready))), time.Time.Compare)
	open := slices.MaxFunc(slices.Collect(maps.Values(t.watching.Seen(observer.Open))), time.Time.Compare)
	return float64(closed) / open.Sub(ready).Seconds(), nil
}

// lost returns the number of nodes that do not have the other writer's taint.
func (t *peerTurn) lost(ctx context.Context, names []string) (count int, err error) {
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
