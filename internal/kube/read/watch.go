// SPDX-License-Identifier: Apache-2.0

package read

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
)

// NodeTaints returns the selected Nodes with the facts that their metadata contain (see
// NodeMetadata), and taints. Nodes that are about to be adopted as closed have a taint, but
// no record.
func (r *Reader) NodeTaints(ctx context.Context, s NodeSelection) ([]*gate.Node, error) {
	store, nodes := nodestore.New(nodestore.Options{}), []*gate.Node{}
	err := eachOf(ctx, pageSize, r.thinNodes().List, s.options(metav1.ListOptions{}), func(o *corev1.Node) {
		nodes = append(nodes, store.Convert(withTaints(o)))
	})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return nodes, nil
}

// WatchNodeTaints calls changed with the selected Nodes, which contain the same facts as
// those of NodeTaints: once with all of them and an empty name, and then each time that a
// Node has changed, with its name. It returns nil when changed returns true, the
// context's error when the context ends, and another error when the API server rejects
// the request. All other errors are passed to onRequest, which may be called at any time,
// and retried. When a request succeeds, onRequest is called with nil.
func (r *Reader) WatchNodeTaints(ctx context.Context, s NodeSelection, changed func(nodes map[string]*gate.Node, name string) (enough bool), onRequest func(error)) error {
	watching, reject := context.WithCancelCause(ctx)
	defer reject(nil)
	checkError := func(err error) error {
		switch {
		case watching.Err() != nil:
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsBadRequest(err):
			reject(fmt.Errorf("watching nodes: %w", err))
		default:
			onRequest(err)
		}
		return err
	}
	store, nodes := nodestore.New(nodestore.Options{}), map[string]*gate.Node{}
	keep := func(object any) string {
		o, ok := object.(*corev1.Node)
		if !ok {
			return ""
		}
		nodes[o.Name] = store.Convert(withTaints(o))
		return o.Name
	}
	onSync := func(known cache.Store) (bool, error) {
		for _, o := range known.List() {
			keep(o)
		}
		return changed(nodes, ""), nil
	}
	onEvent := func(event watch.Event) (bool, error) {
		name := keep(event.Object)
		if name == "" {
			return false, nil
		}
		if event.Type == watch.Deleted {
			delete(nodes, name)
		}
		return changed(nodes, name), nil
	}
	_, err := watchtools.UntilWithSync(watching, r.watcher(s, checkError), &corev1.Node{}, onSync, onEvent)
	switch {
	case ctx.Err() == nil && watching.Err() != nil:
		return context.Cause(watching)
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

// watcher lists and watches Nodes, and passes each error or nil to
// checkError.
func (r *Reader) watcher(s NodeSelection, checkError func(error) error) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := r.thinNodes().List(ctx, s.options(o))
			return list, checkError(err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := r.thinNodes().Watch(ctx, s.options(o))
			return w, checkError(err)
		},
	}
}

// withTaints returns the parts of a Node that decisions without signals depend on. What else it
// contains, such as whether the node is ready, has a meaning only with the facts about other nodes.
func withTaints(o *corev1.Node) *corev1.Node {
	return &corev1.Node{ObjectMeta: o.ObjectMeta, Spec: corev1.NodeSpec{Taints: o.Spec.Taints}}
}

func (r *Reader) thinNodes() corev1client.NodeInterface { return corev1client.New(r.thin.Thin).Nodes() }
