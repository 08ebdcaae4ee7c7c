// SPDX-License-Identifier: Apache-2.0

// Package steady generates fleets of any size on which all gates are open.
package steady

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/fakeapi"
	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

// A Fleet is a control plane with gates and DaemonSets. It generates any number of
// Nodes and pods on which all gates are open. The result depends only on the arguments,
// and is a copy of an object that an API server has defaulted.
type Fleet struct {
	*driver.ControlPlane
	Installation *testbed.Installation
	Gates        []*unstructured.Unstructured

	node *corev1.Node
	// Daemons contains the names of the DaemonSets, sets the DaemonSets, and pods one pod of
	// each.
	Daemons []string
	sets    []*appsv1.DaemonSet
	pods    []*corev1.Pod
	// Since is the creation time of all objects.
	Since time.Time
}

//go:embed objects.yaml
var manifests []byte

// The gates of objects.yaml, and the daemons that they wait for.
var (
	GateNames   = []string{"network", "storage"}
	DaemonNames = []string{"network-agent", "block-driver", "file-driver"}
)

// NewTwoGates is New with the two gates of GateNames.
func NewTwoGates(ctx context.Context, program string) (*Fleet, error) {
	gates, err := testbed.ParseObjects(manifests)
	if err != nil {
		return nil, err
	}
	return New(ctx, program, []string{"bench.nodegate.dev/network", "bench.nodegate.dev/storage"}, gates)
}

// New starts a control plane with gates, in which nodegate is installed but not running.
// Program is the path of nodegate, which may change taints with the given keys. The caller
// must close the fleet.
func New(ctx context.Context, program string, keys []string, gates []*unstructured.Unstructured) (_ *Fleet, err error) {
	f := &Fleet{Gates: gates, Since: time.Now().Add(-48 * time.Hour).Truncate(time.Second)}
	f.ControlPlane, err = driver.StartControlPlane(ctx, testcluster.Options{Components: []testcluster.Component{testcluster.APIServer}})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if f.Installation, err = testbed.Install(ctx, f.Applier, program, keys); err != nil {
		return nil, err
	}
	objects, err := fixture.Objects()
	if err != nil {
		return nil, err
	}
	if err := f.Applier.Apply(ctx, append(objects[:len(objects)-1], gates...)...); err != nil { // without the fixture's gate
		return nil, err
	}
	return f, f.createTemplates(ctx)
}

// createTemplates creates the DaemonSets. The templates of Nodes and pods are not stored.
func (f *Fleet) createTemplates(ctx context.Context) (err error) {
	client, dryRun := f.Driver.Client(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	if f.node, err = client.CoreV1().Nodes().Create(ctx, fixture.Node(fixture.NodeName(0), f.Since), dryRun); err != nil {
		return fmt.Errorf("creating a node in a dry run: %w", err)
	}
	f.node.Spec.Taints = nil
	f.node.CreationTimestamp = metav1.NewTime(f.Since)
	for _, name := range DaemonNames {
		if err := f.AddDaemon(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// AddDaemon creates a DaemonSet and the template of its pods. All but the first are
// selected by the second gate.
func (f *Fleet) AddDaemon(ctx context.Context, name string) error {
	set, err := f.createDaemonSet(ctx, name)
	if err != nil {
		return err
	}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	pod, err := f.Driver.Client().CoreV1().Pods(fixture.Namespace).Create(ctx, fixture.Pod(set, f.node.Name), dryRun)
	if err != nil {
		return fmt.Errorf("creating a pod in a dry run: %w", err)
	}
	pod.CreationTimestamp = metav1.NewTime(f.Since)
	f.Daemons, f.sets, f.pods = append(f.Daemons, name), append(f.sets, set), append(f.pods, pod)
	return nil
}

// createDaemonSet creates a copy of the fixture's DaemonSet.
func (f *Fleet) createDaemonSet(ctx context.Context, name string) (*appsv1.DaemonSet, error) {
	sets := f.Driver.Client().AppsV1().DaemonSets(fixture.Namespace)
	template, err := sets.Get(ctx, fixture.Daemon, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading a DaemonSet: %w", err)
	}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: fixture.Namespace}, Spec: *template.Spec.DeepCopy()}
	if name != DaemonNames[0] {
		set.Labels = map[string]string{"gate": "storage"}
	}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	set.Spec.Template.Labels = maps.Clone(set.Spec.Template.Labels)
	set.Spec.Template.Labels["app"] = name
	if set, err = sets.Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("creating a DaemonSet: %w", err)
	}
	set.Status.ObservedGeneration = set.Generation // no rollout is in progress
	if set, err = sets.UpdateStatus(ctx, set, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("updating a DaemonSet's status: %w", err)
	}
	return set, nil
}

// identity returns a UUID that depends only on the arguments. UUIDs of successive numbers
// have nothing in common.
func identity(kind string, i int) string {
	return uuid.NewSHA1(uuid.Nil, fmt.Append(nil, kind, i)).String()
}

// Node returns the i-th Node.
func (f *Fleet) Node(i int) *corev1.Node {
	node, name := *f.node, fixture.NodeName(i)
	node.Name, node.UID = name, types.UID(identity("node", i))
	node.Spec.ProviderID = "example:///zone/" + name
	node.Labels = maps.Clone(node.Labels)
	node.Labels[corev1.LabelHostname] = name
	node.Labels[corev1.LabelTopologyZone] = fmt.Sprintf("region-1%c", 'a'+rune(i%3))
	node.Status.NodeInfo.BootID, node.Status.NodeInfo.MachineID = identity("boot", i), identity("machine", i)
	node.Status.NodeInfo.SystemUUID = identity("system", i)
	node.Annotations = maps.Clone(node.Annotations)
	delete(node.Annotations, v1alpha1.RecordAnnotationPrefix+fixture.Daemon)
	for n, name := range GateNames {
		since := f.Since.Add(time.Minute + time.Duration(i*len(GateNames)+n)*17*time.Millisecond)
		SetOpen(&node, name, since)
	}
	return &node
}

// SetOpen sets the record of an open gate.
func SetOpen(node *corev1.Node, name string, since time.Time) {
	node.Annotations[v1alpha1.RecordAnnotationPrefix+name] = gate.Record{
		State: v1alpha1.StateOpen, Reason: v1alpha1.ReasonSignalsHold, Boot: node.Status.NodeInfo.BootID, Source: v1alpha1.SourceCRD, Since: since,
	}.String()
}

// Pod returns a daemon's pod on the i-th Node.
func (f *Fleet) Pod(daemon, i int) *corev1.Pod {
	pod, node := *f.pods[daemon], fixture.NodeName(i)
	pod.UID = types.UID(identity(f.Daemons[daemon], i))
	pod.Name = fmt.Sprintf("%s-%.5s%d", f.Daemons[daemon], pod.UID, i)
	pod.Spec.NodeName, pod.Spec.Affinity = node, fixture.Affinity(node)
	f.setRunning(&pod)
	return &pod
}

// setRunning sets the status of a pod whose containers are ready.
func (f *Fleet) setRunning(pod *corev1.Pod) {
	pod.Status = fixture.PodStatus(pod, true, f.Since)
	for c := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[c]
		status.ContainerID = fmt.Sprintf("containerd://%x", sha256.Sum256([]byte(string(pod.UID)+status.Name)))
	}
}

// Other returns the i-th pod that no gate selects, in one of many namespaces.
func (f *Fleet) Other(i, nodes int) *corev1.Pod {
	const namespaces, services = 50, 300
	pod := *f.pods[i%len(f.pods)]
	pod.Namespace = fmt.Sprintf("team-%02d", i%namespaces)
	pod.UID = types.UID(identity("other", i))
	pod.Name = fmt.Sprintf("service-%.5s-%d", pod.UID, i)
	pod.Labels = map[string]string{"app": fmt.Sprintf("service-%03d", i%services), "pod-template-hash": "6b9f7d5c4"}
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "service", UID: types.UID(identity("set", i%services)), Controller: new(true),
	}}
	pod.Spec.NodeName, pod.Spec.Affinity = fixture.NodeName(i%nodes), nil
	f.setRunning(&pod)
	return &pod
}

// Fake returns a fleet of the given size for the fake API server.
func (f *Fleet) Fake(nodes int) fakeapi.Fleet {
	fleet := fakeapi.Fleet{Nodes: nodes, Node: f.Node, Namespace: fixture.Namespace, Heartbeats: ReportsPerSecond(nodes)}
	for daemon := range f.Daemons {
		fleet.Daemons = append(fleet.Daemons, fakeapi.Daemon{
			Labels: f.pods[daemon].Labels,
			Pod:    func(i int) *corev1.Pod { return f.Pod(daemon, i) },
		})
	}
	return fleet
}

// ReportsPerSecond returns how many nodes report each second if each reports once per
// minute, which is five times as often as kubelets report an unchanged status.
func ReportsPerSecond(nodes int) int { return max(1, nodes/60) }

// AwaitOpen waits until nodegate's metrics count the given gates as open on all nodes,
// which requires that it has reconciled them.
func AwaitOpen(ctx context.Context, controller *testbed.Controller, gates []string, nodes int) error {
	return await.Until(ctx, "nodegate to reconcile all nodes", func(ctx context.Context) error {
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

// Store writes a fleet to etcd, with a number of pods that no gate selects.
func (f *Fleet) Store(ctx context.Context, nodes, others int) error {
	if err := driver.Fill(ctx, f.Driver, nodes, f.Node); err != nil {
		return err
	}
	for daemon := range f.Daemons {
		if err := driver.Fill(ctx, f.Driver, nodes, func(i int) *corev1.Pod { return f.Pod(daemon, i) }); err != nil {
			return err
		}
	}
	return driver.Fill(ctx, f.Driver, others, func(i int) *corev1.Pod { return f.Other(i, nodes) })
}
