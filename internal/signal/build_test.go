// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const gateKey = "cni.example/not-ready"

// world is what a signal reads.
type world struct {
	facts gate.Facts
	sets  gate.DaemonSets
}

// aNode returns a node that is fully observed and on which nothing runs.
func aNode(change ...func(*world)) *world {
	w := &world{}
	w.facts.Node = gate.Node{
		Name: "n1", Created: epoch.Add(-time.Hour), BootID: "a",
		Labels:     labels.Set{"pool": "gpu"},
		Conditions: []gate.Condition{{Type: "Ready", Status: corev1.ConditionTrue}},
		Taints:     []corev1.Taint{{Key: gateKey, Effect: corev1.TaintEffectNoSchedule}},
	}
	w.facts.Transient.GateKeys = map[string]bool{gateKey: true}
	w.sets.Observed = map[string]bool{"kube-system": true}
	w.facts.DaemonSets = &w.sets
	w.facts.Pods = map[gate.PodQuery][]gate.Pod{query("agent"): nil}
	for _, c := range change {
		c(w)
	}
	return w
}

func query(name string) gate.PodQuery {
	return gate.PodQuery{Namespace: "kube-system", Selector: "app=" + name}
}

// with adds a DaemonSet in kube-system that tolerates every taint.
func with(name string, change ...func(*gate.DaemonSet)) func(*world) {
	ds := gate.DaemonSet{
		Namespace: "kube-system", Name: name, UID: types.UID("uid-" + name), Labels: labels.Set{"app": name},
		Pods: query(name), PodLabels: labels.Set{"app": name}, Affinity: nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{}),
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}
	for _, c := range change {
		c(&ds)
	}
	return func(w *world) {
		w.sets.Items = append(w.sets.Items, ds)
		if _, known := w.facts.Pods[ds.Pods]; !known {
			w.facts.Pods[ds.Pods] = nil
		}
	}
}

func onlyOn(pool string) func(*gate.DaemonSet) {
	return func(ds *gate.DaemonSet) {
		ds.Affinity = nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{"pool": pool}}})
	}
}

func tolerating(keys ...string) func(*gate.DaemonSet) {
	return func(ds *gate.DaemonSet) {
		ds.Tolerations = nil
		for _, key := range keys {
			ds.Tolerations = append(ds.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
		}
	}
}

func rollingOut(ds *gate.DaemonSet) { ds.RollingOut = true }
func deleting(ds *gate.DaemonSet)   { ds.Deleting = true }

// running adds a ready pod of the DaemonSet with that name.
func running(name string, change ...func(*gate.Pod)) func(*world) {
	p := gate.Pod{
		UID: "p", Name: "kube-system/" + name + "-x", Owner: types.UID("uid-" + name), Created: epoch.Add(-time.Minute),
		Ready: true, ReadySince: epoch.Add(-30 * time.Second), Incarnation: 1,
	}
	for _, c := range change {
		c(&p)
	}
	return func(w *world) { w.facts.Pods[query(name)] = append(w.facts.Pods[query(name)], p) }
}

func notReady(p *gate.Pod)              { p.Ready = false }
func terminating(p *gate.Pod)           { p.Terminating, p.TerminatingSince = true, epoch.Add(-time.Second) }
func finished(p *gate.Pod)              { p.Finished = true }
func mirror(p *gate.Pod)                { p.Mirror = true }
func unlabelled(p *gate.Pod)            { p.Unlabelled = true }
func surging(ds *gate.DaemonSet)        { ds.Surges = true }
func ofAnotherOwner(p *gate.Pod)        { p.Owner = "uid-other" }
func named(name string) func(*gate.Pod) { return func(p *gate.Pod) { p.Name = "kube-system/" + name } }

func created(ago time.Duration) func(*gate.Pod) {
	return func(p *gate.Pod) { p.Created = epoch.Add(-ago) }
}

// olderThanNode marks a pod as one of a former Node with the same name.
func olderThanNode(p *gate.Pod) { p.Created = epoch.Add(-day) }

const day = 24 * time.Hour

func nodeCreated(ago time.Duration) func(*world) {
	return func(w *world) { w.facts.Node.Created = epoch.Add(-ago) }
}

func tainted(key string, effect corev1.TaintEffect) func(*world) {
	return func(w *world) {
		w.facts.Node.Taints = append(w.facts.Node.Taints, corev1.Taint{Key: key, Effect: effect})
	}
}

func unobservedPods(name string) func(*world) {
	return func(w *world) { delete(w.facts.Pods, query(name)) }
}

func unobservedSets(w *world) { w.sets.Observed = nil }

// read reads the signal like a gate on the node does. It uses Decide, because Trust
// cannot be created outside of package gate.
func read(t *testing.T, s gate.Signal, w *world) (gate.Reading, gate.Decision) {
	t.Helper()
	g := aClosedGate(s, gate.Record{Boot: "a"}, w)
	d := gate.Decide([]gate.Gate{g}, &w.facts, epoch)
	return d.Verdicts[0].Readings[0], d
}

// aClosedGate returns a gate that waits for the signal and has this record on the node.
func aClosedGate(s gate.Signal, r gate.Record, w *world) gate.Gate {
	g := gate.Gate{
		Name: "cni", Source: v1alpha1.SourceCRD, Accepted: true, Selector: labels.Everything(), Created: epoch.Add(-2 * day),
		Taint:   v1alpha1.Taint{Key: gateKey, Effect: corev1.TaintEffectNoSchedule},
		Signals: []gate.NamedSignal{{Name: "s", Signal: s}},
	}
	r.State, r.Taint, r.Source = v1alpha1.StateClosed, gate.TaintText(g.Taint), g.Source
	w.facts.Node.Records = map[string]string{"cni": r.String()}
	return g
}

// reads is an expected reading of a signal.
type reads struct {
	node    *world
	state   gate.State
	reason  v1alpha1.ReadingReason
	subject string
}

func check(t *testing.T, s gate.Signal, cases map[string]reads) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r, d := read(t, s, c.node)
			if r.State != c.state || r.Reason != c.reason || r.Subject != c.subject {
				t.Errorf("got %s %s %q, want %s %s %q", r.State, r.Reason, r.Subject, c.state, c.reason, c.subject)
			}
			if opened := d.Verdicts[0].Opened(); opened != (c.state == gate.Holds) {
				t.Errorf("the gate opens: %v", opened)
			}
			if c.state == gate.NotYet && r.Reason == v1alpha1.ReadingStaleEvidence && d.Recheck.IsZero() {
				t.Error("waits for time to pass, but there is no recheck")
			}
		})
	}
}

func mustCompile(t *testing.T, s v1alpha1.SignalSource) gate.Signal {
	t.Helper()
	out, err := compile(&s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
