// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nodegate/nodegate/testcluster"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

const byNode = "node"

// A fleet consists of all simulated nodes. It has one watch of nodes and one of
// pods, which the kubelets and the live view share. It writes with the identity
// of each node.
type fleet struct {
	cluster *testcluster.Cluster
	cloud   kubernetes.Interface // the cloud's controller
	plans   []nodePlan

	nodes   corev1listers.NodeLister
	pods    cache.Indexer
	begun   atomic.Int32 // waves
	lastErr atomic.Pointer[error]

	mu       sync.Mutex
	kubelets map[string]*kubelet
	running  sync.WaitGroup
}

// newFleet returns when its caches are synced. They are updated until ctx ends.
func newFleet(ctx context.Context, c *testcluster.Cluster, plans []nodePlan) (*fleet, error) {
	admin, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	cloud, err := kubernetes.NewForConfig(c.User("demo-cloud-controller", "system:masters"))
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	factory := informers.NewSharedInformerFactory(admin, 0)
	pods := factory.Core().V1().Pods().Informer()
	f := &fleet{
		cluster: c, cloud: cloud, plans: plans, kubelets: map[string]*kubelet{},
		nodes: factory.Core().V1().Nodes().Lister(), pods: pods.GetIndexer(),
	}
	index := func(object any) ([]string, error) { return []string{object.(*corev1.Pod).Spec.NodeName}, nil }
	if err := pods.AddIndexers(cache.Indexers{byNode: index}); err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    f.podChanged,
		UpdateFunc: func(_, object any) { f.podChanged(object) },
	}); err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("watching %s: %w", kind, context.Cause(ctx))
		}
	}
	return f, nil
}

// podChanged wakes the kubelet of the pod's node.
func (f *fleet) podChanged(object any) {
	f.mu.Lock()
	k := f.kubelets[object.(*corev1.Pod).Spec.NodeName]
	f.mu.Unlock()
	if k == nil {
		return
	}
	select {
	case k.wake <- struct{}{}:
	default: // it is awake
	}
}

// scaleOut starts the waves one after another, and returns when the last one
// has begun. The kubelets run until ctx ends.
func (f *fleet) scaleOut(ctx context.Context) error {
	for wave := range waveCount {
		if wave > 0 && !pause(ctx, waveEvery) {
			return context.Cause(ctx)
		}
		f.begun.Store(int32(wave + 1))
		for _, plan := range f.plans {
			if plan.wave != wave {
				continue
			}
			k, err := f.newKubelet(ctx, plan)
			if err != nil {
				return err
			}
			f.running.Go(func() { k.run(ctx) })
		}
	}
	return nil
}

func (f *fleet) newKubelet(ctx context.Context, plan nodePlan) (*kubelet, error) {
	config := f.cluster.Node(plan.name)
	config.UserAgent = "kubelet" // and so its name in managed fields
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for %s: %w", plan.name, err)
	}
	k := &kubelet{
		plan: plan, client: client, wake: make(chan struct{}, 1), reported: map[types.UID]*report{},
		pods:    func() []*corev1.Pod { return f.podsOn(plan.name) },
		onError: f.noteError,
	}
	if plan.cloud {
		k.daemonsReady = func() { f.running.Go(func() { f.setUp(ctx, plan.name) }) }
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kubelets[plan.name] = k
	return k, nil
}

func (f *fleet) podsOn(node string) []*corev1.Pod {
	objects, err := f.pods.ByIndex(byNode, node)
	if err != nil { // there is such an index
		panic(err)
	}
	pods := make([]*corev1.Pod, len(objects))
	for i := range objects {
		pods[i] = objects[i].(*corev1.Pod)
	}
	return pods
}

func (f *fleet) noteError(err error) { f.lastErr.Store(&err) }

// reportedSince returns an error that counts the nodes whose last report is older.
func (f *fleet) reportedSince(from time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	missing := 0
	for _, k := range f.kubelets {
		if last := k.lastReport.Load(); last == nil || last.Before(from) {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d of %d nodes have not reported", missing, len(f.kubelets))
	}
	return nil
}

// lastError is the most recent error of a simulated component. The component
// retries after an error.
func (f *fleet) lastError() error {
	if err := f.lastErr.Load(); err != nil {
		return *err
	}
	return nil
}

// setUp removes the cloud's taint, like a cloud controller after it has set up a
// node.
func (f *fleet) setUp(ctx context.Context, name string) {
	for pause(ctx, retryAfter) {
		err := f.liftSetUpTaint(ctx, name)
		if err == nil {
			return
		}
		f.noteError(fmt.Errorf("cloud controller: setting up %s: %w", name, err))
	}
}

func (f *fleet) liftSetUpTaint(ctx context.Context, name string) error {
	node, err := f.cloud.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&setUpTaint) })
	if i < 0 {
		return nil
	}
	path := fmt.Sprintf("/spec/taints/%d", i)
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": path + "/key", "value": setUpTaint.Key},
		{"op": "remove", "path": path},
	})
	if err != nil {
		return err
	}
	_, err = f.cloud.CoreV1().Nodes().Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

// snapshot counts the current states of nodes and pods.
func (f *fleet) snapshot(gates []gate, podsWanted int, began time.Time) snapshot {
	s := snapshot{
		elapsed: time.Since(began), nodes: len(f.plans), podsWanted: podsWanted,
		waves: make([]waveCounts, waveCount),
	}
	for i := range f.plans {
		plan := &f.plans[i]
		if plan.wave >= int(f.begun.Load()) {
			continue
		}
		wave := &s.waves[plan.wave]
		wave.states[f.state(plan.name, gates)]++
		for _, pod := range f.podsOn(plan.name) {
			if pod.Namespace == metav1.NamespaceDefault {
				wave.pods++
			}
		}
	}
	return s
}

func (f *fleet) state(name string, gates []gate) state {
	node, err := f.nodes.Get(name)
	if err != nil {
		return joining
	}
	cni, init := hasTaint(node, gates[0].taint), hasTaint(node, gates[1].taint)
	switch {
	case cni && init:
		return heldByBoth
	case cni:
		return heldByCNI
	case init:
		return heldByInit
	}
	return open
}
