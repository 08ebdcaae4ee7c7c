// SPDX-License-Identifier: Apache-2.0

package read

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/feed"
)

// NodeSelection selects Nodes. The zero value selects all.
type NodeSelection struct {
	// Name is the name of a Node; empty for no restriction.
	Name string
	// Labels is a label selector; empty for no restriction.
	Labels string
}

func (s NodeSelection) options(o metav1.ListOptions) metav1.ListOptions {
	if o.LabelSelector = s.Labels; s.Name != "" {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.Name).String()
	}
	return o
}

// NodeMetadata returns the selected Nodes with the facts that their metadata contain:
// name, labels, records and overrides. Taints, conditions and the boot ID are missing.
// The response is small even for a large fleet.
func (r *Reader) NodeMetadata(ctx context.Context, s NodeSelection) ([]*gate.Node, error) {
	list, err := r.nodeMetadata().List(ctx, s.options(metav1.ListOptions{}))
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	store, nodes := feed.NewNodes(feed.IgnoreChange), make([]*gate.Node, 0, len(list.Items))
	for i := range list.Items {
		nodes = append(nodes, store.Convert(&corev1.Node{ObjectMeta: list.Items[i].ObjectMeta}))
	}
	return nodes, nil
}

// WatchNodeMetadata calls changed with the selected Nodes, which contain the same facts
// as those of NodeMetadata: once with all of them and an empty name, and then each time
// that a Node has changed, with its name. It returns nil when changed returns true, the
// context's error when the context ends, and another error when the API server rejects
// the request. All other errors are passed to onRequest, which may be called at any time,
// and retried. When a request succeeds, onRequest is called with nil.
func (r *Reader) WatchNodeMetadata(ctx context.Context, s NodeSelection, changed func(nodes map[string]*gate.Node, name string) (enough bool), onRequest func(error)) error {
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
	store, nodes := feed.NewNodes(feed.IgnoreChange), map[string]*gate.Node{}
	keep := func(object any) string {
		o, ok := object.(*metav1.PartialObjectMetadata)
		if !ok {
			return ""
		}
		nodes[o.Name] = store.Convert(&corev1.Node{ObjectMeta: o.ObjectMeta})
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
	_, err := watchtools.UntilWithSync(watching, r.watcher(s, checkError), &metav1.PartialObjectMetadata{}, onSync, onEvent)
	switch {
	case ctx.Err() == nil && watching.Err() != nil:
		return context.Cause(watching)
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

// watcher lists and watches the metadata of Nodes, and passes each error or nil to
// checkError.
func (r *Reader) watcher(s NodeSelection, checkError func(error) error) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := r.nodeMetadata().List(ctx, s.options(o))
			return list, checkError(err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := r.nodeMetadata().Watch(ctx, s.options(o))
			return w, checkError(err)
		},
	}
}

func (r *Reader) nodeMetadata() metadata.ResourceInterface {
	return r.names.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
}
