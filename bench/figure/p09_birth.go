// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/freeport"
)

var birth = Figure{
	ID: "P9", Title: "Costs of closing a Node while the API server creates it",
	Measure: measureBirth,
}

const (
	// The goals: the ratio to a policy that changes nothing, the growth with ten times as
	// many gates, the delays of a Node that 20 and 200 gates select, in ms, and the growth
	// of the heap that counts as none, in MiB.
	birthGoal  = 1.1
	growthGoal = 10
	someGoal   = 8
	manyGoal   = 50
	heapGoal   = 1
)

func measureBirth(ctx context.Context, e *Env) (report.Result, error) {
	e.Say("  creating nodes")
	rounds, err := measureCreations(ctx, e)
	if err != nil {
		return report.Result{}, err
	}
	e.Say("  %d ConfigMaps", e.ConfigMaps)
	without, err := measureHeaps(ctx, 0)
	if err != nil {
		return report.Result{}, err
	}
	h, err := measureHeaps(ctx, e.ConfigMaps)
	return report.Result{
		Rows: append(rounds.rows(),
			report.Alone("API server's heap, more with the birth policy, no ConfigMaps", "MiB", nil, without.birth-without.others),
			report.Alone(fmt.Sprintf("the same, %d ConfigMaps", e.ConfigMaps), "MiB", nil, h.birth-h.others),
			report.Alone("of that, because of the ConfigMaps", "MiB", report.AtMost(heapGoal), (h.birth-h.others)-(without.birth-without.others)),
			report.Alone("more with a policy whose parameter is a ConfigMap", "MiB", nil, h.configMap-h.birth)),
		Notes: []string{
			"In this figure, the limit is a MutatingAdmissionPolicy that matches the same requests and changes nothing. \"Added\" is the difference to a Node that no policy matches.",
			fmt.Sprintf("A kubelet's identity creates Nodes one after the other, in a dry run: without the write to etcd, ratios are higher than those of registrations. %d Nodes per turn (fewer of slow ones), on a control plane without an audit log. All policies are installed at the same time. Each matches Nodes with another label, so that turns follow each other without a pause.", e.Creations),
			"Times are those of the client. The values of a ratio are from the same pass over all kinds of Nodes, but not from successive turns.",
			"\"2 of 20 gates\": 2 of them select the Node. All gates are in one parameter: the API server encodes the Node as JSON and decodes it once, regardless of their number.",
			"A policy that adds a constant annotation and has no parameter is the cheapest policy that has an effect.",
			fmt.Sprintf("Live heap of an API server with %d ConfigMaps of %d KiB, after forced garbage collections. Nothing changed between the first two measurements: %+.2f MiB. Two policies without parameters, one of which changes nothing, added %+.2f MiB: the cost of the first policies of this kind.", e.ConfigMaps, configMapBytes>>10, h.again-h.before, h.others-h.before),
		},
	}, err
}

func measureCreations(ctx context.Context, e *Env) (_ creations, err error) {
	b, err := newBirths(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.install(ctx, e.Installation.Program); err != nil {
		return nil, err
	}
	all, err := b.passes(ctx, e)
	if err != nil {
		return nil, err
	}
	all.add()
	return all, nil
}

// births is a control plane without an audit log and other policies, in which Nodes are
// created in a dry run: everything but the write to etcd, which is independent of
// policies.
type births struct {
	*driver.ControlPlane
	kubelet kubernetes.Interface
	webhook *testbed.Controller
	// metricsSize is what the API server allocates to serve its metrics once, in KiB.
	metricsSize float64
}

// newborn is the name of all Nodes that are created here. None is stored.
const newborn = "newborn"

func newBirths(ctx context.Context) (_ *births, err error) {
	b := &births{}
	b.ControlPlane, err = driver.StartControlPlane(ctx, testcluster.Options{Components: []testcluster.Component{testcluster.APIServer}})
	if err != nil {
		return nil, err
	}
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
	port, err := freeport.Choose(freeport.Loopback)
	if err != nil {
		return err
	}
	objects, err := contenderManifests(int64(port))
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
	certificates, err := b.certify(ctx, program)
	if err != nil {
		return err
	}
	installation := &testbed.Installation{
		Program: program, AllowedKeys: []string{gateTaint(0)},
		ServiceAccount: types.NamespacedName{Namespace: nodegateNamespace, Name: "nodegate"},
	}
	b.webhook, err = testbed.StartController(ctx, b.Cluster, installation,
		"--birth=webhook", fmt.Sprintf("--webhook-bind-address=%s:%d", freeport.Loopback, port), "--webhook-certificate-dir="+certificates)
	if err != nil {
		return err
	}
	b.OnClose(b.webhook.Stop)
	for i := range contenders {
		if err := b.await(ctx, &contenders[i]); err != nil {
			return err
		}
	}
	return nil
}

// certify creates the webhook's certificate as an administrator does, and returns the
// directory of its files, which a kubelet would mount.
func (b *births) certify(ctx context.Context, program string) (dir string, err error) {
	command := exec.CommandContext(ctx, program, "webhook-certificate", "--kubeconfig", b.Cluster.Kubeconfig(), "--namespace", nodegateNamespace)
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("creating the webhook's certificate: %w: %s", err, output)
	}
	secret, err := b.Driver.Client().CoreV1().Secrets(nodegateNamespace).Get(ctx, admission.WebhookSecret, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading the webhook's certificate: %w", err)
	}
	dir = filepath.Join(b.Cluster.Dir(), "webhook")
	err = os.Mkdir(dir, 0o700)
	for _, name := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), secret.Data[name], 0o600))
	}
	if err != nil {
		return "", fmt.Errorf("writing the webhook's certificate: %w", err)
	}
	return dir, nil
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
