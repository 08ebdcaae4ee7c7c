// SPDX-License-Identifier: Apache-2.0

package read

import (
	"context"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/pager"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/clients"
	"github.com/nodegate/nodegate/internal/kube/feed"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
)

// snapshot reads the facts about one node, or about all nodes, once. It stores what it
// reads in the same sets that feeds fill.
type snapshot struct {
	*Reader
	// node is the name of the node; empty for all nodes.
	node string
	// selection selects the nodes to read if node is empty.
	selection NodeSelection
	// page is the number of objects for each request; 0 for no limit.
	page int64

	nodes      *nodestore.Store
	zones      nodestore.Zones
	daemonSets *gate.DaemonSets
	pods       map[gate.PodQuery]*feed.Pods
	csiNodes   *feed.CSINodes
	slices     deviceSets
	objectSets map[gate.ObjectQuery]*feed.Objects

	mu   sync.Mutex // guards errs, slices and objectSets
	errs []Error
}

func newSnapshot(r *Reader, node string, page int64) *snapshot {
	return &snapshot{Reader: r, node: node, page: page, nodes: nodestore.New(nodestore.Options{}), zones: make(nodestore.Zones)}
}

// begin reads the DaemonSets, and returns what else is needed.
func (l *snapshot) begin(ctx context.Context, needs func(*gate.DaemonSets) gate.Needs) *feed.Needs {
	l.readDaemonSets(ctx, feed.NewNeeds(needs(&gate.DaemonSets{})).Namespaces)
	all := needs(l.daemonSets)
	l.nodes.Need(all)
	return feed.NewNeeds(all)
}

// steps returns the remaining reads, which do not depend on each other.
func (l *snapshot) steps(needed *feed.Needs) []func(context.Context) {
	var steps []func(context.Context)
	if len(needed.Queries) > 0 {
		steps = append(steps, func(ctx context.Context) { l.readPods(ctx, needed.Queries) })
	}
	if needed.CSINodes {
		steps = append(steps, l.readCSINodes)
	}
	if len(needed.Slices) > 0 {
		steps = append(steps, func(ctx context.Context) { l.readSlices(ctx, needed.Slices) })
	}
	if needed.DeviceTaintRules {
		steps = append(steps, l.readDeviceTaintRules)
	}
	for source, queries := range feed.BySource(needed.Objects) {
		steps = append(steps, func(ctx context.Context) { l.readObjects(ctx, source, queries) })
	}
	return steps
}

// facts assembles the facts about a node.
func (l *snapshot) facts(n *gate.Node) gate.Facts {
	f := gate.Facts{Node: *n, Zone: l.zones.Of(n.Zone()), DaemonSets: l.daemonSets}
	if len(l.pods) > 0 {
		f.Pods = make(map[gate.PodQuery][]gate.Pod, len(l.pods))
		for query, set := range l.pods {
			f.Pods[query] = set.On(n.Name)
		}
	}
	if l.csiNodes != nil {
		f.CSINode = l.csiNodes.Of(n.Name)
	}
	l.slices.fill(&f)
	if len(l.objectSets) > 0 {
		f.Objects = make(map[gate.ObjectQuery][]gate.Object, len(l.objectSets))
		for query, set := range l.objectSets {
			f.Objects[query] = set.On(n.Name, query)
		}
	}
	return f
}

func (l *snapshot) addError(err error, hides func(gate.Needs) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, Error{Err: err, hides: hides})
}

// addReadError adds the error of reading a resource of the node or of all nodes.
func (l *snapshot) addReadError(what string, err error, hides func(gate.Needs) bool) {
	if l.node != "" {
		what = "the node's " + what
	}
	l.addError(fmt.Errorf("reading %s: %w", what, err), hides)
}

func (l *snapshot) readDaemonSets(ctx context.Context, namespaces map[string]bool) {
	sets := &gate.DaemonSets{Observed: make(map[string]bool, len(namespaces))}
	var mu sync.Mutex
	steps := make([]func(context.Context), 0, len(namespaces))
	for namespace := range namespaces {
		steps = append(steps, func(ctx context.Context) {
			items, err := l.daemonSetsIn(ctx, namespace)
			if err != nil {
				l.addError(err, func(n gate.Needs) bool { return slices.Contains(n.DaemonSetNamespaces, namespace) })
				return
			}
			mu.Lock()
			defer mu.Unlock()
			sets.Observed[namespace] = true
			sets.Items = append(sets.Items, items...)
		})
	}
	inParallel(ctx, steps)
	slices.SortFunc(sets.Items, feed.ByNamespaceAndName)
	l.daemonSets = sets
}

func (l *snapshot) daemonSetsIn(ctx context.Context, namespace string) ([]gate.DaemonSet, error) {
	var items []gate.DaemonSet
	err := eachOf(ctx, l.page, l.core.AppsV1().DaemonSets(namespace).List, metav1.ListOptions{}, func(o *appsv1.DaemonSet) {
		items = append(items, feed.NewDaemonSet(o).DaemonSet)
	})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", feed.DaemonSetsName(namespace), err)
	}
	return items, nil
}

// podListsMax is the maximum number of pod lists that a snapshot of all nodes requests
// for one namespace. For more queries it lists all pods of the namespace once.
const podListsMax = 4

// readPods reads pods: for one node with a single list for all queries, and for all nodes
// by namespace.
func (l *snapshot) readPods(ctx context.Context, queries map[gate.PodQuery]bool) {
	byNamespace := l.podSets(queries)
	if l.node != "" {
		pods := make(map[string][]*feed.SharedPod, len(byNamespace))
		err := eachOf(ctx, l.page, l.core.CoreV1().Pods(metav1.NamespaceAll).List, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("spec.nodeName", l.node).String(),
		}, func(o *corev1.Pod) {
			if sets := byNamespace[o.Namespace]; sets != nil {
				pods[o.Namespace] = append(pods[o.Namespace], sets.Convert(o))
			}
		})
		if err != nil {
			l.pods = nil
			l.addReadError("pods", err, func(n gate.Needs) bool { return len(n.Pods) > 0 })
			return
		}
		for namespace, pods := range pods {
			byNamespace[namespace].Replace(pods)
		}
		return
	}
	for namespace, sets := range byNamespace {
		l.readPodsIn(ctx, namespace, sets)
	}
}

// podSets creates a set for each query whose selector can be parsed, and groups the sets
// by namespace.
func (l *snapshot) podSets(queries map[gate.PodQuery]bool) map[string]*feed.SharedPods {
	l.pods = make(map[gate.PodQuery]*feed.Pods, len(queries))
	sets := make(map[string][]feed.SharedSet)
	for query := range queries {
		selector, err := labels.Parse(query.Selector)
		if err != nil {
			l.addError(fmt.Errorf("selecting %s: %w", feed.PodsName(query), err), func(n gate.Needs) bool { return slices.Contains(n.Pods, query) })
			continue
		}
		l.pods[query] = feed.NewPods(feed.IgnoreNode, l.nodes, query)
		sets[query.Namespace] = append(sets[query.Namespace], feed.SharedSet{Selector: selector, Pods: l.pods[query]})
	}
	out := make(map[string]*feed.SharedPods, len(sets))
	for namespace, of := range sets {
		out[namespace] = feed.NewSharedPods(of)
	}
	return out
}

// readPodsIn reads those pods of a namespace that are bound to a node.
func (l *snapshot) readPodsIn(ctx context.Context, namespace string, all *feed.SharedPods) {
	lists := []*feed.SharedPods{all}
	selectors := []string{""}
	if len(all.Sets) <= podListsMax {
		lists, selectors = nil, nil
		for _, set := range all.Sets {
			lists = append(lists, feed.NewSharedPods([]feed.SharedSet{set}))
			selectors = append(selectors, set.Selector.String())
		}
	}
	for i, sets := range lists {
		var pods []*feed.SharedPod
		list := corev1client.New(l.thin.Of(sets.Query())).Pods(namespace).List
		err := eachOf(ctx, l.page, list, metav1.ListOptions{LabelSelector: selectors[i], FieldSelector: clients.OnSomeNode},
			func(o *corev1.Pod) { pods = append(pods, sets.Convert(o)) })
		if err != nil {
			l.dropPodsIn(namespace)
			l.addError(fmt.Errorf("listing %s: %w", feed.SharedPodsName(namespace), err), func(n gate.Needs) bool {
				return slices.ContainsFunc(n.Pods, func(q gate.PodQuery) bool { return q.Namespace == namespace })
			})
			return
		}
		sets.Replace(pods)
	}
}

// dropPodsIn makes the pods of a namespace count as not observed.
func (l *snapshot) dropPodsIn(namespace string) {
	for query := range l.pods {
		if query.Namespace == namespace {
			delete(l.pods, query)
		}
	}
}

func (l *snapshot) readCSINodes(ctx context.Context) {
	set := feed.NewCSINodes(feed.IgnoreNode, l.nodes)
	var err error
	if l.node != "" {
		var o *storagev1.CSINode
		if o, err = l.core.StorageV1().CSINodes().Get(ctx, l.node, metav1.GetOptions{}); err == nil {
			set.Put(set.Convert(o))
		} else if apierrors.IsNotFound(err) {
			err = nil
		}
	} else {
		err = eachOf(ctx, l.page, l.core.StorageV1().CSINodes().List, metav1.ListOptions{}, func(o *storagev1.CSINode) { set.Put(set.Convert(o)) })
	}
	if err != nil {
		l.addReadError("CSINodes", err, func(n gate.Needs) bool { return n.CSINodes })
		return
	}
	l.csiNodes = set
}

// pageSize is the number of objects for each request that lists objects of all nodes.
const pageSize = 1000

// eachOf lists objects in pages, or at once if page is 0, and calls each for each object.
func eachOf[L runtime.Object, O any](ctx context.Context, page int64, list func(context.Context, metav1.ListOptions) (L, error), o metav1.ListOptions, each func(O)) error {
	p := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) })
	p.PageSize = page
	return p.EachListItem(ctx, o, func(item runtime.Object) error {
		object, ok := item.(O)
		if !ok {
			return fmt.Errorf("unexpected %T in a list", item)
		}
		each(object)
		return nil
	})
}
