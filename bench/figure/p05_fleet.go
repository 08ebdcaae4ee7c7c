// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"crypto/sha256"
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
	"github.com/nodegate/nodegate/bench/fakeapi"
	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

// A steadyFleet is a control plane with gates and DaemonSets. It generates any number of
// Nodes and pods on which all gates are open. The result depends only on the arguments,
// and is a copy of an object that an API server has defaulted.
type steadyFleet struct {
	*controlPlane
	installation *testbed.Installation
	gates        []*unstructured.Unstructured

	node *corev1.Node
	// daemons contains the names of the DaemonSets, sets the DaemonSets, and pods one pod of
	// each.
	daemons []string
	sets    []*appsv1.DaemonSet
	pods    []*corev1.Pod
	// since is the creation time of all objects.
	since time.Time
}

// The gates of p05_objects.yaml, and the daemons that they wait for.
var (
	steadyGates   = []string{"network", "storage"}
	steadyDaemons = []string{"network-agent", "block-driver", "file-driver"}
)

// newTwoGateFleet returns a steadyFleet with the two gates of steadyGates.
func newTwoGateFleet(ctx context.Context, e *Env) (*steadyFleet, error) {
	gates, err := testbed.ParseObjects(steadyObjects)
	if err != nil {
		return nil, err
	}
	return newSteadyFleet(ctx, e, []string{"bench.nodegate.dev/network", "bench.nodegate.dev/storage"}, gates)
}

// newSteadyFleet starts a control plane with gates, in which nodegate is installed but not
// running. nodegate may change taints with the given keys.
func newSteadyFleet(ctx context.Context, e *Env, keys []string, gates []*unstructured.Unstructured) (_ *steadyFleet, err error) {
	f := &steadyFleet{gates: gates, since: time.Now().Add(-48 * time.Hour).Truncate(time.Second)}
	f.controlPlane, err = startControlPlane(ctx, testcluster.Options{Components: []testcluster.Component{testcluster.APIServer}})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if f.installation, err = testbed.Install(ctx, f.Applier, e.Installation.Program, keys); err != nil {
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
func (f *steadyFleet) createTemplates(ctx context.Context) (err error) {
	client, dryRun := f.Driver.Client(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	if f.node, err = client.CoreV1().Nodes().Create(ctx, fixture.Node(fixture.NodeName(0), f.since), dryRun); err != nil {
		return fmt.Errorf("creating a node in a dry run: %w", err)
	}
	f.node.Spec.Taints = nil
	f.node.CreationTimestamp = metav1.NewTime(f.since)
	for _, name := range steadyDaemons {
		if err := f.addDaemon(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// addDaemon creates a DaemonSet and the template of its pods. All but the first are
// selected by the second gate.
func (f *steadyFleet) addDaemon(ctx context.Context, name string) error {
	set, err := f.createDaemonSet(ctx, name)
	if err != nil {
		return err
	}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	pod, err := f.Driver.Client().CoreV1().Pods(fixture.Namespace).Create(ctx, fixture.Pod(set, f.node.Name), dryRun)
	if err != nil {
		return fmt.Errorf("creating a pod in a dry run: %w", err)
	}
	pod.CreationTimestamp = metav1.NewTime(f.since)
	f.daemons, f.sets, f.pods = append(f.daemons, name), append(f.sets, set), append(f.pods, pod)
	return nil
}

// createDaemonSet creates a copy of the fixture's DaemonSet.
func (f *steadyFleet) createDaemonSet(ctx context.Context, name string) (*appsv1.DaemonSet, error) {
	sets := f.Driver.Client().AppsV1().DaemonSets(fixture.Namespace)
	template, err := sets.Get(ctx, fixture.Daemon, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading a DaemonSet: %w", err)
	}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: fixture.Namespace}, Spec: *template.Spec.DeepCopy()}
	if name != steadyDaemons[0] {
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

// nodeAt returns the i-th Node.
func (f *steadyFleet) nodeAt(i int) *corev1.Node {
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
	for n, name := range steadyGates {
		since := f.since.Add(time.Minute + time.Duration(i*len(steadyGates)+n)*17*time.Millisecond)
		setOpen(&node, name, since)
	}
	return &node
}

// setOpen sets the record of an open gate.
func setOpen(node *corev1.Node, name string, since time.Time) {
	node.Annotations[v1alpha1.RecordAnnotationPrefix+name] = gate.Record{
		State: v1alpha1.StateOpen, Reason: v1alpha1.ReasonSignalsHold, Boot: node.Status.NodeInfo.BootID, Source: v1alpha1.SourceCRD, Since: since,
	}.String()
}

// podAt returns a daemon's pod on the i-th Node.
func (f *steadyFleet) podAt(daemon, i int) *corev1.Pod {
	pod, node := *f.pods[daemon], fixture.NodeName(i)
	pod.UID = types.UID(identity(f.daemons[daemon], i))
	pod.Name = fmt.Sprintf("%s-%.5s%d", f.daemons[daemon], pod.UID, i)
	pod.Spec.NodeName, pod.Spec.Affinity = node, fixture.Affinity(node)
	f.setRunning(&pod)
	return &pod
}

// setRunning sets the status of a pod whose containers are ready.
func (f *steadyFleet) setRunning(pod *corev1.Pod) {
	pod.Status = fixture.PodStatus(pod, true, f.since)
	for c := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[c]
		status.ContainerID = fmt.Sprintf("containerd://%x", sha256.Sum256([]byte(string(pod.UID)+status.Name)))
	}
}

// otherAt returns the i-th pod that no gate selects, in one of many namespaces.
func (f *steadyFleet) otherAt(i, nodes int) *corev1.Pod {
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

// fakeFleet returns a fleet of the given size for the fake API server.
func (f *steadyFleet) fakeFleet(nodes int) fakeapi.Fleet {
	fleet := fakeapi.Fleet{Nodes: nodes, Node: f.nodeAt, Namespace: fixture.Namespace, Heartbeats: reportsPerSecond(nodes)}
	for daemon := range f.daemons {
		fleet.Daemons = append(fleet.Daemons, fakeapi.Daemon{
			Labels: f.pods[daemon].Labels,
			Pod:    func(i int) *corev1.Pod { return f.podAt(daemon, i) },
		})
	}
	return fleet
}

// reportsPerSecond returns how many nodes report each second if each reports once per
// minute, which is five times as often as kubelets report an unchanged status.
func reportsPerSecond(nodes int) int { return max(1, nodes/60) }

// awaitOpen waits until nodegate's metrics count the given gates as open on all nodes,
// which requires that it has reconciled them.
func awaitOpen(ctx context.Context, controller *testbed.Controller, gates []string, nodes int) error {
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
