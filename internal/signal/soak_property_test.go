// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// alternative is one of a gate's alternatives, with the fact that it reads.
type alternative struct {
	source v1alpha1.SignalSource
	// lasting is how many seconds the fact must have been present.
	lasting int
	// set makes the fact present or absent from now on.
	set func(w *world, there bool, now time.Time)
	// there is how many seconds the fact has been present, or -1.
	there int
}

// alternatives returns alternatives with and without a time from the API.
func alternatives() []*alternative {
	condition := func(name string) func(*world, bool, time.Time) {
		return func(w *world, there bool, now time.Time) {
			c := gate.Condition{Type: name, Status: corev1.ConditionFalse, Transition: now}
			if there {
				c.Status = corev1.ConditionTrue
			}
			others := slices.DeleteFunc(slices.Clone(w.facts.Node.Conditions), func(c gate.Condition) bool { return c.Type == name })
			w.facts.Node.Conditions = append(others, c)
		}
	}
	return []*alternative{
		{v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "l"}}, 0,
			func(w *world, _ bool, _ time.Time) { w.facts.Node.Labels = toggled(w.facts.Node.Labels, "l", "") }, -1},
		{v1alpha1.SignalSource{Annotation: &v1alpha1.KeyValueSignal{Key: "k"}}, 0,
			func(w *world, _ bool, _ time.Time) {
				w.facts.Node.Annotations = toggled(w.facts.Node.Annotations, "k", "")
			}, -1},
		{v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: "X", Status: "True"}}, 0, condition("X"), -1},
		{v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: "Y", Status: "True", ForSeconds: 20}}, 20, condition("Y"), -1},
		{v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: "a", MinReadySeconds: 15}}, 15,
			func(w *world, there bool, now time.Time) {
				w.facts.Pods[query("a")] = nil
				running("a", func(p *gate.Pod) { p.Ready, p.ReadySince, p.Created = there, now, now })(w)
			}, -1},
	}
}

// soakLife is a node on which one gate waits for any of several alternatives to have
// held for a minute, and other gates wait for one of them each. Decisions are made
// every second and never written.
type soakLife struct {
	*world
	now    time.Time
	all    []*alternative
	gates  []gate.Gate // the first is the one with the alternatives
	steady map[string]gate.Steady
	// unbroken is how many seconds some alternative has held, based only on the facts.
	unbroken int
	// opens is how many seconds each of the other gates would have been open.
	opens []int
}

const soakSeconds = 60

func newSoakLife(t *rapid.T) *soakLife {
	l := &soakLife{world: aNode(with("a")), now: epoch, steady: map[string]gate.Steady{}}
	l.all = rapid.Permutation(alternatives()).Draw(t, "alternatives")[:rapid.IntRange(2, 4).Draw(t, "how many")]
	l.opens = make([]int, len(l.all))
	var named []v1alpha1.NamedSource
	for i, a := range l.all {
		named = append(named, v1alpha1.NamedSource{Name: fmt.Sprint("s", i), SignalSource: a.source})
	}
	l.facts.Node.Taints, l.facts.Node.Records = nil, map[string]string{}
	l.add(t, v1alpha1.Signal{Name: "any", AnyOf: named})
	for _, s := range named {
		l.add(t, v1alpha1.Signal{Name: "one", SignalSource: s.SignalSource})
	}
	return l
}

// add adds a closed gate that waits for a signal.
func (l *soakLife) add(t rapid.TB, s v1alpha1.Signal) {
	ng := &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("g", len(l.gates)), CreationTimestamp: metav1.NewTime(epoch.Add(-2 * day))}}
	ng.Spec.Taint = v1alpha1.Taint{Key: "g.example/" + ng.Name, Effect: corev1.TaintEffectNoSchedule}
	ng.Spec.OpenWhen, ng.Spec.Timing.OpenAfterSeconds = []v1alpha1.Signal{s}, soakSeconds
	g, err := Compile(ng, v1alpha1.SourceCRD)
	if err != nil {
		t.Fatal(err)
	}
	g.Accepted = true
	l.gates = append(l.gates, g)
	n := &l.facts.Node
	n.Taints = append(n.Taints, corev1.Taint{Key: g.Taint.Key, Effect: g.Taint.Effect})
	n.Records[g.Name] = (&gate.Record{State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonRegression, Boot: n.BootID, Since: epoch.Add(-time.Minute),
		Taint: gate.TaintText(g.Taint), Source: g.Source}).String()
	l.facts.Transient.GateKeys[g.Taint.Key] = true
}

// flip changes the fact that an alternative reads.
func (l *soakLife) flip(a *alternative) {
	a.there = map[bool]int{true: -1, false: 0}[a.there >= 0]
	a.set(l.world, a.there >= 0, l.now)
}

// decide decides, and remembers.
func (l *soakLife) decide() gate.Decision {
	l.facts.Steady = l.steady
	d := gate.Decide(l.gates, &l.facts, l.now)
	l.steady = map[string]gate.Steady{}
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Steady != nil {
			l.steady[v.Gate] = *v.Steady
		}
	}
	return d
}

// check compares the gate with the other gates and with the facts.
func (l *soakLife) check(t *rapid.T) {
	d := l.decide()
	anyOpens := d.Verdict("g0").Opened()
	if anyOpens && l.unbroken < soakSeconds {
		t.Fatalf("the gate opens although some alternative has held for only %d seconds", l.unbroken)
	}
	for i := range l.all {
		if l.opens[i]++; !d.Verdict(fmt.Sprint("g", i+1)).Opened() {
			l.opens[i] = 0
		}
		if late := time.Duration(l.opens[i]-1) * time.Second; late > gate.HeartbeatSkew && !anyOpens {
			t.Fatalf("alternative %d alone would have opened the gate %s ago", i, late)
		}
	}
}

// pass lets seconds pass.
func (l *soakLife) pass(t *rapid.T, seconds int) {
	for range seconds {
		l.check(t)
		l.now = l.now.Add(time.Second)
		held := false
		for _, a := range l.all {
			held = held || a.there >= a.lasting
			if a.there >= 0 {
				a.there++
			}
		}
		if l.unbroken++; !held {
			l.unbroken = 0
		}
	}
}

// The wait of an anyOf signal ends when the wait of one of its alternatives would,
// whichever other alternatives start to hold in the meantime and whether or not the API
// reports a time. It may take longer by the allowance for clock skew if that
// alternative was observed to start and another stopped holding. The wait does not end
// before some alternative has held throughout.
func TestNoAlternativeBeginsASoakAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newSoakLife(t)
		for range rapid.IntRange(5, 25).Draw(t, "events") {
			switch event := rapid.IntRange(0, 9).Draw(t, "event"); event {
			case 0: // the controller is replaced
				l.steady = nil
			case 1: // the controller does not observe DaemonSets for a while
				l.sets.Observed = map[string]bool{"kube-system": !l.sets.Observed["kube-system"]}
			default:
				l.flip(rapid.SampledFrom(l.all).Draw(t, "alternative"))
			}
			l.pass(t, rapid.SampledFrom([]int{1, 5, 20, 40, 80}).Draw(t, "seconds"))
		}
	})
}
