// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
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
)

// Selection says which Nodes are meant. The zero value means all.
type Selection struct {
	// Name is that of the one Node that is meant; empty for no restriction.
	Name string
	// Labels is a label selector; empty for no restriction.
	Labels string
}

func (s Selection) options(o metav1.ListOptions) metav1.ListOptions {
	if o.LabelSelector = s.Labels; s.Name != "" {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.Name).String()
	}
	return o
}

// Roster returns the Nodes that are selected, as far as their metadata tell: name,
// labels, records and overrides, in one small answer however large the fleet.
// Taints, conditions and boot are missing.
func (r *Reader) Roster(ctx context.Context, s Selection) ([]*gate.Node, error) {
	list, err := r.nodeMetadata().List(ctx, s.options(metav1.ListOptions{}))
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	store, nodes := newNodeStore(unheard), make([]*gate.Node, 0, len(list.Items))
	for i := range list.Items {
		nodes = append(nodes, store.convert(&corev1.Node{ObjectMeta: list.Items[i].ObjectMeta}))
	}
	return nodes, nil
}

// Follow tells of the Nodes that are selected as Roster has them: first of all of
// them, with an empty name, and then each time that the Node of a name has changed,
// come or gone. It returns when tell answers that it has heard enough; when the
// context ends, with that one's error; and when nothing can be told, for want of a
// right. Any other failure is told to failing, at any time, and overcome.
func (r *Reader) Follow(ctx context.Context, s Selection, tell func(nodes map[string]*gate.Node, name string) (enough bool), failing func(error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	note := func(err error) error {
		switch {
		case err == nil, ctx.Err() != nil:
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsBadRequest(err):
			cancel(fmt.Errorf("watching nodes: %w", err))
		default:
			failing(err)
		}
		return err
	}
	store, nodes := newNodeStore(unheard), map[string]*gate.Node{}
	keep := func(object any) string {
		o, ok := object.(*metav1.PartialObjectMetadata)
		if !ok {
			return ""
		}
		nodes[o.Name] = store.convert(&corev1.Node{ObjectMeta: o.ObjectMeta})
		return o.Name
	}
	all := func(known cache.Store) (bool, error) {
		for _, o := range known.List() {
			keep(o)
		}
		return tell(nodes, ""), nil
	}
	changed := func(event watch.Event) (bool, error) {
		name := keep(event.Object)
		if name == "" {
			return false, nil
		}
		if event.Type == watch.Deleted {
			delete(nodes, name)
		}
		return tell(nodes, name), nil
	}
	_, err := watchtools.UntilWithSync(ctx, r.watcher(s, note), &metav1.PartialObjectMetadata{}, all, changed)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// watcher lists and watches the metadata of Nodes, and has each outcome noted.
func (r *Reader) watcher(s Selection, note func(error) error) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := r.nodeMetadata().List(ctx, s.options(o))
			return list, note(err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := r.nodeMetadata().Watch(ctx, s.options(o))
			return w, note(err)
		},
	}
}

func (r *Reader) nodeMetadata() metadata.ResourceInterface {
	return r.names.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
}
