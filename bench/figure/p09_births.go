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

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

// births is a control plane without an audit log and other policies, in which Nodes are
// created in a dry run: everything but the write to etcd, which is independent of
// policies.
type births struct {
	*controlPlane
	admin   kubernetes.Interface
	kubelet kubernetes.Interface
	webhook *testbed.Controller
}

// birthProfile is the time for which Nodes are created for a profile.
const birthProfile = 5 * time.Second

// newborn is the name of all Nodes that are created here. None is stored.
const newborn = "newborn"

func newBirths(ctx context.Context) (_ *births, err error) {
	b := &births{}
	b.controlPlane, err = startControlPlane(ctx, testcluster.Options{Components: []testcluster.Component{testcluster.APIServer}})
	if err != nil {
		return nil, err
	}
	b.admin = b.Driver.Client()
	config := b.Cluster.Node(newborn)
	config.ContentType = runtime.ContentTypeProtobuf // like kubelets
	if b.kubelet, err = kubernetes.NewForConfig(config); err != nil {
		return nil, errors.Join(fmt.Errorf("creating a client: %w", err), b.Close())
	}
	return b, nil
}

// install installs all contenders, and returns when all are in effect.
func (b *births) install(ctx context.Context, program string) error {
	for i := range contenders {
		if c := &contenders[i]; c.gates > 0 {
			if err := b.writeParameter(ctx, c.namespace(), c.gates, c.selecting); err != nil {
				return err
			}
		}
	}
	address, err := testbed.FreeAddress()
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("finding a free port: %w", err)
	}
	number, err := strconv.ParseInt(port, 10, 64)
	if err != nil {
		return fmt.Errorf("finding a free port: %w", err)
	}
	objects, err := contenderManifests(number)
	if err != nil {
		return err
	}
	gate, err := webhookGate()
	if err != nil {
		return err
	}
	if err := b.Applier.Apply(ctx, append(objects, gate)...); err != nil {
		return err
	}
	installation := &testbed.Installation{
		Program: program, AllowedKeys: []string{gateTaint(0)},
		ServiceAccount: types.NamespacedName{Namespace: nodegateNamespace, Name: "nodegate"},
	}
	b.webhook, err = testbed.StartController(ctx, b.Cluster, installation, "--birth=webhook", "--webhook-bind-address="+address)
	if err != nil {
		return err
	}
	b.onClose(b.webhook.Stop)
	for i := range contenders {
		if err := b.await(ctx, &contenders[i]); err != nil {
			return err
		}
	}
	return nil
}

// webhookGate returns the gate that the webhook closes.
func webhookGate() (*unstructured.Unstructured, error) {
	gate := gateOf(0, true)
	signal := v1alpha1.Signal{Name: "label"}
	signal.Label = &v1alpha1.KeyValueSignal{Key: "example.com/ready", Value: new("true")}
	gate.Spec.OpenWhen = []v1alpha1.Signal{signal}
	return unstructuredGate(gate)
}

// node returns the Node that a kubelet registers for a contender.
func (c *contender) node() *corev1.Node {
	node := fixture.Node(newborn, time.Now())
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

// await waits until a contender has its effect on new Nodes. The policy that changes
// nothing was installed before others whose effect is visible.
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

// Quantities of a contender in a round.
const (
	creationCPU  = "API server CPU" // ms per Node, one observation per turn
	webhookCPU   = "webhook CPU"    // the same of the webhook
	created      = "latency"        // ms of each CREATE
	addedCPU     = "added CPU"      // ms per Node
	addedLatency = "added latency"  // ms, of the median
)

// turn creates Nodes one after the other.
func (b *births) turn(ctx context.Context, c *contender, nodes int, sample report.Sample) error {
	nodes = max(1, int(float64(nodes)*c.share))
	node := c.node()
	if _, err := b.create(ctx, node); err != nil { // replaces what the previous turn left in caches
		return err
	}
	server, webhook, err := b.cpu()
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
	serverAfter, webhookAfter, err := b.cpu()
	sample.Add(creationCPU, milliseconds(serverAfter-server)/float64(nodes))
	sample.Add(webhookCPU, milliseconds(webhookAfter-webhook)/float64(nodes))
	return err
}

// cpu returns the CPU times of the API server and of the webhook.
func (b *births) cpu() (server, webhook time.Duration, err error) {
	if server, err = meter.CPU(b.Cluster.PID(testcluster.APIServer)); err != nil {
		return 0, 0, err
	}
	webhook, err = meter.CPU(b.webhook.PID())
	return server, webhook, err
}

// rounds measures all contenders in turns, forwards and then backwards.
func (b *births) rounds(ctx context.Context, rounds, nodes int) (all creations, err error) {
	for range rounds {
		round := map[string]report.Sample{}
		order := slices.Clone(contenders)
		for range 2 {
			for i := range order {
				c := &order[i]
				if round[c.name] == nil {
					round[c.name] = report.Sample{}
				}
				if err := b.turn(ctx, c, nodes, round[c.name]); err != nil {
					return nil, fmt.Errorf("measuring nodes of %s: %w", c.name, err)
				}
			}
			slices.Reverse(order)
		}
		all = append(all, round)
	}
	return all, nil
}

// profileCreations profiles the API server while it creates Nodes with one gate.
func profileCreations(ctx context.Context, e *Env) (raw profiles, err error) {
	b, err := newBirths(ctx)
	if err != nil {
		return raw, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.install(ctx, e.Installation.Program); err != nil {
		return raw, err
	}
	node := (&contender{name: oneOfOne}).node()
	creating, stop := context.WithCancel(ctx)
	var creator errgroup.Group
	creator.Go(func() error {
		for creating.Err() == nil {
			if _, err := b.create(creating, node); err != nil && creating.Err() == nil {
				return err
			}
		}
		return nil
	})
	raw.server, err = serverProfile(ctx, b.Cluster, birthProfile)
	stop()
	return raw, errors.Join(err, creator.Wait())
}
