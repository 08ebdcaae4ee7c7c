// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"iter"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

func TestDeadlocks(t *testing.T) {
	by := func(name string) v1alpha1.SignalSource {
		return v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: name}}
	}
	on := func(name, key string, change ...func(*gate.Gate)) gate.Gate {
		g := gate.Gate{
			Name: name, Accepted: true, Taint: v1alpha1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule},
			Signals: []gate.NamedSignal{{Name: "s", Signal: mustCompile(t, by("agent-"+name))}},
		}
		for _, c := range change {
			c(&g)
		}
		return g
	}
	waitingFor := func(s gate.Signal) func(*gate.Gate) {
		return func(g *gate.Gate) { g.Signals[0].Signal = s }
	}
	selecting := func(text string) func(*gate.Gate) {
		selector, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return func(g *gate.Gate) { g.Selector = selector }
	}
	either := func(sources ...v1alpha1.SignalSource) gate.Signal {
		var all anyOf
		for _, s := range sources {
			all = append(all, gate.NamedSignal{Name: "x", Signal: mustCompile(t, s)})
		}
		return all
	}
	warm := v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "warm"}}
	all := mustCompile(t, v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"kube-system"}}})
	selfish := aNode(with("agent-a", tolerating("a")), with("agent-b", tolerating("b")), with("agent-c", tolerating("c")))
	chain := aNode(with("agent-a"), with("agent-b", tolerating("b")))
	chainBack := aNode(with("agent-a", tolerating("a")), with("agent-b"))
	both := map[string][]Deadlock{
		"a": {{With: "b", Daemon: "kube-system/agent-a", Other: "kube-system/agent-b"}},
		"b": {{With: "a", Daemon: "kube-system/agent-b", Other: "kube-system/agent-a"}},
	}
	for name, c := range map[string]struct {
		gates []gate.Gate
		sets  *gate.DaemonSets
		want  map[string][]Deadlock
		nodes iter.Seq[labels.Set]
	}{
		"each daemon tolerates its own gate only": {[]gate.Gate{on("a", "a"), on("b", "b")}, &selfish.sets, both, nil},
		"a chain: one gate waits for the other":   {[]gate.Gate{on("a", "a"), on("b", "b")}, &chain.sets, nil, nil},
		"a chain the other way":                   {[]gate.Gate{on("a", "a"), on("b", "b")}, &chainBack.sets, nil, nil},
		"three of them": {[]gate.Gate{on("a", "a"), on("b", "b"), on("c", "c")}, &selfish.sets, map[string][]Deadlock{
			"a": {both["a"][0], {With: "c", Daemon: "kube-system/agent-a", Other: "kube-system/agent-c"}},
			"b": {both["b"][0], {With: "c", Daemon: "kube-system/agent-b", Other: "kube-system/agent-c"}},
			"c": {{With: "a", Daemon: "kube-system/agent-c", Other: "kube-system/agent-a"}, {With: "b", Daemon: "kube-system/agent-c", Other: "kube-system/agent-b"}},
		}, nil},
		"a shared taint":                  {[]gate.Gate{on("a", "k"), on("b", "k")}, &selfish.sets, nil, nil},
		"one waits for a label":           {[]gate.Gate{on("a", "a", waitingFor(mustCompile(t, warm))), on("b", "b")}, &selfish.sets, nil, nil},
		"one is not in force":             {[]gate.Gate{on("a", "a", func(g *gate.Gate) { g.Accepted = false }), on("b", "b")}, &selfish.sets, nil, nil},
		"one is a closeWhen gate":         {[]gate.Gate{on("a", "a", func(g *gate.Gate) { g.CloseWhen = true }), on("b", "b")}, &selfish.sets, nil, nil},
		"a PreferNoSchedule taint":        {[]gate.Gate{on("a", "a", func(g *gate.Gate) { g.Taint.Effect = corev1.TaintEffectPreferNoSchedule }), on("b", "b")}, &selfish.sets, nil, nil},
		"one waits for daemonSets":        {[]gate.Gate{on("a", "a", waitingFor(all)), on("b", "b")}, &selfish.sets, both, nil},
		"an alternative that can hold":    {[]gate.Gate{on("a", "a", waitingFor(either(by("agent-a"), warm))), on("b", "b")}, &selfish.sets, nil, nil},
		"no alternative that can hold":    {[]gate.Gate{on("a", "a", waitingFor(either(by("agent-a"), by("agent-c")))), on("b", "b")}, &selfish.sets, both, nil},
		"a DaemonSet that does not exist": {[]gate.Gate{on("a", "a"), on("d", "d")}, &selfish.sets, nil, nil},
		"nothing observed":                {[]gate.Gate{on("a", "a", waitingFor(all)), on("b", "b")}, nil, nil, nil},
		"different nodes":                 {[]gate.Gate{on("a", "a", selecting("pool=a")), on("b", "b", selecting("pool!=a"))}, &selfish.sets, nil, nil},
		"different existing nodes":        {[]gate.Gate{on("a", "a", selecting("pool=a")), on("b", "b", selecting("type=b"))}, &selfish.sets, nil, slices.Values([]labels.Set{{"pool": "a"}, {"type": "b"}})},
		"unknown nodes":                   {[]gate.Gate{on("a", "a", selecting("pool=a")), on("b", "b", selecting("type=b"))}, &selfish.sets, both, nil},
		"a common node":                   {[]gate.Gate{on("a", "a", selecting("pool=a")), on("b", "b", selecting("type=b"))}, &selfish.sets, both, slices.Values([]labels.Set{{"pool": "a", "type": "b"}})},
	} {
		if got := Deadlocks(c.gates, c.sets, c.nodes); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, c.want)
		}
	}
}
