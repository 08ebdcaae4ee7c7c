// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Reader reads from an API server for somebody who asks once: with that one's
// rights, no more than the question takes, and nothing of it is kept up to date. What
// it reads becomes facts in the same way as what a Feed observes.
type Reader struct {
	core   kubernetes.Interface
	gates  rest.Interface
	names  metadata.Interface
	others dynamic.Interface
}

// NewReader returns a reader of an API server.
func NewReader(config *rest.Config) (*Reader, error) {
	core, err := kubernetes.NewForConfig(coreConfig(config))
	if err != nil {
		return nil, fmt.Errorf("creating a client for core kinds: %w", err)
	}
	gates, err := gateClient(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for NodeGates: %w", err)
	}
	names, err := metadata.NewForConfig(unlimited(config))
	if err != nil {
		return nil, fmt.Errorf("creating a client for metadata: %w", err)
	}
	others, err := dynamic.NewForConfig(unlimited(config))
	if err != nil {
		return nil, fmt.Errorf("creating a client for other tools' kinds: %w", err)
	}
	return &Reader{core: core, gates: gates, names: names, others: others}, nil
}

// Gates returns all NodeGates, also those that cannot be read (see their ReadError).
// It fails with NotFound where the API server knows
// no such kind.
func (r *Reader) Gates(ctx context.Context) ([]v1alpha1.NodeGate, error) {
	var list storedGates
	if err := r.gates.Get().Resource(v1alpha1.Resource.Resource).Do(ctx).Into(&list); err != nil {
		return nil, fmt.Errorf("listing NodeGates: %w", err)
	}
	gates := make([]v1alpha1.NodeGate, 0, len(list.Items))
	for i := range list.Items {
		gates = append(gates, list.Items[i].NodeGate)
	}
	return gates, nil
}

// Node returns a Node.
func (r *Reader) Node(ctx context.Context, name string) (*corev1.Node, error) {
	node, err := r.core.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading node: %w", err)
	}
	return node, nil
}

// Nodes returns the Nodes that a label selector selects.
func (r *Reader) Nodes(ctx context.Context, selector string) ([]corev1.Node, error) {
	list, err := r.core.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return list.Items, nil
}

// Lease returns the Lease that the controller at work in a namespace holds.
func (r *Reader) Lease(ctx context.Context, namespace string) (*coordinationv1.Lease, error) {
	lease, err := r.core.CoordinationV1().Leases(namespace).Get(ctx, v1alpha1.LeaseName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the controller's lease: %w", err)
	}
	return lease, nil
}

// NodeNames returns the names of all Nodes.
func (r *Reader) NodeNames(ctx context.Context) ([]string, error) {
	list, err := r.nodeMetadata().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

// AllPods returns all pods of a node (see gate.WantPods).
func (r *Reader) AllPods(ctx context.Context, node string) (*gate.PodList, error) {
	at := time.Now()
	pods, err := podClient{r.core}.List(ctx, node)
	if err != nil {
		return nil, err
	}
	return &gate.PodList{At: at, Pods: pods}, nil
}

// Gap is something that a decision needs and that could not be read, so that it
// counts as not observed.
type Gap struct {
	// Err says what, and why.
	Err error
	// hides is nil where no signal looks at it.
	hides func(gate.Needs) bool
}

// Hides tells whether something that is needed is hidden by the gap.
func (g *Gap) Hides(n gate.Needs) bool { return g.hides != nil && g.hides(n) }

// Look returns what is known of a node, given what is needed, which may depend on
// the DaemonSets: Node, Zone, DaemonSets, Pods, CSINode and ResourceSlices are
// filled in, as far as they can be read. The zone is counted only where the node
// is silent, for on no other do decisions rest on it.
func (r *Reader) Look(ctx context.Context, node *corev1.Node, needs func(*gate.DaemonSets) gate.Needs) (gate.Facts, []Gap) {
	l := newLook(r, node.Name)
	steps := l.steps(l.begin(ctx, needs))
	n := l.nodes.convert(node)
	if n.Silent() {
		steps = append(steps, func(ctx context.Context) { l.readZone(ctx, n.Zone()) })
	}
	together(ctx, steps)
	slices.SortStableFunc(l.gaps, byError)
	return l.facts(n), l.gaps
}

func byError(a, b Gap) int { return cmp.Compare(a.Err.Error(), b.Err.Error()) }

// together asks for what does not depend on each other at the same time.
func together(ctx context.Context, steps []func(context.Context)) {
	var asked sync.WaitGroup
	for _, ask := range steps {
		asked.Go(func() { ask(ctx) })
	}
	asked.Wait()
}

// readZone counts the nodes of a zone. They need not be the newest.
func (l *look) readZone(ctx context.Context, zone string) {
	inZone, err := labels.NewRequirement(corev1.LabelTopologyZone, selection.Equals, []string{zone})
	if zone == "" {
		inZone, err = labels.NewRequirement(corev1.LabelTopologyZone, selection.DoesNotExist, nil)
	}
	var list *corev1.NodeList
	if err == nil {
		list, err = l.core.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: labels.NewSelector().Add(*inZone).String(), ResourceVersion: "0"})
	}
	if err != nil {
		l.gap(fmt.Errorf("counting the silent nodes of the node's zone: %w", err), nil)
		return
	}
	for i := range list.Items {
		l.zones.move(nil, observed(l.nodes.convert(&list.Items[i])))
	}
}

// LookAll returns what is known of all Nodes, by name, as Look does of one: each
// kind is read once, in pages. All zones are counted. It fails only if the Nodes
// cannot be read.
func (r *Reader) LookAll(ctx context.Context, needs func(*gate.DaemonSets) gate.Needs) ([]gate.Facts, []Gap, error) {
	return r.lookAll(ctx, needs, pageSize)
}

func (r *Reader) lookAll(ctx context.Context, needs func(*gate.DaemonSets) gate.Needs, page int64) ([]gate.Facts, []Gap, error) {
	l := newLookAt(r, "", page)
	var nodes []*gate.Node
	var err error
	together(ctx, append(l.steps(l.begin(ctx, needs)), func(ctx context.Context) { nodes, err = l.readNodes(ctx, nil) }))
	if err != nil {
		return nil, nil, err
	}
	all := make([]gate.Facts, 0, len(nodes))
	for _, n := range nodes {
		all = append(all, l.facts(n))
	}
	slices.SortStableFunc(l.gaps, byError)
	return all, l.gaps, nil
}

// readNodes reads the Nodes, of all, that are wanted; nil wants all.
func (l *look) readNodes(ctx context.Context, wanted func(*gate.Node) bool) ([]*gate.Node, error) {
	var nodes []*gate.Node
	err := eachOf(ctx, l.page, l.core.CoreV1().Nodes().List, metav1.ListOptions{}, func(o *corev1.Node) {
		n := l.nodes.convert(o)
		l.zones.move(nil, observed(n))
		if wanted == nil || wanted(n) {
			nodes = append(nodes, n)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	slices.SortFunc(nodes, func(a, b *gate.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, nil
}

// EveryPod returns all pods of all nodes, by node (see gate.WantPods). A node
// without pods has no key.
func (r *Reader) EveryPod(ctx context.Context) (map[string]*gate.PodList, error) {
	at := time.Now()
	all := make(map[string]*gate.PodList)
	err := eachOf(ctx, pageSize, r.core.CoreV1().Pods(metav1.NamespaceAll).List, metav1.ListOptions{FieldSelector: onSomeNode}, func(o *corev1.Pod) {
		list := all[o.Spec.NodeName]
		if list == nil {
			list = &gate.PodList{At: at}
			all[o.Spec.NodeName] = list
		}
		list.Pods = append(list.Pods, boundPod(o))
	})
	if err != nil {
		return nil, fmt.Errorf("listing all pods: %w", err)
	}
	return all, nil
}
