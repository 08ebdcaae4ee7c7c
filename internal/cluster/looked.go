// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/nodegate/nodegate/internal/gate"
)

// look is one look at a node, or at all nodes. It puts what it reads into the
// same sets that feeds fill.
type look struct {
	*Reader
	// node is the node's name; empty for all.
	node string
	// page is how many objects one request asks for; 0 for all at once.
	page int64

	nodes      *nodeStore
	zones      zones
	daemonSets *gate.DaemonSets
	pods       map[gate.PodQuery]*podSet
	csiNodes   *csiNodeSet
	slices     map[string]*sliceSet

	mu   sync.Mutex // guards gaps
	gaps []Gap
}

// newLook begins a look at a node. What one node has is read at once: of a request
// with a limit, older API servers would ask etcd, and search all pods there.
func newLook(r *Reader, node string) *look { return newLookAt(r, node, 0) }

func newLookAt(r *Reader, node string, page int64) *look {
	return &look{Reader: r, node: node, page: page, nodes: newNodeStore(unheard), zones: make(zones)}
}

// nobody is told of what changes.
func nobody(string) {}

// begin reads the DaemonSets, and says what else is needed.
func (l *look) begin(ctx context.Context, needs func(*gate.DaemonSets) gate.Needs) *needs {
	l.readDaemonSets(ctx, newNeeds(needs(&gate.DaemonSets{})).namespaces)
	all := needs(l.daemonSets)
	l.nodes.need(all)
	return newNeeds(all)
}

// steps are what there is to read besides, in any order.
func (l *look) steps(needed *needs) []func(context.Context) {
	var steps []func(context.Context)
	if len(needed.queries) > 0 {
		steps = append(steps, func(ctx context.Context) { l.readPods(ctx, needed.queries) })
	}
	if needed.csiNodes {
		steps = append(steps, l.readCSINodes)
	}
	if len(needed.drivers) > 0 {
		steps = append(steps, func(ctx context.Context) { l.readSlices(ctx, needed.drivers) })
	}
	return steps
}

// facts puts together what has been read of a node.
func (l *look) facts(n *gate.Node) gate.Facts {
	f := gate.Facts{Node: *n, Zone: l.zones.of(n.Zone()), DaemonSets: l.daemonSets}
	if len(l.pods) > 0 {
		f.Pods = make(map[gate.PodQuery][]gate.Pod, len(l.pods))
		for query, set := range l.pods {
			f.Pods[query] = set.on(n.Name)
		}
	}
	if l.csiNodes != nil {
		f.CSINode = l.csiNodes.of(n.Name)
	}
	if l.slices != nil {
		f.ResourceSlices = make(map[string][]gate.ResourceSlice, len(l.slices))
		for driver, set := range l.slices {
			f.ResourceSlices[driver] = set.on(n.Name)
		}
	}
	return f
}

func (l *look) gap(err error, hides func(gate.Needs) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gaps = append(l.gaps, Gap{Err: err, hides: hides})
}

// gapOf is a gap in what the node has of something, or all nodes have.
func (l *look) gapOf(what string, err error, hides func(gate.Needs) bool) {
	if l.node != "" {
		what = "the node's " + what
	}
	l.gap(fmt.Errorf("reading %s: %w", what, err), hides)
}

func (l *look) readDaemonSets(ctx context.Context, namespaces map[string]bool) {
	sets := &gate.DaemonSets{Observed: make(map[string]bool, len(namespaces))}
	var mu sync.Mutex
	steps := make([]func(context.Context), 0, len(namespaces))
	for namespace := range namespaces {
		steps = append(steps, func(ctx context.Context) {
			items, err := l.daemonSetsIn(ctx, namespace)
			if err != nil {
				l.gap(err, func(n gate.Needs) bool { return slices.Contains(n.DaemonSetNamespaces, namespace) })
				return
			}
			mu.Lock()
			defer mu.Unlock()
			sets.Observed[namespace] = true
			sets.Items = append(sets.Items, items...)
		})
	}
	together(ctx, steps)
	slices.SortFunc(sets.Items, byNamespaceAndName)
	l.daemonSets = sets
}

func (l *look) daemonSetsIn(ctx context.Context, namespace string) ([]gate.DaemonSet, error) {
	var items []gate.DaemonSet
	err := eachOf(ctx, l.page, l.core.AppsV1().DaemonSets(namespace).List, metav1.ListOptions{}, func(o *appsv1.DaemonSet) {
		items = append(items, newDaemonSet(o).DaemonSet)
	})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", daemonSetsName(namespace), err)
	}
	return items, nil
}

// podListsMax is how many lists of pods a look at all nodes asks of one namespace
// at most: beyond this many queries all of the namespace's pods travel, once.
const podListsMax = 4

// readPods reads pods: those of one node once for all queries, and those of all
// nodes by namespace.
func (l *look) readPods(ctx context.Context, queries map[gate.PodQuery]bool) {
	byNamespace := l.podSets(queries)
	if l.node != "" {
		dealt := make(map[string][]*dealtPod, len(byNamespace))
		err := eachOf(ctx, l.page, l.core.CoreV1().Pods(metav1.NamespaceAll).List, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("spec.nodeName", l.node).String(),
		}, func(o *corev1.Pod) {
			if sets := byNamespace[o.Namespace]; sets != nil {
				dealt[o.Namespace] = append(dealt[o.Namespace], sets.convert(o))
			}
		})
		if err != nil {
			l.pods = nil
			l.gapOf("pods", err, func(n gate.Needs) bool { return len(n.Pods) > 0 })
			return
		}
		for namespace, pods := range dealt {
			byNamespace[namespace].replace(pods)
		}
		return
	}
	for namespace, sets := range byNamespace {
		l.readPodsIn(ctx, namespace, sets)
	}
}

// podSets makes a set for each query whose selector can be read, and puts
// together those of one namespace.
func (l *look) podSets(queries map[gate.PodQuery]bool) map[string]*sharedPods {
	l.pods = make(map[gate.PodQuery]*podSet, len(queries))
	sets := make(map[string][]sharedSet)
	for query := range queries {
		selector, err := labels.Parse(query.Selector)
		if err != nil {
			l.gap(fmt.Errorf("selecting %s: %w", podsName(query), err), func(n gate.Needs) bool { return slices.Contains(n.Pods, query) })
			continue
		}
		l.pods[query] = newPodSet(nobody, l.nodes, query.Annotation)
		sets[query.Namespace] = append(sets[query.Namespace], sharedSet{selector, l.pods[query]})
	}
	out := make(map[string]*sharedPods, len(sets))
	for namespace, of := range sets {
		out[namespace] = newSharedPods(of)
	}
	return out
}

// readPodsIn reads the pods of one namespace that are on some node.
func (l *look) readPodsIn(ctx context.Context, namespace string, all *sharedPods) {
	lists := []*sharedPods{all}
	selectors := []string{""}
	if len(all.sets) <= podListsMax {
		lists, selectors = nil, nil
		for _, set := range all.sets {
			lists = append(lists, newSharedPods([]sharedSet{set}))
			selectors = append(selectors, set.selector.String())
		}
	}
	for i, sets := range lists {
		var dealt []*dealtPod
		err := eachOf(ctx, l.page, l.core.CoreV1().Pods(namespace).List, metav1.ListOptions{LabelSelector: selectors[i], FieldSelector: onSomeNode},
			func(o *corev1.Pod) { dealt = append(dealt, sets.convert(o)) })
		if err != nil {
			l.forgetPodsIn(namespace)
			l.gap(fmt.Errorf("listing %s: %w", sharedPodsName(namespace), err), func(n gate.Needs) bool {
				return slices.ContainsFunc(n.Pods, func(q gate.PodQuery) bool { return q.Namespace == namespace })
			})
			return
		}
		sets.replace(dealt)
	}
}

// forgetPodsIn has the pods of a namespace count as not observed.
func (l *look) forgetPodsIn(namespace string) {
	for query := range l.pods {
		if query.Namespace == namespace {
			delete(l.pods, query)
		}
	}
}

func (l *look) readCSINodes(ctx context.Context) {
	set := newCSINodeSet(nobody, l.nodes)
	var err error
	if l.node != "" {
		var o *storagev1.CSINode
		if o, err = l.core.StorageV1().CSINodes().Get(ctx, l.node, metav1.GetOptions{}); err == nil {
			set.put(set.convert(o))
		} else if apierrors.IsNotFound(err) {
			err = nil
		}
	} else {
		err = eachOf(ctx, l.page, l.core.StorageV1().CSINodes().List, metav1.ListOptions{}, func(o *storagev1.CSINode) { set.put(set.convert(o)) })
	}
	if err != nil {
		l.gapOf("CSINodes", err, func(n gate.Needs) bool { return n.CSINodes })
		return
	}
	l.csiNodes = set
}

// readSlices reads ResourceSlices: those of one node once for all drivers, and
// those of all nodes by driver.
func (l *look) readSlices(ctx context.Context, drivers map[string]bool) {
	sets := make(map[string]*sliceSet, len(drivers))
	var selectors []string
	for driver := range drivers {
		sets[driver] = newSliceSet(nobody, l.nodes)
		selectors = append(selectors, localSlicesOf(driver))
	}
	if l.node != "" {
		selectors = []string{fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorNodeName, l.node).String()}
	}
	for _, selector := range selectors {
		err := eachOf(ctx, l.page, l.core.ResourceV1().ResourceSlices().List, metav1.ListOptions{FieldSelector: selector}, func(o *resourcev1.ResourceSlice) {
			if set := sets[o.Spec.Driver]; set != nil {
				set.put(set.convert(o))
			}
		})
		if err != nil {
			l.gapOf("ResourceSlices", explainNotServed(err), func(n gate.Needs) bool { return len(n.ResourceSlices) > 0 })
			return
		}
	}
	l.slices = sets
}

// pageSize is how many objects a request asks for that reads those of all nodes.
const pageSize = 1000

// eachOf lists objects in pages of a size, or at once if that is 0, and hands out
// one after the other.
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
