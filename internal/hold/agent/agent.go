// SPDX-License-Identifier: Apache-2.0

// Package agent runs on each node. It tells the plugin of the container runtime which gates
// are closed on the node, and which of its pods wait for them.
package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/nodegate/nodegate/internal/hold"
	"github.com/nodegate/nodegate/internal/kube/gateclient"
	"github.com/nodegate/nodegate/internal/kube/restconfig"
)

// Agent keeps the state of a node up to date.
type Agent struct {
	// Config connects to the API server.
	Config *rest.Config
	// Node is the name of the node, and Boot the ID of its current boot.
	Node, Boot string
	// Uptime returns the time since the boot.
	Uptime func() time.Duration
	Store  hold.Store
	// Bus is the socket of the system bus on which logind announces shutdowns; empty if the agent
	// does not announce them on the API server.
	Bus string
	Log *slog.Logger

	core *rest.RESTClient
	// announced is whether the agent has announced the shutdown that is in progress.
	announced          bool
	nodes, pods, gates cache.Store
	changed            chan struct{}
	// written is the state that was last written, without Uptime.
	written *hold.State
}

// Run writes the state whenever it changes, and at least every hold.Interval, until the context
// ends. It writes nothing before it has read everything.
func (a *Agent) Run(ctx context.Context) error {
	a.changed = make(chan struct{}, 1)
	synced, err := a.watch(ctx)
	if err != nil {
		return err
	}
	if a.Store.PluginBoot() != a.Boot {
		a.Log.Info("the container runtime has not started the plugin in this boot: restart the runtime or the node")
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	if a.Bus != "" {
		go a.followShutdowns(ctx)
	}
	a.notify()
	tick := time.NewTicker(hold.Interval)
	defer tick.Stop()
	for {
		select {
		case <-a.changed:
			if state := a.state(); !reflect.DeepEqual(state, a.written) {
				err = a.write(state)
			}
		case <-tick.C:
			err = a.write(a.state())
		case <-ctx.Done():
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// write writes a state, unless it is nil: the state of a Node that no longer exists expires.
func (a *Agent) write(state *hold.State) error {
	if state == nil {
		return nil
	}
	a.logGates(state)
	a.written = state
	now := *state
	now.Uptime = a.Uptime()
	if err := a.Store.Write(&now); err != nil {
		return fmt.Errorf("writing the state: %w", err)
	}
	return nil
}

// watch starts to watch the node, its pods and the gates.
func (a *Agent) watch(ctx context.Context) ([]cache.InformerSynced, error) {
	var err error
	if a.core, err = coreClient(a.Config); err != nil {
		return nil, err
	}
	gates, err := gateclient.New(a.Config)
	if err != nil {
		return nil, err
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { a.notify() }, UpdateFunc: func(_, _ any) { a.notify() }, DeleteFunc: func(any) { a.notify() },
	}
	var synced []cache.InformerSynced
	start := func(c cache.Getter, resource string, selector fields.Selector, kind runtime.Object) cache.Store {
		store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: cache.NewListWatchFromClient(c, resource, metav1.NamespaceAll, selector),
			ObjectType:    kind, Transform: trim, Handler: handler,
		})
		go informer.RunWithContext(ctx)
		synced = append(synced, informer.HasSynced)
		return store
	}
	a.nodes = start(a.core, "nodes", fields.OneTermEqualSelector(metav1.ObjectNameField, a.Node), &corev1.Node{})
	a.pods = start(a.core, "pods", fields.OneTermEqualSelector("spec.nodeName", a.Node), &corev1.Pod{})
	a.gates = start(gates, "nodegates", fields.Everything(), &gateclient.StoredGate{})
	return synced, nil
}

// coreClient returns a client for Nodes and Pods. It registers no other kinds, which would
// use memory on every node.
func coreClient(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Node{}, &corev1.NodeList{}, &corev1.Pod{}, &corev1.PodList{})
	config = restconfig.Core(config)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}

// trim removes what the state does not depend on.
func trim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		return &corev1.Pod{ObjectMeta: head(&o.ObjectMeta), Spec: corev1.PodSpec{Tolerations: o.Spec.Tolerations, RestartPolicy: o.Spec.RestartPolicy}}, nil
	case *corev1.Node:
		trimmed := &corev1.Node{ObjectMeta: head(&o.ObjectMeta)}
		trimmed.Annotations = o.Annotations
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.NodeGracefulNodeShutdownInProgress {
				trimmed.Status.Conditions = []corev1.NodeCondition{c}
			}
		}
		return trimmed, nil
	}
	return object, nil
}

func head(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, DeletionTimestamp: m.DeletionTimestamp}
}

// notify requests another comparison of the state.
func (a *Agent) notify() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// state returns the current state, or nil if the Node does not exist.
func (a *Agent) state() *hold.State {
	node := a.node()
	if node == nil {
		return nil
	}
	gates := all[*gateclient.StoredGate](a.gates)
	slices.SortFunc(gates, func(x, y *gateclient.StoredGate) int { return cmp.Compare(x.Name, y.Name) })
	return stateOf(a.Boot, node, gates, all[*corev1.Pod](a.pods))
}

// node returns what is kept of the Node, or nil if it does not exist.
func (a *Agent) node() *corev1.Node {
	object, exists, _ := a.nodes.GetByKey(a.Node) // a store in memory returns no error
	if !exists {
		return nil
	}
	return object.(*corev1.Node)
}

func all[T any](store cache.Store) []T {
	var list []T
	for _, object := range store.List() {
		list = append(list, object.(T))
	}
	return list
}

// logGates logs the gates of a state that differ from those that were last written.
func (a *Agent) logGates(state *hold.State) {
	for _, g := range state.Gates {
		if a.written == nil || !slices.Contains(a.written.Gates, g) {
			a.Log.Info("gate changed", "gate", g.Name, "open", g.Open, "seconds", g.Seconds)
		}
	}
}
