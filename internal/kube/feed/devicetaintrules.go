// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"maps"
	"slices"
	"strings"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// DeviceTaintRules stores the DeviceTaintRules whose taint keeps pods off.
type DeviceTaintRules struct {
	// changed is called, without locks, with each earlier and new state of a rule.
	changed func(*gate.DeviceTaintRule)

	mu     sync.Mutex
	byName map[string]gate.DeviceTaintRule
	all    gate.DeviceTaintRules
}

// DeviceTaintRule contains the facts about a DeviceTaintRule. It has no rule if the
// DeviceTaintRule does not keep pods off any device.
type DeviceTaintRule struct {
	name string
	rule *gate.DeviceTaintRule
}

var _ reflector.Sink[*DeviceTaintRule] = (*DeviceTaintRules)(nil)

// NewDeviceTaintRules returns an empty DeviceTaintRules.
func NewDeviceTaintRules(changed func(*gate.DeviceTaintRule)) *DeviceTaintRules {
	return &DeviceTaintRules{changed: changed, byName: make(map[string]gate.DeviceTaintRule)}
}

// All returns all rules.
func (s *DeviceTaintRules) All() *gate.DeviceTaintRules {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	return &all
}

// Put implements reflector.Sink.
func (s *DeviceTaintRules) Put(f *DeviceTaintRule) {
	s.mu.Lock()
	before, there := s.byName[f.name]
	same := there == (f.rule != nil) && (!there || before == *f.rule)
	if f.rule == nil {
		delete(s.byName, f.name)
	} else {
		s.byName[f.name] = *f.rule
	}
	s.index()
	s.mu.Unlock()
	if there && !same {
		s.changed(&before)
	}
	if f.rule != nil && !same {
		s.changed(f.rule)
	}
}

// Drop implements reflector.Sink.
func (s *DeviceTaintRules) Drop(f *DeviceTaintRule) { s.Put(&DeviceTaintRule{name: f.name}) }

// Replace implements reflector.Sink. It does not call changed, see ResourceSlices.Replace.
func (s *DeviceTaintRules) Replace(all []*DeviceTaintRule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName = make(map[string]gate.DeviceTaintRule, len(all))
	for _, f := range all {
		if f.rule != nil {
			s.byName[f.name] = *f.rule
		}
	}
	s.index()
}

// index derives the sorted list, which decisions share. The caller must hold the lock.
func (s *DeviceTaintRules) index() {
	s.all = slices.SortedFunc(maps.Values(s.byName), func(a, b gate.DeviceTaintRule) int { return strings.Compare(a.Name, b.Name) })
}

// ConvertDeviceTaintRule returns the facts about a DeviceTaintRule of any version. Without
// a selector, a rule selects no devices. An object that is not a DeviceTaintRule taints
// nothing.
func ConvertDeviceTaintRule(o runtime.Object) *DeviceTaintRule {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return &DeviceTaintRule{}
	}
	f := &DeviceTaintRule{name: u.GetName()}
	var rule resourcev1.DeviceTaintRule
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &rule); err != nil {
		return f
	}
	selector := rule.Spec.DeviceSelector
	if selector == nil || !keepsOff(rule.Spec.Taint.Effect) {
		return f
	}
	f.rule = &gate.DeviceTaintRule{
		Name: f.name, Driver: ptr.Deref(selector.Driver, ""), Pool: ptr.Deref(selector.Pool, ""), Device: ptr.Deref(selector.Device, ""),
		Taint: taintText(&rule.Spec.Taint),
	}
	return f
}
