// SPDX-License-Identifier: Apache-2.0

package read

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/feed"
)

// readObjects reads the objects of a source. For one node it reads only those that have
// the node's name, if that is how all queries find them.
func (l *snapshot) readObjects(ctx context.Context, source gate.ObjectSource, queries []gate.ObjectQuery) {
	set := feed.NewObjects(l.nodes, queries, func(gate.ObjectQuery) func(string) { return feed.IgnoreNode })
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return l.objects.List(ctx, source, set.MetadataOnly(), o)
	}
	options := metav1.ListOptions{}
	if l.node != "" && !slices.ContainsFunc(queries, func(q gate.ObjectQuery) bool { return q.NodeBy != v1alpha1.NodeByName }) {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", l.node).String()
	}
	err := eachOf(ctx, l.page, list, options, func(o runtime.Object) { set.Put(set.Convert(o)) })
	if err != nil {
		l.addReadError("objects", err, func(n gate.Needs) bool {
			return slices.ContainsFunc(n.Objects, func(q gate.ObjectQuery) bool { return q.ObjectSource == source })
		})
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.objectSets == nil {
		l.objectSets = make(map[gate.ObjectQuery]*feed.Objects)
	}
	for _, query := range queries {
		l.objectSets[query] = set
	}
}
