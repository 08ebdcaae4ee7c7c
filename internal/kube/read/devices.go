// SPDX-License-Identifier: Apache-2.0

package read

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/clients"
	"github.com/nodegate/nodegate/internal/kube/feed"
)

// deviceSets contains what was read of ResourceSlices and DeviceTaintRules. If needs is
// nil, ResourceSlices could not be read.
type deviceSets struct {
	local  map[string]*feed.ResourceSlices
	shared map[string]*feed.SharedSlices
	needs  map[feed.SliceSource]feed.SliceNeeds
	rules  *gate.DeviceTaintRules
}

// fill adds the facts about a node's devices.
func (s *deviceSets) fill(f *gate.Facts) {
	for source, needs := range s.needs {
		feed.AddSlices(f, source, needs, s.local[source.Driver], s.shared[source.Driver])
	}
	f.DeviceTaintRules = s.rules
}

func ignoreAspect(gate.Aspect) func(string) { return feed.IgnoreNode }

// readSlices reads ResourceSlices: node-local ones of one node with a single list for all
// drivers, and all others by source.
func (l *snapshot) readSlices(ctx context.Context, needed map[feed.SliceSource]feed.SliceNeeds) {
	sets := deviceSets{local: make(map[string]*feed.ResourceSlices), shared: make(map[string]*feed.SharedSlices)}
	selectors := make(map[string]bool)
	for source, needs := range needed {
		selector := source.FieldSelector()
		if source.Shared {
			sets.shared[source.Driver] = feed.NewSharedSlices(l.nodes, needs.Queries, ignoreAspect)
		} else {
			sets.local[source.Driver] = feed.NewResourceSlices(l.nodes, source.Driver, needs, ignoreAspect)
			if l.node != "" {
				selector = fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorNodeName, l.node).String()
			}
		}
		selectors[selector] = true
	}
	for selector := range selectors {
		err := eachOf(ctx, l.page, l.core.ResourceV1().ResourceSlices().List, metav1.ListOptions{FieldSelector: selector}, sets.put)
		if err != nil {
			l.addReadError("ResourceSlices", clients.ExplainNotServed(err), func(n gate.Needs) bool { return len(n.ResourceSlices)+len(n.Devices) > 0 })
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slices.local, l.slices.shared, l.slices.needs = sets.local, sets.shared, needed
}

// put adds a slice to its set, if it is needed.
func (s *deviceSets) put(o *resourcev1.ResourceSlice) {
	local, shared := s.local[o.Spec.Driver], s.shared[o.Spec.Driver]
	switch {
	case o.Spec.NodeName != nil && local != nil:
		local.Put(local.Convert(o))
	case o.Spec.NodeName == nil && shared != nil:
		shared.Put(shared.Convert(o))
	}
}

// readDeviceTaintRules reads all DeviceTaintRules.
func (l *snapshot) readDeviceTaintRules(ctx context.Context) {
	set := feed.NewDeviceTaintRules(func(*gate.DeviceTaintRule) {})
	err := eachOf(ctx, l.page, l.objects.ListDeviceTaintRules, metav1.ListOptions{}, func(o runtime.Object) { set.Put(feed.ConvertDeviceTaintRule(o)) })
	if err != nil {
		l.addError(fmt.Errorf("reading DeviceTaintRules: %w", err), func(n gate.Needs) bool { return feed.NewNeeds(n).DeviceTaintRules })
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slices.rules = set.All()
}
