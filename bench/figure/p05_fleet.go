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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/bench/scene"
	"github.com/nodegate/nodegate/bench/standin"
	"github.com/nodegate/nodegate/internal/gate"
)

// herd makes the objects of a fleet that is open and at rest, as many as one
// likes, each the same however often it is made. What they are copies of has come
// through an API server, with all that one adds.
type herd struct {
	node *corev1.Node
	sets []*appsv1.DaemonSet
	pods []*corev1.Pod // one of each DaemonSet
	// since is when all of it came to be as it is.
	since time.Time
}

// The gates of p05_objects.yaml, and the daemons that they wait for.
var (
	herdGates   = []string{"network", "storage"}
	herdDaemons = []string{"network-agent", "block-driver", "file-driver"}
)

// newHerd creates the DaemonSets. Nothing else is stored.
func newHerd(ctx context.Context, client kubernetes.Interface) (*herd, error) {
	h := &herd{since: time.Now().Add(-48 * time.Hour).Truncate(time.Second)}
	var err error
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	if h.node, err = client.CoreV1().Nodes().Create(ctx, scene.Node(scene.NodeName(0), h.since), dryRun); err != nil {
		return nil, fmt.Errorf("creating a node in a dry run: %w", err)
	}
	h.node.Spec.Taints = nil
	h.node.CreationTimestamp = metav1.NewTime(h.since)
	for _, name := range herdDaemons {
		set, err := createDaemonSet(ctx, client, name)
		if err != nil {
			return nil, err
		}
		pod, err := client.CoreV1().Pods(scene.Namespace).Create(ctx, scene.Pod(set, h.node.Name), dryRun)
		if err != nil {
			return nil, fmt.Errorf("creating a pod in a dry run: %w", err)
		}
		pod.CreationTimestamp = metav1.NewTime(h.since)
		h.sets, h.pods = append(h.sets, set), append(h.pods, pod)
	}
	return h, nil
}

// createDaemonSet creates one that is like the benchmark's own.
func createDaemonSet(ctx context.Context, client kubernetes.Interface, name string) (*appsv1.DaemonSet, error) {
	sets := client.AppsV1().DaemonSets(scene.Namespace)
	like, err := sets.Get(ctx, scene.Daemon, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading a DaemonSet: %w", err)
	}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: scene.Namespace}, Spec: *like.Spec.DeepCopy()}
	if name != herdDaemons[0] {
		set.Labels = map[string]string{"gate": "storage"}
	}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	set.Spec.Template.Labels = maps.Clone(set.Spec.Template.Labels)
	set.Spec.Template.Labels["app"] = name
	if set, err = sets.Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("creating a DaemonSet: %w", err)
	}
	set.Status.ObservedGeneration = set.Generation // no rollout is under way
	if set, err = sets.UpdateStatus(ctx, set, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("reporting a DaemonSet: %w", err)
	}
	return set, nil
}

// identity is of the same form as any other UID, and has as little in common with
// the next one.
func identity(kind string, i int) string {
	return uuid.NewSHA1(uuid.Nil, fmt.Append(nil, kind, i)).String()
}

// nodeAt makes the node of a number, with every gate open.
func (h *herd) nodeAt(i int) *corev1.Node {
	node, name := *h.node, scene.NodeName(i)
	node.Name, node.UID = name, types.UID(identity("node", i))
	node.Spec.ProviderID = "example:///zone/" + name
	node.Labels = maps.Clone(node.Labels)
	node.Labels[corev1.LabelHostname] = name
	node.Labels[corev1.LabelTopologyZone] = fmt.Sprintf("region-1%c", 'a'+rune(i%3))
	node.Status.NodeInfo.BootID, node.Status.NodeInfo.MachineID = identity("boot", i), identity("machine", i)
	node.Status.NodeInfo.SystemUUID = identity("system", i)
	node.Annotations = maps.Clone(node.Annotations)
	delete(node.Annotations, v1alpha1.RecordAnnotationPrefix+scene.Daemon)
	for n, name := range herdGates {
		node.Annotations[v1alpha1.RecordAnnotationPrefix+name] = gate.Record{
			State: v1alpha1.StateOpen, Reason: v1alpha1.ReasonSignalsHold, Boot: node.Status.NodeInfo.BootID, Source: v1alpha1.SourceCRD,
			Since: h.since.Add(time.Minute + time.Duration(i*len(herdGates)+n)*17*time.Millisecond),
		}.String()
	}
	return &node
}

// podAt makes a daemon's pod on the node of a number.
func (h *herd) podAt(daemon, i int) *corev1.Pod {
	pod, node := *h.pods[daemon], scene.NodeName(i)
	fresh := scene.Pod(h.sets[daemon], node)
	pod.UID = types.UID(identity(herdDaemons[daemon], i))
	pod.Name = fmt.Sprintf("%s-%.5s", herdDaemons[daemon], pod.UID) + fmt.Sprint(i)
	pod.Spec.NodeName, pod.Spec.Affinity = node, fresh.Spec.Affinity
	h.run(&pod)
	return &pod
}

// run has a pod's containers be ready.
func (h *herd) run(pod *corev1.Pod) {
	pod.Status = scene.PodStatus(pod, true, h.since)
	for c := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[c]
		status.ContainerID = fmt.Sprintf("containerd://%x", sha256.Sum256([]byte(string(pod.UID)+status.Name)))
	}
}

// otherAt makes a pod that no gate has to do with, in one of many namespaces.
func (h *herd) otherAt(i, nodes int) *corev1.Pod {
	const namespaces = 50
	pod := *h.pods[i%len(h.pods)]
	pod.Namespace = fmt.Sprintf("team-%02d", i%namespaces)
	pod.UID = types.UID(identity("other", i))
	pod.Name = fmt.Sprintf("service-%.5s-%d", pod.UID, i)
	pod.Labels = map[string]string{"app": fmt.Sprintf("service-%03d", i%300), "pod-template-hash": "6b9f7d5c4"}
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "service", UID: types.UID(identity("set", i%300)), Controller: new(true),
	}}
	pod.Spec.NodeName, pod.Spec.Affinity = scene.NodeName(i%nodes), nil
	h.run(&pod)
	return &pod
}

// reports is how many nodes of a fleet report each second: every node once a
// minute, which is five times as often as kubelets do that have nothing new.
func reports(nodes int) int { return max(1, nodes/60) }

// standIn is so large a fleet for the stand-in.
func (h *herd) standIn(nodes int) standin.Fleet {
	fleet := standin.Fleet{Nodes: nodes, Node: h.nodeAt, Namespace: scene.Namespace, Heartbeats: reports(nodes)}
	for daemon := range herdDaemons {
		fleet.Daemons = append(fleet.Daemons, standin.Daemon{
			Labels: h.pods[daemon].Labels,
			Pod:    func(i int) *corev1.Pod { return h.podAt(daemon, i) },
		})
	}
	return fleet
}

// sizes says how large the objects are on the wire, in bytes.
func (h *herd) sizes() (node, pod int, err error) {
	node, pod = h.nodeAt(0).Size(), h.podAt(0, 0).Size()
	const least = 2 << 10
	if node < least || pod < least {
		return 0, 0, errors.New("the fleet's objects are smaller than real ones")
	}
	return node, pod, nil
}
