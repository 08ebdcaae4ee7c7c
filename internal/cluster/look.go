// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Reader reads from an API server for somebody who asks once: with that one's
// rights, no more than one node takes, and nothing of it is kept up to date. What
// it reads becomes facts in the same way as what a Feed observes.
type Reader struct {
	core  kubernetes.Interface
	gates rest.Interface
	names metadata.Interface
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
	return &Reader{core: core, gates: gates, names: names}, nil
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

// NodeNames returns the names of all Nodes.
func (r *Reader) NodeNames(ctx context.Context) ([]string, error) {
	list, err := r.names.Resource(corev1.SchemeGroupVersion.WithResource("nodes")).List(ctx, metav1.ListOptions{})
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
	l := look{Reader: r, node: node.Name, nodes: newNodeStore(nobody)}
	l.readDaemonSets(ctx, newNeeds(needs(&gate.DaemonSets{})).namespaces)
	all := needs(l.facts.DaemonSets)
	l.nodes.need(all)
	l.facts.Node = *l.nodes.convert(node)
	needed := newNeeds(all)
	if len(needed.queries) > 0 {
		l.readPods(ctx, needed.queries)
	}
	if needed.csiNodes {
		l.readCSINode(ctx)
	}
	if len(needed.drivers) > 0 {
		l.readSlices(ctx, needed.drivers)
	}
	if l.facts.Node.Silent() {
		l.readZone(ctx)
	}
	return l.facts, l.gaps
}

// nobody is told of what changes.
func nobody(string) {}

// look is one look at a node.
type look struct {
	*Reader
	node  string
	nodes *nodeStore
	facts gate.Facts
	gaps  []Gap
}

func (l *look) gap(err error, hides func(gate.Needs) bool) {
	l.gaps = append(l.gaps, Gap{Err: err, hides: hides})
}

func (l *look) readDaemonSets(ctx context.Context, namespaces map[string]bool) {
	sets := &gate.DaemonSets{Observed: make(map[string]bool, len(namespaces))}
	for namespace := range namespaces {
		list, err := l.core.AppsV1().DaemonSets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			l.gap(fmt.Errorf("listing %s: %w", daemonSetsName(namespace), err), func(n gate.Needs) bool {
				return slices.Contains(n.DaemonSetNamespaces, namespace)
			})
			continue
		}
		sets.Observed[namespace] = true
		for i := range list.Items {
			sets.Items = append(sets.Items, newDaemonSet(&list.Items[i]).DaemonSet)
		}
	}
	slices.SortFunc(sets.Items, byNamespaceAndName)
	l.facts.DaemonSets = sets
}

// readPods reads the node's pods, once for all queries.
func (l *look) readPods(ctx context.Context, queries map[gate.PodQuery]bool) {
	list, err := l.core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", l.node).String(),
	})
	if err != nil {
		l.gap(fmt.Errorf("listing the node's pods: %w", err), func(n gate.Needs) bool { return len(n.Pods) > 0 })
		return
	}
	l.facts.Pods = make(map[gate.PodQuery][]gate.Pod, len(queries))
	for query := range queries {
		selector, err := labels.Parse(query.Selector)
		if err != nil {
			l.gap(fmt.Errorf("selecting %s: %w", podsName(query), err), func(n gate.Needs) bool { return slices.Contains(n.Pods, query) })
			continue
		}
		set := newPodSet(nobody, l.nodes.intern, query.Annotation)
		for i := range list.Items {
			if o := &list.Items[i]; o.Namespace == query.Namespace && selector.Matches(labels.Set(o.Labels)) {
				set.put(set.convert(o))
			}
		}
		l.facts.Pods[query] = set.on(l.node)
	}
}

func (l *look) readCSINode(ctx context.Context) {
	set := newCSINodeSet(nobody, l.nodes.intern)
	switch o, err := l.core.StorageV1().CSINodes().Get(ctx, l.node, metav1.GetOptions{}); {
	case err == nil:
		set.put(set.convert(o))
	case !apierrors.IsNotFound(err):
		l.gap(fmt.Errorf("reading the node's CSINode: %w", err), func(n gate.Needs) bool { return n.CSINodes })
		return
	}
	l.facts.CSINode = set.of(l.node)
}

// readSlices reads the node's ResourceSlices, once for all drivers.
func (l *look) readSlices(ctx context.Context, drivers map[string]bool) {
	list, err := l.core.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorNodeName, l.node).String(),
	})
	if err != nil {
		l.gap(fmt.Errorf("listing the node's ResourceSlices: %w", explainNotServed(err)), func(n gate.Needs) bool { return len(n.ResourceSlices) > 0 })
		return
	}
	l.facts.ResourceSlices = make(map[string][]gate.ResourceSlice, len(drivers))
	for driver := range drivers {
		set := newSliceSet(nobody, l.nodes.intern)
		for i := range list.Items {
			if o := &list.Items[i]; o.Spec.Driver == driver {
				set.put(set.convert(o))
			}
		}
		l.facts.ResourceSlices[driver] = set.on(l.node)
	}
}

// readZone counts the nodes of the node's zone. They need not be the newest.
func (l *look) readZone(ctx context.Context) {
	inZone, err := labels.NewRequirement(corev1.LabelTopologyZone, selection.Equals, []string{l.facts.Node.Zone()})
	if l.facts.Node.Zone() == "" {
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
	counted := make(zones)
	for i := range list.Items {
		counted.move(nil, l.nodes.convert(&list.Items[i]))
	}
	l.facts.Zone = counted.of(&l.facts.Node)
}
