// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/bench/scene"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

// births is a control plane of its own, without an audit log and without other
// policies, in which Nodes are created in a dry run: all of a registration but
// the write to etcd, in which no policy has a part. So the ratios are stricter
// than those of whole registrations.
type births struct {
	cluster *testcluster.Cluster
	applier *testbed.Applier
	admin   kubernetes.Interface
	kubelet kubernetes.Interface
	webhook *testbed.Controller
}

// birthProfile is for how long Nodes are created for a profile.
const birthProfile = 5 * time.Second

// newborn is the name of every Node that is created here. None is stored.
const newborn = "newborn"

func newBirths(ctx context.Context) (_ *births, err error) {
	b := &births{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	b.cluster, err = testcluster.Start(ctx, testcluster.Options{Components: []testcluster.Component{testcluster.APIServer}})
	if err != nil {
		return nil, err
	}
	if b.applier, err = testbed.NewApplier(b.cluster.Admin()); err != nil {
		return nil, err
	}
	if b.admin, err = kubernetes.NewForConfig(b.cluster.Admin()); err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	config := b.cluster.Node(newborn)
	config.ContentType = runtime.ContentTypeProtobuf // as kubelets do
	if b.kubelet, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return b, nil
}

// install installs all contenders in the cluster, and returns when each works as
// expected.
func (b *births) install(ctx context.Context, program string) error {
	for i := range contenders {
		if c := &contenders[i]; c.gates > 0 {
			if err := b.writeParameter(ctx, c.namespace(), c.gates, c.selecting); err != nil {
				return err
			}
		}
	}
	address, port, err := freePort()
	if err != nil {
		return err
	}
	objects, err := contenderManifests(port)
	if err != nil {
		return err
	}
	gate, err := webhooksGate()
	if err != nil {
		return err
	}
	if err := b.applier.Apply(ctx, append(objects, gate)...); err != nil {
		return err
	}
	installation := &testbed.Installation{
		Program: program, AllowedKeys: []string{gateTaint(0)},
		ServiceAccount: types.NamespacedName{Namespace: nodegateNamespace, Name: "nodegate"},
	}
	b.webhook, err = testbed.StartController(ctx, b.cluster, installation, "--birth=webhook", "--webhook-bind-address="+address)
	if err != nil {
		return err
	}
	for i := range contenders {
		if err := b.await(ctx, &contenders[i]); err != nil {
			return err
		}
	}
	return nil
}

// webhooksGate is the gate that the webhook closes.
func webhooksGate() (*unstructured.Unstructured, error) {
	gate := gateOf(0, true)
	signal := v1alpha1.Signal{Name: "label"}
	signal.Label = &v1alpha1.KeyValueSignal{Key: "example.com/ready", Value: new("true")}
	gate.Spec.OpenWhen = []v1alpha1.Signal{signal}
	return unstructuredGate(gate)
}

func freePort() (address string, port int64, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", 0, fmt.Errorf("finding a free port: %w", err)
	}
	defer listener.Close()
	address = listener.Addr().String()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("finding a free port: %w", err)
	}
	port, err = strconv.ParseInt(text, 10, 64)
	return address, port, err
}

func (b *births) close() error {
	var errs []error
	if b.webhook != nil {
		errs = append(errs, b.webhook.Stop())
	}
	if b.cluster != nil {
		errs = append(errs, b.cluster.Stop())
	}
	return errors.Join(errs...)
}

// node is what a kubelet registers, for a contender.
func (c *contender) node() *corev1.Node {
	node := scene.Node(newborn, time.Now())
	node.Labels[contenderLabel] = c.name
	return node
}

func (b *births) create(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	created, err := b.kubelet.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return nil, fmt.Errorf("creating a Node in a dry run: %w", err)
	}
	return created, nil
}

// await waits until a contender's Nodes come out as they should. The policy that
// does nothing was there before those that one can see.
func (b *births) await(ctx context.Context, c *contender) error {
	want := c.selecting
	if c.name == byConstant || c.name == byWebhook {
		want = 1
	}
	return await.Until(ctx, "new nodes of "+c.name, func(ctx context.Context) error {
		node := c.node()
		created, err := b.create(ctx, node)
		if err != nil {
			return err
		}
		if got := len(created.Annotations) - len(node.Annotations); got != want {
			return fmt.Errorf("there are %d more annotations, want %d", got, want)
		}
		return nil
	})
}

// What is observed of each contender, in a round.
const (
	creationCPU = "API server CPU"
	webhookCPU  = "webhook CPU"
	created     = "latency"
)

// turn creates Nodes one after the other.
func (b *births) turn(ctx context.Context, c *contender, nodes int, sample report.Sample) error {
	nodes = max(1, int(float64(nodes)*c.share))
	node := c.node()
	if _, err := b.create(ctx, node); err != nil { // what the turn before has left in caches is not measured
		return err
	}
	server, webhook := b.cluster.PID(testcluster.APIServer), b.webhook.PID()
	before, err := cpuOf(server, webhook)
	if err != nil {
		return err
	}
	for range nodes {
		start := time.Now()
		if _, err := b.create(ctx, node); err != nil {
			return err
		}
		sample.Add(created, milliseconds(time.Since(start)))
	}
	after, err := cpuOf(server, webhook)
	if err != nil {
		return err
	}
	sample.Add(creationCPU, milliseconds(after[0]-before[0])/float64(nodes))
	sample.Add(webhookCPU, milliseconds(after[1]-before[1])/float64(nodes))
	return nil
}

// profileBirths profiles the API server, one of this figure's own, while Nodes of one
// gate are created. nodegate has no part in it.
func profileBirths(ctx context.Context, e *Env) (raw rawProfiles, err error) {
	b, err := newBirths(ctx)
	if err != nil {
		return raw, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.install(ctx, e.Installation.Program); err != nil {
		return raw, err
	}
	config := b.cluster.Admin()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return raw, fmt.Errorf("creating a client: %w", err)
	}
	node := (&contender{name: oneOfOne}).node()
	creating, stop := context.WithCancel(ctx)
	var all errgroup.Group
	all.Go(func() error {
		for creating.Err() == nil {
			if _, err := b.create(creating, node); err != nil && creating.Err() == nil {
				return err
			}
		}
		return nil
	})
	raw.server, err = fetchProfile(ctx, client, config.Host, birthProfile)
	stop()
	return raw, errors.Join(err, all.Wait())
}

func cpuOf(pids ...int) ([]time.Duration, error) {
	all := make([]time.Duration, len(pids))
	for i, pid := range pids {
		var err error
		if all[i], err = meter.CPU(pid); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// rounds measures all contenders in turns, forwards and then backwards.
func (b *births) rounds(ctx context.Context, rounds, nodes int) (creations, error) {
	var all creations
	for range rounds {
		round := map[string]report.Sample{}
		order := slices.Clone(contenders)
		for range 2 {
			for i := range order {
				if round[order[i].name] == nil {
					round[order[i].name] = report.Sample{}
				}
				if err := b.turn(ctx, &order[i], nodes, round[order[i].name]); err != nil {
					return nil, fmt.Errorf("measuring nodes of %s: %w", order[i].name, err)
				}
			}
			slices.Reverse(order)
		}
		all = append(all, round)
	}
	return all, nil
}
