// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

const byNode = "node"

// A fleet consists of all simulated nodes. It has one watch of nodes and one of
// pods, which the kubelets and the live view share.
type fleet struct {
	plans []nodePlan
	nodes corev1listers.NodeLister
	pods  cache.Indexer

	begun    atomic.Int32 // waves
	lastErr  atomic.Pointer[error]
	kubelets []*kubelet
	running  sync.WaitGroup
}

// newFleet returns when its caches are synced. They are updated until ctx ends.
func newFleet(ctx context.Context, c *testcluster.Cluster, plans []nodePlan) (*fleet, error) {
	admin, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	factory := informers.NewSharedInformerFactory(admin, 0)
	pods := factory.Core().V1().Pods().Informer()
	f := &fleet{plans: plans, nodes: factory.Core().V1().Nodes().Lister(), pods: pods.GetIndexer()}
	index := func(object any) ([]string, error) { return []string{object.(*corev1.Pod).Spec.NodeName}, nil }
	if err := pods.AddIndexers(cache.Indexers{byNode: index}); err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("watching %s: %w", kind, context.Cause(ctx))
		}
	}
	return f, f.addKubelets(c)
}

func (f *fleet) addKubelets(c *testcluster.Cluster) error {
	cloud, err := kubernetes.NewForConfig(c.User("demo-cloud-controller", "system:masters"))
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	for _, plan := range f.plans {
		config := c.Node(plan.name)
		config.UserAgent = "kubelet" // which is its name in managed fields
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return fmt.Errorf("creating a client for %s: %w", plan.name, err)
		}
		k := newKubelet(client, cloud, plan)
		k.pods = func() []*corev1.Pod { return f.podsOn(plan.name) }
		k.onError = func(err error) { f.lastErr.Store(&err) }
		f.kubelets = append(f.kubelets, k)
	}
	return nil
}

// scaleOut starts the waves one after another. The kubelets run until ctx ends.
func (f *fleet) scaleOut(ctx context.Context) {
	for wave := range waveCount {
		if wave > 0 && await.Pause(ctx, waveEvery) != nil {
			return
		}
		f.begun.Store(int32(wave + 1))
		for _, k := range f.kubelets {
			if k.plan.wave == wave {
				f.running.Go(func() { k.run(ctx) })
			}
		}
	}
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

// reportedSince returns an error that counts the nodes whose last report is older.
func (f *fleet) reportedSince(from time.Time) error {
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

// lastError is the most recent error of a kubelet, which has retried since then.
func (f *fleet) lastError() error {
	if err := f.lastErr.Load(); err != nil {
		return *err
	}
	return nil
}

// snapshot counts the current states of nodes and pods.
func (f *fleet) snapshot(gates []gate, podsWanted int, began time.Time) snapshot {
	s := snapshot{elapsed: time.Since(began), nodes: len(f.plans), podsWanted: podsWanted}
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
