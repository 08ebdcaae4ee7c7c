// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"testing"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Combined readings also report whether a required pod is missing, which a deadline
// depends on.
func TestLacksPod(t *testing.T) {
	daemon := func(name string) v1alpha1.SignalSource {
		return v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: name}}
	}
	all := v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"kube-system"}}}
	either := func(a, b v1alpha1.SignalSource) gate.Signal {
		return anyOf{{Name: "a", Signal: mustCompile(t, a)}, {Name: "b", Signal: mustCompile(t, b)}}
	}
	labelled := v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "absent"}}
	for name, c := range map[string]struct {
		signal        gate.Signal
		node          *world
		lacks, unseen bool
	}{
		"missing":                           {mustCompile(t, daemon("agent")), aNode(with("agent")), true, false},
		"no such DaemonSet":                 {mustCompile(t, daemon("agent")), aNode(), true, false},
		"a DaemonSet that is being deleted": {mustCompile(t, daemon("agent")), aNode(with("agent", deleting)), true, false},
		"not eligible":                      {mustCompile(t, daemon("agent")), aNode(with("agent", onlyOn("cpu"))), true, false},
		"does not tolerate the gate":        {mustCompile(t, daemon("agent")), aNode(with("agent", tolerating())), true, false},
		"finished":                          {mustCompile(t, v1alpha1.SignalSource{Pods: anyPod}), aNode(running("agent", finished)), true, false},
		"a mirror pod":                      {mustCompile(t, v1alpha1.SignalSource{Pods: anyPod}), aNode(running("agent", mirror)), true, false},
		"not ready":                         {mustCompile(t, daemon("agent")), aNode(with("agent"), running("agent", notReady)), false, false},
		"terminating":                       {mustCompile(t, daemon("agent")), aNode(with("agent"), running("agent", terminating)), false, false},
		"only a check that is terminating":  {mustCompile(t, preflight(0)), ran(succeeded, terminating), true, false},
		"not observed":                      {mustCompile(t, daemon("agent")), aNode(with("agent"), unobservedPods("agent")), false, true},
		"one of several":                    {mustCompile(t, all), aNode(with("agent"), with("proxy"), running("agent", notReady)), true, false},
		"one of several, in another order":  {mustCompile(t, all), aNode(with("agent"), with("proxy"), running("proxy", notReady)), true, false},
		"none of several":                   {mustCompile(t, all), aNode(with("agent"), with("proxy"), running("agent", notReady), running("proxy", notReady)), false, false},
		"every alternative":                 {either(daemon("agent"), daemon("proxy")), aNode(with("agent"), with("proxy")), true, false},
		"one alternative":                   {either(daemon("agent"), daemon("proxy")), aNode(with("agent"), with("proxy"), running("agent", notReady)), false, false},
		"an alternative that is not a pod":  {either(daemon("agent"), labelled), aNode(with("agent")), false, false},
		"an alternative not observed":       {either(daemon("agent"), labelled), aNode(with("agent"), unobservedPods("agent")), false, true},
		"a label":                           {mustCompile(t, labelled), aNode(), false, false},
	} {
		r, _ := read(t, c.signal, c.node)
		if r.LacksPod() != c.lacks || r.Unseen() != c.unseen {
			t.Errorf("%s: lacks a pod %v, unseen %v (%s)", name, r.LacksPod(), r.Unseen(), r.Message())
		}
	}
}
