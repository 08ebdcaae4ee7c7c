// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"strings"
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// labelOrAgent is an anyOf of a label and the pod of a DaemonSet.
func labelOrAgent(t *testing.T) gate.Signal {
	t.Helper()
	s, err := compileSignal(&v1alpha1.Signal{Name: "any", AnyOf: []v1alpha1.NamedSource{
		{Name: "warm", SignalSource: v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "warm"}}},
		{Name: "agent", SignalSource: v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: "agent"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func warm(w *world) { w.facts.Node.Labels = map[string]string{"warm": ""} }

func TestAnyOf(t *testing.T) {
	const none = v1alpha1.ReadingNoneHolds
	check(t, labelOrAgent(t), map[string]reads{
		"the first":         {aNode(warm, with("agent")), gate.Holds, matches, "label warm"},
		"the second":        {aNode(with("agent"), running("agent")), gate.Holds, v1alpha1.ReadingReady, "kube-system/agent-x"},
		"one, one unknown":  {aNode(warm, unobservedSets), gate.Holds, matches, "label warm"},
		"both":              {aNode(warm, with("agent"), running("agent")), gate.Holds, v1alpha1.ReadingReady, "kube-system/agent-x"},
		"none":              {aNode(with("agent")), gate.NotYet, none, "warm: the node has no label warm; agent: kube-system/agent has no pod on this node"},
		"none, one unknown": {aNode(unobservedSets), gate.Unknown, none, "warm: the node has no label warm; agent: DaemonSet kube-system/agent is not observed yet"},
		"of another Node":   {aNode(nodeCreated(time.Second), with("agent"), running("agent", olderThanNode)), gate.NotYet, none, "warm: the node has no label warm; agent: the evidence that pod kube-system/agent-x is ready predates the current boot or the current Node"},
	})
}

func TestAnyOfProvesAndNeeds(t *testing.T) {
	s := labelOrAgent(t)
	if s.ProvesBoot() {
		t.Error("a label that opens the gate proves no boot")
	}
	w := aNode(with("agent"), running("agent"))
	if n := s.Needs(&w.sets); len(n.Pods) != 1 || len(n.DaemonSetNamespaces) != 1 {
		t.Errorf("needs = %+v", n)
	}
	if pods, observed := s.Evidence(&w.facts); len(pods) != 1 || !observed {
		t.Errorf("evidence = %v, %v", pods, observed)
	}
	if _, observed := s.Evidence(&aNode(unobservedSets).facts); observed {
		t.Error("pods of unobserved DaemonSets are evidence")
	}
}

// anyDaemon returns a signal that holds if a DaemonSet of these names is ready.
func anyDaemon(t *testing.T, names ...string) gate.Signal {
	t.Helper()
	var alternatives []v1alpha1.NamedSource
	for _, name := range names {
		alternatives = append(alternatives, v1alpha1.NamedSource{Name: name, SignalSource: v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: name}}})
	}
	signal, err := compileSignal(&v1alpha1.Signal{AnyOf: alternatives})
	if err != nil {
		t.Fatal(err)
	}
	return signal
}

// The pods of a DaemonSet that does not exist are not observed. This does not delay a gate for which
// an alternative to it exists.
func TestAnyOfEvidenceOfMissingDaemonSet(t *testing.T) {
	either := anyDaemon(t, "agent", "b")
	for name, c := range map[string]struct {
		signal   gate.Signal
		node     *world
		pods     int
		observed bool
	}{
		"both exist, without pods":   {either, aNode(with("agent"), with("b")), 0, true},
		"neither exists":             {either, aNode(), 0, false},
		"the first has a pod":        {either, aNode(with("agent"), running("agent")), 1, true},
		"the second has a pod":       {either, aNode(with("b"), running("b")), 1, true},
		"the second has no pod":      {either, aNode(with("b")), 0, false},
		"a label, and no DaemonSet":  {labelOrAgent(t), aNode(warm), 0, false},
		"pods of one are unobserved": {either, aNode(with("agent"), running("agent"), with("b"), unobservedPods("b")), 0, false},
	} {
		if pods, observed := c.signal.Evidence(&c.node.facts); len(pods) != c.pods || observed != c.observed {
			t.Errorf("%s: %d pods, observed %v", name, len(pods), observed)
		}
	}
}

// The time since which no alternative holds is known only if it is known for all of
// them.
func TestAnyOfSince(t *testing.T) {
	s, err := compileSignal(&v1alpha1.Signal{AnyOf: []v1alpha1.NamedSource{
		{Name: "a", SignalSource: v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: "A", Status: "True"}}},
		{Name: "b", SignalSource: v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: "B", Status: "True"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	at := func(minutes int, c gate.Condition) gate.Condition {
		c.Transition = epoch.Add(-time.Duration(minutes) * time.Minute)
		return c
	}
	for name, c := range map[string]struct {
		node *world
		ago  int // minutes; 0 is unknown
	}{
		"the last to stop holding": {conditions(at(9, cond("A", "False")), at(3, cond("B", "False"))), 3},
		"one never existed":        {conditions(at(9, cond("A", "False"))), 0},
		"the first to hold":        {conditions(at(3, cond("A", "True")), at(9, cond("B", "True"))), 9},
		"the one that holds":       {conditions(at(9, cond("A", "False")), at(3, cond("B", "True"))), 3},
	} {
		want := epoch.Add(-time.Duration(c.ago) * time.Minute)
		if c.ago == 0 {
			want = time.Time{}
		}
		if r, _ := read(t, s, c.node); !r.Since.Equal(want) {
			t.Errorf("%s: since %s, want %s", name, r.Since, want)
		}
	}
}

// If several alternatives hold, the reading is that of the one that has held the
// longest. It also contains when that may change, and whether one of them may have held
// for longer.
func TestLongest(t *testing.T) {
	at := func(minutes int) time.Time { return epoch.Add(time.Duration(minutes) * time.Minute) }
	holds := func(since, recheck time.Time) gate.Reading {
		return gate.Reading{State: gate.Holds, Since: since, Recheck: recheck}
	}
	never, soon := time.Time{}, at(60)
	for name, c := range map[string]struct{ a, b, want gate.Reading }{
		"the earlier, regardless of the later": {holds(at(1), never), holds(at(2), soon), holds(at(1), never)},
		"the earlier, until it changes":        {holds(at(1), soon), holds(at(2), never), holds(at(1), soon)},
		"one without a time":                   {holds(at(1), never), holds(never, never), gate.Reading{State: gate.Holds, Since: at(1), Longer: true}},
		"one without a time that may change":   {holds(at(1), never), holds(never, soon), gate.Reading{State: gate.Holds, Since: at(1), Longer: true, Recheck: soon}},
		"one that may start to hold":           {holds(at(1), never), gate.Reading{State: gate.NotYet, Recheck: soon}, holds(at(1), never)},
		"one that may have held all along":     {holds(at(1), never), gate.Reading{Recheck: soon}, holds(at(1), soon)},
	} {
		for _, r := range []gate.Reading{longest(c.a, c.b), longest(c.b, c.a)} {
			if r != c.want {
				t.Errorf("%s: %+v, want %+v", name, r, c.want)
			}
		}
	}
}

func TestAnyOfThatCannotBeCompiled(t *testing.T) {
	_, err := compileSignal(&v1alpha1.Signal{AnyOf: []v1alpha1.NamedSource{
		{Name: "bad", SignalSource: v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{TypePattern: "(", Status: "True"}}},
	}})
	if err == nil || !strings.Contains(err.Error(), "alternative bad") {
		t.Errorf("error: %v", err)
	}
}

func TestDiagnoseAnyOf(t *testing.T) {
	taints := []v1alpha1.Taint{{Key: gateKey, Effect: "NoSchedule"}}
	two := anyDaemon(t, "agent", "other")
	for name, c := range map[string]struct {
		signal gate.Signal
		node   *world
		state  gate.State
	}{
		"one without a problem":                         {two, aNode(with("other")), gate.Holds},
		"all with a problem":                            {two, aNode(with("other", tolerating())), gate.NotYet},
		"not observed":                                  {two, aNode(unobservedSets), gate.Unknown},
		"a label has no problem":                        {labelOrAgent(t), aNode(), gate.Holds},
		"a label has no problem, DaemonSets unobserved": {labelOrAgent(t), aNode(unobservedSets), gate.Holds},
	} {
		if r := Diagnose(c.signal, taints, &c.node.sets); r.State != c.state {
			t.Errorf("%s: %s %s", name, r.State, r.Reason)
		}
	}
}
