// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// objectHistory contains all states of nodes and pods since its beginning, from watches, in the
// order of resource versions.
type objectHistory struct {
	*env
	mu     sync.Mutex
	nodes  map[string][]*corev1.Node
	pods   map[string][]*corev1.Pod // by namespace and name
	newest map[string]int64         // by kind
	// deleted contains the resource versions at which pods were deleted, by namespace and name.
	deleted map[string]int64
}

func version(o client.Object) int64 {
	v, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	if err != nil {
		panic(err) // resource versions are comparable numbers since Kubernetes 1.35
	}
	return v
}

// watchHistory returns a history that is extended until the test ends.
func (e *env) watchHistory() *objectHistory {
	e.Helper()
	h := &objectHistory{
		env: e, nodes: make(map[string][]*corev1.Node), pods: make(map[string][]*corev1.Pod),
		newest: make(map[string]int64), deleted: make(map[string]int64),
	}
	api, err := kubernetes.NewForConfig(e.cluster.Admin())
	e.must(err)
	var now corev1.NodeList
	e.must(e.admin.List(e.Context(), &now))
	for _, kind := range []string{"nodes", "pods"} {
		all := cache.NewListWatchFromClient(api.CoreV1().RESTClient(), kind, "", fields.Everything())
		// A retry watcher, because the API server ends watches that are too slow.
		w, err := watchtools.NewRetryWatcherWithContext(e.Context(), now.ResourceVersion, all)
		e.must(err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for event := range w.ResultChan() {
				h.add(kind, event)
			}
		}()
		e.Cleanup(func() { w.Stop(); <-done })
	}
	return h
}

func (h *objectHistory) add(kind string, event watch.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch o := event.Object.(type) {
	case *corev1.Node:
		h.newest[kind] = version(o)
		h.nodes[o.Name] = append(h.nodes[o.Name], o)
	case *corev1.Pod:
		h.newest[kind] = version(o)
		key := client.ObjectKeyFromObject(o).String()
		if event.Type == watch.Deleted {
			h.deleted[key] = version(o)
			return
		}
		h.pods[key] = append(h.pods[key], o)
	}
}

// caughtUp waits until the history contains all earlier writes.
func (h *objectHistory) caughtUp() {
	h.Helper()
	k := h.kubelet("history")
	node := k.register()
	k.patch(`{"metadata":{"labels":{"last":""}}}`)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: "history"},
		Spec:       corev1.PodSpec{NodeName: "history", Containers: []corev1.Container{{Name: "none", Image: "none"}}},
	}
	h.must(h.admin.Create(h.Context(), pod))
	h.eventually("the history is complete", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		return unless(h.newest["nodes"] > version(node) && h.newest["pods"] >= version(pod))
	})
	h.must(h.admin.Delete(h.Context(), pod, client.GracePeriodSeconds(0)))
	h.must(h.admin.Delete(h.Context(), node))
}

// span is a half-open interval of resource versions.
type span struct{ from, to int64 }

// forever is greater than every resource version.
const forever = int64(1) << 62

// closed returns the spans in which the node had the taint.
func (h *objectHistory) closed(node, key string) (spans []span) {
	h.mu.Lock()
	defer h.mu.Unlock()
	on := false
	for _, n := range h.nodes[node] {
		switch now := hasTaint(n, key); {
		case now && !on:
			spans = append(spans, span{from: version(n), to: forever})
		case on && !now:
			spans[len(spans)-1].to = version(n)
		}
		on = hasTaint(n, key)
	}
	return spans
}

// lastBefore returns the pod's last state before a resource version.
func (h *objectHistory) lastBefore(pod *corev1.Pod, before int64) (last corev1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.pods[client.ObjectKeyFromObject(pod).String()] {
		if version(p) < before {
			last = *p
		}
	}
	return last
}
