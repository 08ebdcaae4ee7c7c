// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/bench/scene"
	"github.com/nodegate/nodegate/bench/standin"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

var memory = Figure{ID: "P5", Title: "Peak resident memory, initial list included", Measure: measureMemory}

// A Herd is the size of a fleet at rest.
type Herd struct {
	// Nodes have three gate pods each, and Others is how many further pods there
	// are.
	Nodes, Others int
	// AtMost is the goal for nodegate's peak, in MiB; 0 for none.
	AtMost float64
}

// beating is for how long nodes report, after nodegate has looked at all of them.
const beating = 5 * time.Second

func measureMemory(ctx context.Context, e *Env) (r report.Result, err error) {
	p, err := newPasture(ctx, e, []string{"bench.nodegate.dev/network", "bench.nodegate.dev/storage"})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	gates, err := testbed.ParseObjects(herdObjects)
	if err != nil {
		return r, err
	}
	if err := p.populate(ctx, gates); err != nil {
		return r, err
	}
	node, pod, err := p.herd.sizes()
	if err != nil {
		return r, err
	}
	r.Notes = []string{
		fmt.Sprintf("VmHWM of nodegate's process, as its users run it: its own ServiceAccount, leader election, two gates and 3 gate pods a node. %d starts each. A Node of 40 labels has %.1f KB in protobuf, a pod %.1f KB. Every node is open; when all have been looked at, each reports once a minute for %s.",
			e.Starts, float64(node)/1e3, float64(pod)/1e3, beating),
	}
	e.Say("  %d nodes, replayed", e.Replayed.Nodes)
	replayed, err := p.replayed(ctx, e.Replayed, e.Starts)
	if err != nil {
		return r, err
	}
	e.Say("  %d nodes and %d other pods, in etcd", e.Stored.Nodes, e.Stored.Others)
	stored, err := p.stored(ctx, e.Stored, e.Starts)
	if err != nil {
		return r, err
	}
	r.Rows = append(stored.rows(e.Stored), replayed.rows(e.Replayed)...)
	r.Notes = append(r.Notes,
		fmt.Sprintf("%d nodes: objects in etcd, a whole control plane without an audit log. %s", e.Stored.Nodes, stored.note()),
		fmt.Sprintf("%d nodes: Nodes and gate pods are replayed by a stand-in watch server, over TLS and HTTP/2, as WatchList and in protobuf; everything else is answered by a real API server. %s %s", e.Replayed.Nodes, replayed.asked, replayed.note()))
	return r, nil
}

// A pasture is a control plane of its own, for fleets at rest.
type pasture struct {
	cluster      *testcluster.Cluster
	applier      *testbed.Applier
	installation *testbed.Installation
	herd         *herd
}

// newPasture starts one in which nodegate, which does not run, may change taints of
// these keys.
func newPasture(ctx context.Context, e *Env, keys []string) (_ *pasture, err error) {
	p := &pasture{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	p.cluster, err = testcluster.Start(ctx, testcluster.Options{
		Components: []testcluster.Component{testcluster.APIServer},
		ExtraArgs:  map[testcluster.Component][]string{testcluster.Etcd: {fmt.Sprintf("--quota-backend-bytes=%d", quota)}},
	})
	if err != nil {
		return nil, err
	}
	if p.applier, err = testbed.NewApplier(p.cluster.Admin()); err != nil {
		return nil, err
	}
	p.installation, err = testbed.Install(ctx, p.applier, e.Installation.Program, keys)
	return p, err
}

// populate creates gates and the herd's daemons.
func (p *pasture) populate(ctx context.Context, gates []*unstructured.Unstructured) error {
	objects, err := scene.Objects()
	if err != nil {
		return err
	}
	if err := p.applier.Apply(ctx, append(objects[:len(objects)-1], gates...)...); err != nil { // without the scene's own gate
		return err
	}
	client, err := kubernetes.NewForConfig(p.cluster.Admin())
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	p.herd, err = newHerd(ctx, client)
	return err
}

func (p *pasture) close() error {
	if p.cluster == nil {
		return nil
	}
	return p.cluster.Stop()
}

// replayed measures nodegate behind the stand-in.
func (p *pasture) replayed(ctx context.Context, size Herd, starts int) (m memories, err error) {
	server, err := standin.Start(p.herd.standIn(size.Nodes), p.cluster.Admin())
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	quiet := func(context.Context) error { return nil } // the stand-in has nodes report by itself
	if m, err = p.measure(ctx, size, starts, server.Config, quiet); err != nil {
		return m, err
	}
	c := server.Counts()
	m.asked = fmt.Sprintf("It answered %d WatchLists and %d pages with %d objects, %.0f MB, and was asked to write %d times.",
		c.WatchLists, c.Pages, c.Initial, float64(c.InitialBytes)/1e6, c.Writes)
	return m, nil
}

// stored measures nodegate at a real API server.
func (p *pasture) stored(ctx context.Context, size Herd, starts int) (m memories, err error) {
	d, err := driver.New(ctx, p.cluster)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := p.fill(ctx, d, size); err != nil {
		return m, err
	}
	direct := func(config *rest.Config) *rest.Config { return config }
	return p.measure(ctx, size, starts, direct, func(ctx context.Context) error { return p.beat(ctx, d, size.Nodes) })
}

// fill puts a fleet into etcd.
func (p *pasture) fill(ctx context.Context, d *driver.Driver, size Herd) error {
	const piece = 1000
	var batch []driver.Stored
	flush := func() error {
		_, err := d.Fill(ctx, batch)
		batch = batch[:0]
		return err
	}
	keep := func(stored driver.Stored, err error) error {
		if batch = append(batch, stored); err != nil || len(batch) < piece {
			return err
		}
		return flush()
	}
	for i := range size.Nodes {
		if err := keep(driver.StoreNode(p.herd.nodeAt(i))); err != nil {
			return err
		}
		for daemon := range herdDaemons {
			if err := keep(driver.StorePod(p.herd.podAt(daemon, i))); err != nil {
				return err
			}
		}
	}
	for i := range size.Others {
		if err := keep(driver.StorePod(p.herd.otherAt(i, size.Nodes))); err != nil {
			return err
		}
	}
	return flush()
}

// beat has nodes report.
func (p *pasture) beat(ctx context.Context, d *driver.Driver, nodes int) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for next := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			var batch []driver.Stored
			for range reports(nodes) {
				stored, err := driver.StoreNode(reporting(p.herd.nodeAt(next), now))
				if err != nil {
					return err
				}
				batch, next = append(batch, stored), (next+1)%nodes
			}
			// What has begun is brought to its end.
			if _, err := d.Put(context.WithoutCancel(ctx), batch); err != nil {
				return err
			}
		}
	}
}

// reporting is a node as it is when its kubelet has just reported.
func reporting(node *corev1.Node, now time.Time) *corev1.Node {
	node.Status.Conditions = append([]corev1.NodeCondition(nil), node.Status.Conditions...)
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(now)
	}
	return node
}

// measure starts nodegate several times, each time until it has looked at every
// node and has heard of some for a while.
func (p *pasture) measure(ctx context.Context, size Herd, starts int, route func(*rest.Config) *rest.Config, beat func(context.Context) error) (m memories, err error) {
	account := p.installation.ServiceAccount
	config, err := p.cluster.ServiceAccount(ctx, account.Namespace, account.Name)
	if err != nil {
		return m, err
	}
	for range starts {
		if err := p.start(ctx, size, route(config), beat, &m); err != nil {
			return m, err
		}
	}
	return m, nil
}

func (p *pasture) start(ctx context.Context, size Herd, config *rest.Config, beat func(context.Context) error, m *memories) (err error) {
	// A stand-in reviews no tokens.
	controller, err := testbed.StartControllerAs(p.cluster, p.installation, config, "--metrics-secure=false")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, controller.Stop()) }()
	if err := awaitOpen(ctx, controller, herdGates, size.Nodes); err != nil {
		return err
	}
	while, cancel := context.WithTimeout(ctx, beating)
	defer cancel()
	if err := beat(while); err != nil {
		return err
	}
	<-while.Done()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return m.read(ctx, controller)
}

// awaitOpen waits until nodegate says that these gates are open on every node,
// which it says of none that it has not looked at.
func awaitOpen(ctx context.Context, controller *testbed.Controller, gates []string, nodes int) error {
	return await.Until(ctx, "nodegate to look at every node", func(ctx context.Context) error {
		metrics, err := meter.Of(ctx, controller.Metrics)
		if err != nil {
			return err
		}
		for _, name := range gates {
			open := int(metrics.Sum("nodegate_gate_nodes", map[string]string{"gate": name, "state": "open"}))
			if open != nodes {
				return fmt.Errorf("gate %s is open on %d of %d nodes", name, open, nodes)
			}
		}
		return nil
	})
}
