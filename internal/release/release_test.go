// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// Errors of an API server and of webhooks, and other texts from a cluster, cannot control a
// terminal or forge a line.
func TestTextIsEscaped(t *testing.T) {
	const steering = "denied: \x1b[2J\nnode/n2 released from g"
	r := &Report{Nodes: []Node{{Node: "n1", Error: steering}}, Remarks: []string{steering}}
	const escaped = `denied: \x1b[2J\nnode/n2 released from g`
	if got, want := r.Text(), "node/n1 not released: "+escaped+"\nNote: "+escaped+".\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func released(name string) Node {
	return Node{Node: name, Gates: []string{"g"}, Taints: []string{"a/a:NoSchedule"}}
}

// partly returns the result for a node whose conditions could not be removed.
func partly(name, err string) Node {
	n := released(name)
	n.Error = "the conditions could not be removed: " + err
	return n
}

func withCondition(n *gate.Node) *gate.Node {
	n.Conditions = []gate.Condition{{Type: v1alpha1.DeadlineConditionPrefix + "g", Status: corev1.ConditionTrue}}
	return n
}

func TestRelease(t *testing.T) {
	garbled := &gate.Node{Name: "n2", Taints: []corev1.Taint{taintA}, Records: map[string]string{"g": "garbage"}}
	busy := &apierrors.StatusError{ErrStatus: metav1.Status{Message: "busy", Reason: metav1.StatusReasonTooManyRequests}}
	onN1 := func(tries int, err error) func(string, int) error {
		return func(name string, try int) error {
			if name == "n1" && try <= tries {
				return err
			}
			return nil
		}
	}
	tests := map[string]struct {
		before  func(name string, try int) error
		nodes   []*gate.Node
		options Options
		want    []Node
		writes  int
	}{
		"all nodes":                     {nodes: []*gate.Node{closedNode("n2"), closedNode("n1"), {Name: "n3"}}, want: []Node{released("n1"), released("n2")}, writes: 2},
		"a named node":                  {nodes: []*gate.Node{closedNode("n2"), closedNode("n1")}, options: Options{Nodes: []string{"n1", "n1"}}, want: []Node{released("n1")}, writes: 1},
		"a node without records":        {nodes: []*gate.Node{{Name: "n1"}}, options: Options{Nodes: []string{"n1"}}},
		"another gate":                  {nodes: []*gate.Node{closedNode("n1")}, options: Options{Gates: []string{"other"}}},
		"client dry run":                {nodes: []*gate.Node{closedNode("n1")}, options: Options{DryRun: DryRunClient}, want: []Node{released("n1")}},
		"the node changes meanwhile":    {nodes: []*gate.Node{closedNode("n1")}, before: onN1(3, write.ErrConflict), want: []Node{released("n1")}, writes: 1},
		"the API server is busy":        {nodes: []*gate.Node{closedNode("n1")}, before: onN1(2, busy), want: []Node{released("n1")}, writes: 1},
		"the node is deleted meanwhile": {nodes: []*gate.Node{closedNode("n1"), closedNode("n2")}, before: onN1(9, apierrors.NewNotFound(corev1.Resource("nodes"), "n1")), want: []Node{released("n1"), released("n2")}, writes: 1},
		"a write is denied":             {nodes: []*gate.Node{closedNode("n1"), closedNode("n2")}, before: onN1(9, write.ErrDenied), want: []Node{{Node: "n1", Error: "patching node n1: the API server denied the write"}, released("n2")}, writes: 1},
		"a node keeps changing":         {nodes: []*gate.Node{closedNode("n1")}, before: onN1(9, write.ErrConflict), want: []Node{{Node: "n1", Error: "patching node n1: the node has changed since it was read"}}},
		"a second write is denied":      {nodes: []*gate.Node{withCondition(closedNode("n1"))}, before: onTry(2, write.ErrDenied), want: []Node{partly("n1", "patching node n1: the API server denied the write")}, writes: 1},
		"a second write fails once":     {nodes: []*gate.Node{withCondition(closedNode("n1"))}, before: onTry(2, busy), want: []Node{released("n1")}, writes: 2},
		"an unreadable record":          {nodes: []*gate.Node{closedNode("n1"), garbled}, want: []Node{released("n1"), {Node: "n2", Kept: []string{"g"}}}, writes: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFleet(test.nodes...)
			if test.before != nil {
				f.before = test.before
			}
			var progress []int
			test.options.Progress = func(done, _ int) { progress = append(progress, done) }
			report, err := f.run(t, t.Context(), test.options)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, report.Nodes); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if f.writes != test.writes || !slices.IsSorted(progress) || len(progress) != len(test.want) {
				t.Errorf("%d writes, want %d; progress %v", f.writes, test.writes, progress)
			}
			if tries := f.tries["n1"]; name == "a write is denied" && tries != 1 {
				t.Errorf("the denied write was tried %d times", tries)
			}
		})
	}
}

// If another writer changes a node between read and write, the node is read again.
func TestReleaseReadsAgain(t *testing.T) {
	f := newFleet(closedNode("n1"))
	f.before = func(_ string, try int) error {
		if try == 1 {
			f.nodes["n1"] = &gate.Node{Name: "n1", Taints: []corev1.Taint{taintA}, Records: map[string]string{"g": closed, "other": closed}}
		}
		return nil
	}
	report, err := f.run(t, t.Context(), Options{Gates: []string{"g"}})
	if diff := cmp.Diff([]Node{{Node: "n1", Gates: []string{"g"}}}, report.Nodes); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff([]corev1.Taint{taintA}, f.nodes["n1"].Taints); diff != "" {
		t.Errorf("another gate's taint (-want +got):\n%s", diff)
	}
}

// A write whose answer is lost may have been carried out. If so, what it has removed is reported.
func TestReleaseLosesAnswers(t *testing.T) {
	lost := fmt.Errorf("patching node n1: %w", write.ErrUnanswered)
	onlyCondition := func() *gate.Node { return withCondition(&gate.Node{Name: "n1"}) }
	garbled := closedNode("n1")
	garbled.Records["k"] = "garbage"
	garbled.Taints = append(garbled.Taints, corev1.Taint{Key: "k/k", Effect: corev1.TaintEffectNoSchedule})
	kept := released("n1")
	kept.Kept = []string{"k"}
	for name, c := range map[string]struct {
		node          *gate.Node
		before, after func(string, int) error
		// next is the Node after the first write, if it is another one.
		next *gate.Node
		want []Node
	}{
		"taint and record":                {node: closedNode("n1"), after: onTry(1, lost), want: []Node{released("n1")}},
		"not carried out":                 {node: closedNode("n1"), before: onTry(1, lost), want: []Node{released("n1")}},
		"the API server fails":            {node: closedNode("n1"), after: onTry(1, errors.New("internal error")), want: []Node{released("n1")}},
		"an unreadable record stays":      {node: garbled, after: onTry(1, lost), want: []Node{kept}},
		"a condition is left":             {node: withCondition(closedNode("n1")), after: onTry(1, lost), want: []Node{released("n1")}},
		"a condition is left, and denied": {node: withCondition(closedNode("n1")), before: onTry(2, write.ErrDenied), after: onTry(1, lost), want: []Node{partly("n1", "patching node n1: the API server denied the write")}},
		"only a condition":                {node: onlyCondition(), after: onTry(1, lost), want: []Node{{Node: "n1", Gates: []string{"g"}}}},
		"only a condition, never removed": {node: onlyCondition(), before: func(string, int) error { return write.ErrUnanswered }, want: []Node{{Node: "n1", Error: "patching node n1: no answer from the API server"}}},
		"another writer has released it":  {node: closedNode("n1"), after: onTry(1, write.ErrConflict)},
		"another Node has the name":       {node: closedNode("n1"), after: onTry(1, lost), next: &gate.Node{Name: "n1", UID: "another"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(c.node)
			if c.before != nil {
				f.before = c.before
			}
			f.after = c.after
			if c.next != nil {
				f.after = func(name string, try int) error {
					f.nodes[name] = c.next
					return c.after(name, try)
				}
			}
			report, err := f.run(t, t.Context(), Options{})
			if diff := cmp.Diff(c.want, report.Nodes); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// Of other gates, everything stays on a node, also in the second write, which removes the conditions.
func TestReleaseKeepsOtherGates(t *testing.T) {
	const others = `{"state":"Closed","reason":"Birth","taint":"b/b:NoSchedule","source":"crd"}`
	taintB := corev1.Taint{Key: "b/b", Effect: corev1.TaintEffectNoSchedule}
	condition := func(name string) gate.Condition {
		return gate.Condition{Type: v1alpha1.DeadlineConditionPrefix + name, Status: corev1.ConditionTrue}
	}
	f := newFleet(&gate.Node{
		Name: "n1", Taints: []corev1.Taint{taintA, taintB},
		Records: map[string]string{"g": closed, "other": others}, Overrides: map[string]string{"g": "open", "other": "open"},
		Conditions: []gate.Condition{{Type: "Ready", Status: corev1.ConditionTrue}, condition("g"), condition("other")},
	})
	report, err := f.run(t, t.Context(), Options{Gates: []string{"g"}})
	if diff := cmp.Diff([]Node{released("n1")}, report.Nodes); err != nil || diff != "" || f.writes != 2 {
		t.Errorf("%v, %d writes (-want +got):\n%s", err, f.writes, diff)
	}
	want := &gate.Node{
		Name: "n1", Taints: []corev1.Taint{taintB}, Records: map[string]string{"other": others}, Overrides: map[string]string{"other": "open"},
		Conditions: []gate.Condition{{Type: "Ready", Status: corev1.ConditionTrue}, condition("other")},
	}
	if diff := cmp.Diff(want, f.nodes["n1"]); diff != "" {
		t.Errorf("the node (-want +got):\n%s", diff)
	}
}

// An interrupted release returns what was done, and the next run continues.
func TestReleaseContinues(t *testing.T) {
	nodes := closedNodes(100)
	f := newFleet(nodes...)
	ctx, cancel := context.WithCancel(t.Context())
	report, err := f.run(t, ctx, Options{Progress: func(done, _ int) {
		if done == 30 {
			cancel()
		}
	}})
	if err == nil || len(report.Nodes) < 30 || len(report.Nodes) == len(nodes) || !strings.Contains(err.Error(), fmt.Sprintf("%d of 100", report.released())) {
		t.Fatalf("%d nodes, %v", len(report.Nodes), err)
	}
	again, err := f.run(t, t.Context(), Options{})
	if err != nil || len(again.Nodes) != len(nodes)-report.released() || !again.Complete() || f.writes != len(nodes) {
		t.Errorf("%d nodes after %d, %d writes, %v", len(again.Nodes), report.released(), f.writes, err)
	}
}

// An interrupted release clears the progress line. Nodes that it has skipped are not counted.
func TestProgressOfInterruptedRelease(t *testing.T) {
	f := newFleet(closedNodes(40)...)
	ctx, cancel := context.WithCancel(t.Context())
	f.before = func(string, int) error {
		if f.writes < 21 {
			return nil
		}
		cancel()
		return context.Cause(ctx)
	}
	var screen strings.Builder
	line := progressLine(&screen)
	var done int
	_, err := f.run(t, ctx, Options{Progress: func(n, of int) {
		done = n
		line(n, of)
	}})
	if err == nil || done != 21 || !strings.HasPrefix(err.Error(), "stopped after 21 of 40 nodes") {
		t.Errorf("%d nodes, %v", done, err)
	}
	if got, want := screen.String(), "\r10 of 40 nodes\r20 of 40 nodes\r\x1b[K"; got != want {
		t.Errorf("the terminal received %q, want %q", got, want)
	}
}

func TestReleaseNoSuchNode(t *testing.T) {
	f := newFleet(closedNode("n1"))
	_, err := f.run(t, t.Context(), Options{Nodes: []string{"n1", "n2"}})
	var missing *NoSuchNodeError
	if !errors.As(err, &missing) || missing.Node != "n2" || f.writes > 0 {
		t.Errorf("%v, %d writes", err, f.writes)
	}
}

// While nodegate is running, gates that exist must not be released.
func TestJudge(t *testing.T) {
	denied := errors.New("denied")
	exists := map[string]bool{"g": true}
	fromFiles := &gate.Node{Records: map[string]string{"f": `{"state":"Open","source":"files"}`}}
	tests := map[string]struct {
		situation situation
		options   Options
		nodes     []*gate.Node
		refusal   string
		remark    string
	}{
		"nodegate is gone":                         {},
		"the gates are deleted":                    {situation: situation{running: true}},
		"a gate exists":                            {situation: situation{running: true, gates: exists}, refusal: "they would close again on nodes that were created after them, and treat older nodes according to existingNodes. Delete the gates instead, which opens them on all nodes (kubectl delete nodegates g)"},
		"a gate exists, forced":                    {situation: situation{running: true, gates: exists}, options: Options{Force: true}, remark: "nodegate is running. Its gates (g) close again on nodes that were created after them, and treat older nodes according to existingNodes"},
		"another gate exists":                      {situation: situation{running: true, gates: map[string]bool{"other": true}}},
		"a gate exists that is not to be released": {situation: situation{running: true, gates: exists}, options: Options{Gates: []string{"other"}}},
		"a gate exists, but no controller":         {situation: situation{gates: exists}, remark: "nodegate is not running"},
		"gates still close on new nodes":           {situation: situation{birthActive: true}, remark: "delete mutatingadmissionpolicybinding nodegate-birth"},
		"a gate from files":                        {situation: situation{running: true}, nodes: []*gate.Node{fromFiles}, refusal: "from files: f."},
		"a gate from files, and nodegate is gone":  {nodes: []*gate.Node{fromFiles}},
		"controller unknown":                       {situation: situation{runningUnknown: denied, gates: exists}, refusal: "it is unknown whether gates would close on these nodes again: denied"},
		"controller unknown, no gates":             {situation: situation{runningUnknown: denied}},
		"gates unknown":                            {situation: situation{gatesUnknown: denied, running: true}, refusal: "it is unknown whether gates would close on these nodes again: denied"},
		"gates unknown, no controller":             {situation: situation{gatesUnknown: denied}},
		"both unknown":                             {situation: situation{gatesUnknown: denied, runningUnknown: denied}, refusal: "it is unknown whether gates would close on these nodes again: denied"},
		"controller unknown, forced":               {situation: situation{runningUnknown: denied, gates: exists}, options: Options{Force: true}, remark: "it is unknown whether nodegate is running (denied)"},
		"both unknown, forced":                     {situation: situation{gatesUnknown: denied, runningUnknown: denied}, options: Options{Force: true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			nodes := test.nodes
			if nodes == nil {
				nodes = []*gate.Node{closedNode("n1")}
			}
			remarks, refusal := test.situation.judge(nodes, &test.options)
			text := strings.Join(remarks, "\n")
			if (refusal != nil) != (test.refusal != "") || refusal != nil && !strings.Contains(refusal.Error(), test.refusal) ||
				!strings.Contains(text, test.remark) || (text != "") != (test.remark != "") {
				t.Errorf("error: %v; remarks: %s", refusal, text)
			}
		})
	}
}

func TestHeld(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	lease := func(holder string, renewed time.Time) *coordinationv1.Lease {
		at := metav1.NewMicroTime(renewed)
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at, LeaseDurationSeconds: new(int32(15))}}
	}
	for name, test := range map[string]struct {
		lease *coordinationv1.Lease
		want  bool
	}{
		"empty":                   {&coordinationv1.Lease{}, false},
		"renewed":                 {lease("x", now.Add(-10*time.Second)), true},
		"clock is ahead":          {lease("x", now.Add(time.Hour)), true},
		"not renewed":             {lease("x", now.Add(-31*time.Second)), false},
		"released":                {lease("", now), false},
		"within the grace period": {lease("x", now.Add(-29*time.Second)), true},
	} {
		if got := Held(test.lease, now); got != test.want {
			t.Errorf("%s: held is %t", name, got)
		}
	}
}

func TestReportText(t *testing.T) {
	kept := func(n Node, gates ...string) Node { n.Kept = gates; return n }
	report := &Report{DryRun: DryRunServer, Nodes: []Node{
		{Node: "a", Gates: []string{"g", "h"}, Taints: []string{"a/a:NoSchedule", "b/b=x:NoExecute"}},
		{Node: "b", Gates: []string{"g"}},
		{Node: "c", Kept: []string{"g"}},
		{Node: "d", Error: "patching node d: denied"},
		kept(partly("e", "patching node e: denied"), "h"),
	}, Remarks: []string{"a remark"}}
	const want = `node/a released from g, h: taints a/a:NoSchedule, b/b=x:NoExecute removed (server dry run)
node/b released from g (server dry run)
node/e released from g: taint a/a:NoSchedule removed (server dry run)
node/c still has an unreadable record and a taint that may belong to it: determine the gate's taint, remove it, and then remove the record: kubectl annotate node c gate.nodegate.dev/g-
node/d not released: patching node d: denied
node/e not completely released: the conditions could not be removed: patching node e: denied
node/e still has an unreadable record and a taint that may belong to it: determine the gate's taint, remove it, and then remove the record: kubectl annotate node e gate.nodegate.dev/h-
Note: a remark.
`
	if diff := cmp.Diff(want, report.Text()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if report.Complete() || report.Names() != "node/a\nnode/b\nnode/e\n" || report.released() != 3 {
		t.Errorf("complete: %t, names %q", report.Complete(), report.Names())
	}
	if got := (&Report{}).Text(); got != "No node has anything to release.\n" {
		t.Error(got)
	}
}

// A named gate is unknown if it neither exists nor has left anything on the nodes that were
// read. After a release, it may be one.
func TestUnknownGates(t *testing.T) {
	overridden := &gate.Node{Name: "n2", Overrides: map[string]string{"o": "open"}}
	garbled := &gate.Node{Name: "n3", Taints: []corev1.Taint{taintA}, Records: map[string]string{"k": "garbage"}}
	for name, c := range map[string]struct {
		options  Options
		existing []string
		err      error
		want     []string
	}{
		"no gate is named":         {},
		"existing":                 {options: Options{Gates: []string{"a"}}, existing: []string{"a"}},
		"a record is left":         {options: Options{Gates: []string{"g"}}},
		"an override is left":      {options: Options{Gates: []string{"o"}}},
		"an unreadable record":     {options: Options{Gates: []string{"k"}}},
		"misspelled":               {options: Options{Gates: []string{"g", "h"}}, existing: []string{"a"}, want: []string{`no node has anything of this gate: gate "h" not found; the gates are a, g, k`}},
		"may not list gates":       {options: Options{Gates: []string{"h"}}, err: errors.New("denied")},
		"on a named node":          {options: Options{Gates: []string{"h"}, Nodes: []string{"n1"}}, want: []string{`none of these nodes has anything of this gate: gate "h" not found; the gates are g`}},
		"on a node without traces": {options: Options{Gates: []string{"h"}, Nodes: []string{"n4"}}, want: []string{`none of these nodes has anything of this gate: gate "h" not found; no NodeGate exists`}},
		"many gates": {options: Options{Gates: []string{"h"}, Nodes: []string{"n4"}}, existing: strings.Split("abcdefi", ""),
			want: []string{`none of these nodes has anything of this gate: gate "h" not found; the gates are a, b, c, d, e and 2 more`}},
	} {
		r := &releaser{Options: c.options, reader: newFleet(closedNode("n1"), overridden, garbled, &gate.Node{Name: "n4"})}
		if _, err := r.find(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, unknown := range r.unknownGates(func() (map[string]bool, error) {
			existing := make(map[string]bool)
			for _, name := range c.existing {
				existing[name] = true
			}
			return existing, c.err
		}) {
			got = append(got, unknown.Warning(""))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
