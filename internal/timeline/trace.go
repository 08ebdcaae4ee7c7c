// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Trace returns the history of a node, given the facts about it and the decision made
// from them. The gates must be sorted by name. pods contains all pods of the node, or is
// nil if they were not read.
func Trace(gates []gate.Gate, f *gate.Facts, d *gate.Decision, pods *gate.PodList, now time.Time) History {
	t := tracer{facts: f, now: now, pods: pods, bound: make(map[types.UID]*gate.BoundPod)}
	if pods != nil {
		for i := range pods.Pods {
			t.bound[pods.Pods[i].UID] = &pods.Pods[i]
		}
	}
	n := &f.Node
	l := History{Node: n.Name, Created: n.Created.UTC(), Ready: ready(n), Gates: []Gate{}, PodsRead: pods != nil}
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		at, known := slices.BinarySearchFunc(gates, v.Gate, func(g gate.Gate, name string) int { return cmp.Compare(g.Name, name) })
		var g *gate.Gate
		if known {
			g = &gates[at]
		}
		if traced, ok := t.gate(v, g); ok {
			l.Gates = append(l.Gates, traced)
		}
	}
	slices.SortFunc(l.Gates, func(a, b Gate) int { return cmp.Compare(a.Gate, b.Gate) })
	t.open(&l)
	t.doubtReady(&l)
	return l
}

type tracer struct {
	facts *gate.Facts
	pods  *gate.PodList
	bound map[types.UID]*gate.BoundPod
	now   time.Time
}

func ready(n *gate.Node) Moment {
	c, ok := n.Condition(string(corev1.NodeReady))
	switch {
	case !ok, c.Status != corev1.ConditionTrue:
		return Moment{Doubt: Pending}
	case c.Transition.IsZero():
		return Moment{Doubt: Untold}
	}
	return sinceCreation(c.Transition, n)
}

// sinceCreation returns the moment of an event on the node. Clocks may differ by up to
// gate.HeartbeatSkew.
func sinceCreation(at time.Time, n *gate.Node) Moment {
	m := Moment{At: at.UTC()}
	if at.Before(n.Created.Add(-gate.HeartbeatSkew)) {
		m.Doubt = BeforeNode
	}
	return m
}

// gate returns the history of one gate. The second result is false if there is none.
func (t *tracer) gate(v *gate.Verdict, g *gate.Gate) (Gate, bool) {
	r, ok := t.record(v, g)
	if !ok {
		return Gate{}, false
	}
	out := Gate{
		Gate: v.Gate, Unknown: g == nil, State: v.Before, Reason: r.Reason, CloseWhen: g != nil && g.CloseWhen,
		Soft: strings.HasSuffix(r.Taint, ":"+string(corev1.TaintEffectPreferNoSchedule)), Overdue: v.Overdue, IgnoresSignals: v.Readings == nil || v.Blocked == v1alpha1.ReadingOverridden,
	}
	if r.Override != "" {
		out.State, out.Reason, out.Overridden = r.Effective(), v1alpha1.ReasonOverridden, true
	}
	out.Opens = out.State == v1alpha1.StateClosed && v.After != v1alpha1.StateClosed
	t.times(&out, &r, g)
	if out.State == v1alpha1.StateClosed {
		out.Blocked = v.Obstacle().SnapshotMessage()
	}
	if g != nil {
		out.Signals = t.signals(&out, &r, g, v)
	}
	return out, true
}

// record returns the gate's record, and whether the gate has a history. Of a record that is
// missing or cannot be read, only the taint and the reason are known.
func (t *tracer) record(v *gate.Verdict, g *gate.Gate) (gate.Record, bool) {
	raw, recorded := t.facts.Node.Records[v.Gate]
	r, err := gate.ParseRecord(raw)
	switch {
	case v.DryRun:
		return r, false // it changes nothing on the node
	case err == nil:
		return r, v.Before != "" // else it is a former Node's, or another gate takes it over
	case g == nil, v.Before == "", v.Before != v1alpha1.StateClosed && (g.CloseWhen || !recorded):
		return r, false // no member, or the record of a gate that does not exist
	case recorded && !g.CloseWhen:
		r.Reason = v1alpha1.ReasonAdopted
	}
	r.Taint = gate.TaintText(g.Taint)
	return r, true
}

// times sets when the gate closed and opened, as far as its record contains it. The gate
// is nil if it does not exist.
func (t *tracer) times(out *Gate, r *gate.Record, g *gate.Gate) {
	n := &t.facts.Node
	since := r.TaintedSince(n).UTC()
	if out.State == v1alpha1.StateClosed {
		out.Closed, out.Opened = Moment{At: since}, Moment{Doubt: Pending}
		switch {
		case r.State == "": // the record is missing or cannot be read
			out.Closed = Moment{Doubt: Untold}
		case out.Reason == v1alpha1.ReasonAdopted:
			out.Closed.Doubt = Adopted
		}
		return
	}
	out.Closed, out.Opened = Moment{Doubt: Untold}, Moment{At: since}
	switch {
	case r.State == "":
		out.Opened = Moment{Doubt: Joined}
	case r.Override == "" && r.Reason == v1alpha1.ReasonAdopted:
		out.Opened.Doubt = Joined
	case g != nil && !g.CloseWhen && n.Created.Before(g.Created):
		out.Opened.Doubt = Older
	case r.Reason == v1alpha1.ReasonOverrideEnded, t.inUseBefore(r, since): // an earlier override had opened it
		out.Opened.Doubt = Again
	case r.Reason == v1alpha1.ReasonAdopted:
		out.Closed = Moment{At: r.Since.UTC(), Doubt: Adopted}
	case !out.CloseWhen:
		out.Closed = Moment{At: n.Created.UTC()}
	}
}

// inUseBefore reports whether a pod that could only be bound while the gate was open was
// bound to the node before the gate last opened: then it had been open before.
func (t *tracer) inUseBefore(r *gate.Record, opened time.Time) bool {
	put := r.RecordedTaint()
	return put.Effect != "" && put.Effect != corev1.TaintEffectPreferNoSchedule && t.boundBefore(put, opened)
}

// boundBefore reports whether a workload pod that does not tolerate the taint was bound to
// the node before a time. It ignores pods of a former Node of the same name.
func (t *tracer) boundBefore(kept v1alpha1.Taint, at time.Time) bool {
	if t.pods == nil {
		return false
	}
	for i := range t.pods.Pods {
		p := &t.pods.Pods[i]
		former := p.Bound.Before(t.facts.Node.Created) // or not bound
		if isWorkload(p) && !former && p.Bound.Before(at.Add(-gate.HeartbeatSkew)) && !p.Tolerates(kept) {
			return true
		}
	}
	return false
}

// signals returns the history of the gate's signals. It reads the signals if the decision
// did not, because it did not depend on them.
func (t *tracer) signals(out *Gate, r *gate.Record, g *gate.Gate, v *gate.Verdict) []Signal {
	readings := v.Readings
	if readings == nil {
		in := gate.Input{
			Facts: t.facts, Taint: g.Taint, OtherTaint: g.Taint, Lasting: t.facts.Lasting(), Open: v.Before == v1alpha1.StateOpen, Now: t.now,
			Completed: r.CompletedOn(&t.facts.Node),
		}
		for _, s := range g.Signals {
			readings = append(readings, s.Read(in))
		}
	}
	all := make([]Signal, 0, len(readings))
	for i, is := range readings {
		s := Signal{Name: g.Signals[i].Name, State: is.State.String(), Message: is.SnapshotMessage(), Held: t.held(out, is)}
		s.Pod = t.pod(g.Signals[i].Signal, &is)
		all = append(all, s)
	}
	return all
}

// held returns when a signal started to hold, in relation to the gate.
func (t *tracer) held(out *Gate, r gate.Reading) Moment {
	waited := out.State == v1alpha1.StateOpen && out.Reason == v1alpha1.ReasonSignalsHold
	switch {
	case r.Unseen():
		return Moment{Doubt: Unread}
	case r.State != gate.Holds && waited:
		return Moment{Doubt: Lost}
	case r.State != gate.Holds:
		return Moment{Doubt: Pending}
	case r.Since.IsZero():
		return Moment{Doubt: Untold}
	}
	m := sinceCreation(r.Since, &t.facts.Node)
	if opened := out.Opened; out.State == v1alpha1.StateOpen && !out.CloseWhen && opened.Doubt != Joined && m.At.After(opened.At.Add(gate.HeartbeatSkew)) {
		m.Doubt = AfterOpening
	}
	return m
}

// pod returns the pod that the signal depends on. If there are several, it is the one
// that the reading names, or the one that has been ready longest.
func (t *tracer) pod(s gate.Signal, r *gate.Reading) *Pod {
	evidence, _ := s.Evidence(t.facts)
	var best *gate.Pod
	for i := range evidence {
		p := &evidence[i]
		switch {
		case p.Mirror, p.Finished:
		case best == nil, p.Name == r.Subject && best.Name != r.Subject:
			best = p
		case (p.Name == r.Subject) == (best.Name == r.Subject) && p.Ready && (!best.Ready || p.ReadySince.Before(best.ReadySince)):
			best = p
		}
	}
	if best == nil {
		return nil
	}
	out := &Pod{Name: best.Name, Created: best.Created.UTC()}
	if best.Ready {
		out.Ready = best.ReadySince.UTC()
	}
	if b := t.bound[best.UID]; b != nil {
		out.Bound, out.Started = b.Bound.UTC(), started(b)
	}
	return out
}

// started returns when the last of the pod's containers started.
func started(p *gate.BoundPod) time.Time {
	var at time.Time
	for _, s := range p.Starts {
		at = gate.Latest(at, s.At)
	}
	return at.UTC()
}

// open sets when the last gate opened that was closed at the node's creation, and the
// first workload pod after that.
func (t *tracer) open(l *History) {
	l.Opened = Moment{Doubt: NoGate}
	for i := range l.Gates {
		g := &l.Gates[i]
		switch {
		case g.Soft:
		case g.Holds():
			l.Held = true
		case g.CloseWhen:
		case g.Opened.Doubt == Joined:
			if l.Opened.Doubt == NoGate {
				l.Opened.Doubt = Joined
			}
		case g.Opened.Doubt == Older:
			if l.Opened.At.IsZero() {
				l.Opened.Doubt = Older
			}
		case l.Opened.At.IsZero(), g.Opened.At.After(l.Opened.At):
			l.Opened = g.Opened
		}
	}
	switch {
	case l.Held:
		l.Opened = Moment{Doubt: Pending}
	case t.pods != nil && !l.Opened.At.IsZero():
		l.FirstPod = t.firstPod(l.Opened.At)
	}
}

// firstPod returns the first workload pod that was bound to the node after a time and
// still exists. Times of the API server have a resolution of a second.
func (t *tracer) firstPod(opened time.Time) *Pod {
	opened = opened.Truncate(time.Second)
	var first *gate.BoundPod
	for i := range t.pods.Pods {
		p := &t.pods.Pods[i]
		if isWorkload(p) && !p.Bound.Before(opened) && (first == nil || p.Bound.Before(first.Bound)) {
			first = p
		}
	}
	if first == nil {
		return nil
	}
	return &Pod{
		Name: first.Namespace + "/" + first.Name, Created: first.Created.UTC(), Bound: first.Bound.UTC(), Started: started(first),
	}
}

// isWorkload reports whether a pod belongs neither to a DaemonSet nor to the node itself.
// Finished pods count.
func isWorkload(p *gate.BoundPod) bool { return !p.Daemon && !p.Mirror }

// notReady is the taint that keeps pods off a node until it is ready.
var notReady = v1alpha1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}

// doubtReady sets the doubt of the Ready moment if a workload pod was bound before it: then
// the node was ready before.
func (t *tracer) doubtReady(l *History) {
	if l.Ready.Known() && t.boundBefore(notReady, l.Ready.At) {
		l.Ready.Doubt = Again
	}
}
