// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// The verdict includes that of the judge.
func TestDemo(t *testing.T) {
	clustertest.SkipIfShort(t)
	clustertest.SkipWithoutMutatingPolicies(t)
	if err := demonstrate(t.Context(), &options{nodes: 20, plain: true}); err != nil {
		t.Fatal(err)
	}
}

const (
	nodegateUser = "system:serviceaccount:nodegate-system:nodegate"
	otherUser    = "other"
)

var (
	start     = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cniTaint  = corev1.Taint{Key: "example.com/cni", Effect: corev1.TaintEffectNoSchedule}
	initTaint = corev1.Taint{Key: "example.com/init", Effect: corev1.TaintEffectNoSchedule}

	tolerateAll = corev1.Toleration{Operator: corev1.TolerationOpExists}
)

// A run builds a history. Every write takes half a millisecond and ends one millisecond
// after the previous one.
type run struct {
	versions []revisions.Version
	writes   []revisions.Write
}

func (r *run) put(user string, kind revisions.Kind, object metav1.Object) {
	revision := int64(len(r.versions) + 1)
	done := start.Add(time.Duration(revision) * time.Millisecond)
	id := revisions.ID{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()}
	r.versions = append(r.versions, revisions.Version{ID: id, Revision: revision, Object: object})
	r.writes = append(r.writes, revisions.Write{Revision: revision, User: user, Verb: "patch", Received: done.Add(-time.Millisecond / 2), Done: done})
}

// node writes a node with these taints. The records of gates without a taint are open if
// the user is nodegate.
func (r *run) node(user, name string, taints ...corev1.Taint) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: make(map[string]string)}, Spec: corev1.NodeSpec{Taints: taints}}
	for gate, taint := range map[string]corev1.Taint{"cni": cniTaint, "init": initTaint} {
		if user == nodegateUser && !slices.Contains(taints, taint) {
			node.Annotations[v1alpha1.RecordAnnotationPrefix+gate] = `{"state":"Open"}`
		}
	}
	r.put(user, revisions.KindNode, node)
}

func (r *run) daemonReady(daemon, node string) {
	r.put(otherUser, revisions.KindPod, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: daemon + "-" + node,
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: daemon, Controller: new(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: node, Tolerations: []corev1.Toleration{tolerateAll}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	})
}

func (r *run) bind(name, node string) {
	r.put(otherUser, revisions.KindPod, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: node}})
}

func (r *run) summary(nodes, workload int) *summary {
	end := start.Add(time.Minute)
	return summarize(revisions.New(1, int64(len(r.versions)), end, r.versions, r.writes), &expectation{
		nodegate: nodegateUser, nodes: nodes, workload: workload,
		gates: []gate{
			{name: "cni", taint: cniTaint, daemonSet: types.NamespacedName{Namespace: "kube-system", Name: "cni"}},
			{name: "init", taint: initTaint, daemonSet: types.NamespacedName{Namespace: "kube-system", Name: "init"}},
		},
	})
}

// steps are a run without faults. Node b stays closed because of its init daemon.
var steps = []struct {
	name string
	do   func(*run)
}{
	{"register a", func(r *run) { r.node(otherUser, "a", cniTaint, initTaint) }},
	{"register b", func(r *run) { r.node(otherUser, "b", cniTaint, initTaint) }},
	{"cni of a", func(r *run) { r.daemonReady("cni", "a") }},
	{"open cni on a", func(r *run) { r.node(nodegateUser, "a", initTaint) }},
	{"init of a", func(r *run) { r.daemonReady("init", "a") }},
	{"open init on a", func(r *run) { r.node(nodegateUser, "a") }},
	{"bind", func(r *run) { r.bind("web-1", "a") }},
	{"cni of b", func(r *run) { r.daemonReady("cni", "b") }},
	{"open cni on b", func(r *run) { r.node(nodegateUser, "b", initTaint) }},
}

func failed(s *summary) []string {
	var names []string
	for _, c := range s.checks {
		if len(c.faults) > 0 {
			names = append(names, c.name)
		}
	}
	return names
}

func TestSummary(t *testing.T) {
	const (
		bare     = "nodes ever visible without the taint of a closed gate"
		early    = "pods bound to a node while it was closed to them"
		bound    = "workload pods bound by the scheduler"
		excess   = "opening patches, at most one for each moment of a node"
		needless = "writes of nodes by nodegate that opened nothing"
	)
	for _, test := range []struct {
		name, step string // the step that is replaced
		with       func(*run)
		want       []string
	}{
		{"without faults", "", nil, nil},
		{"a node is created without a taint", "register b", func(r *run) { r.node(otherUser, "b", initTaint) }, []string{bare}},
		{"another writer removes a taint", "cni of b", func(r *run) {
			r.node(otherUser, "b", initTaint)
			r.node(otherUser, "b", cniTaint, initTaint)
			r.daemonReady("cni", "b")
		}, []string{bare}},
		{"a pod is bound to a closed node", "open init on a", func(r *run) {
			r.bind("web-2", "b")
			r.node(nodegateUser, "a")
		}, []string{early, bound}},
		{"no pod is bound", "bind", func(*run) {}, []string{bound}},
		{"two patches for one moment", "init of a", func(r *run) {}, []string{excess}},
		{"a patch that opens nothing", "cni of b", func(r *run) {
			r.node(nodegateUser, "a")
			r.daemonReady("cni", "b")
		}, []string{needless}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &run{}
			for _, step := range steps {
				do := step.do
				if step.name == test.step {
					do = test.with
				}
				do(r)
			}
			s := r.summary(2, 1)
			if names := failed(s); !slices.Equal(names, test.want) || s.pass() != (test.want == nil) {
				t.Errorf("failed: %q, want %q", names, test.want)
			}
			if test.want == nil {
				ms := time.Millisecond
				if !slices.Equal(s.held, []heldGate{{"b", "init"}}) || !slices.Equal(s.latencies, []time.Duration{ms, ms, ms}) {
					t.Errorf("gates %v are held and latencies are %v, want b by init, and three times 1ms", s.held, s.latencies)
				}
			}
		})
	}
}

func TestMissingNodesFail(t *testing.T) {
	if names := failed((&run{}).summary(1, 0)); !slices.Equal(names, []string{"nodes that registered"}) {
		t.Errorf("failed: %q", names)
	}
}

// If both gates can open when the set-up taint is removed, one patch must open both.
func TestOneMoment(t *testing.T) {
	for patches, want := range map[int][]string{1: nil, 2: {"opening patches, at most one for each moment of a node"}} {
		r := &run{}
		r.node(otherUser, "a", setUpTaint, cniTaint, initTaint)
		r.daemonReady("cni", "a")
		r.daemonReady("init", "a")
		r.node(otherUser, "a", cniTaint, initTaint)
		if patches == 2 {
			r.node(nodegateUser, "a", initTaint)
		}
		r.node(nodegateUser, "a")
		if names := failed(r.summary(1, 0)); !slices.Equal(names, want) {
			t.Errorf("after %d patches, failed: %q, want %q", patches, names, want)
		}
	}
}

func TestLatencyText(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1)*time.Millisecond)
	}
	for n, want := range map[int]string{
		0: "no gate opened", 1: "p50 1.0 ms, p99 1.0 ms, max 1.0 ms (1 openings)", 100: "p50 50.0 ms, p99 99.0 ms, max 100.0 ms (100 openings)",
	} {
		if got := latencyText(hundred[:n]); got != want {
			t.Errorf("of %d latencies: got %q, want %q", n, got, want)
		}
	}
}
