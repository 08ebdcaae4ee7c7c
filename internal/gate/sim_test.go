// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// epoch is the start time of every test.
var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const cniTaint = "cni.example/not-ready:NoSchedule"

// flagSignal is a signal without evidence that a test sets by a label of the node.
type flagSignal string

func (s flagSignal) Read(in Input) Reading {
	r := Reading{State: NotYet, Subject: string(s)}
	switch in.Node.Labels["flag/"+string(s)] {
	case "holds":
		r.State = Holds
	case "unknown":
		r.State = Unknown
	case "rollout":
		r.Rollout = true
	case "not ready": // a pod
		r.Reason = v1alpha1.ReadingPodNotReady
	case "none": // of several alternatives
		r.Reason = v1alpha1.ReadingNoneHolds
	}
	return r
}

func (flagSignal) Evidence(*Facts) ([]Pod, bool) { return nil, true }
func (flagSignal) ProvesBoot() bool              { return false }
func (flagSignal) Needs(*DaemonSets) Needs       { return Needs{} }

// agent is a signal that holds while one of the pods of its name is ready and accepted
// as evidence.
type agent string

func (s agent) query() PodQuery { return PodQuery{Namespace: "kube-system", Selector: string(s)} }

func (s agent) Read(in Input) Reading {
	pods, observed := in.Pods[s.query()]
	if !observed {
		return Reading{Subject: string(s)}
	}
	r := Reading{State: NotYet, Subject: string(s)}
	if len(pods) == 0 {
		r.Reason = v1alpha1.ReadingPodMissing
	}
	for i := range pods {
		p := &pods[i]
		if !p.Ready || p.Terminating {
			r.Since = p.ReadySince
			continue
		}
		if believed, recheck := in.Trust.Believes(p, in.Now); !believed {
			r.Reason, r.Recheck = v1alpha1.ReadingStaleEvidence, recheck
			continue
		}
		return Reading{State: Holds, Subject: string(s)}
	}
	return r
}

func (s agent) Evidence(f *Facts) ([]Pod, bool) { p, ok := f.Pods[s.query()]; return p, ok }
func (agent) ProvesBoot() bool                  { return true }
func (s agent) Needs(*DaemonSets) Needs         { return Needs{Pods: []PodQuery{s.query()}} }

// aGate returns a gate that is older than every node, waits for a flag with its own
// name, and closes for reboots. Options change it.
func aGate(name string, options ...func(*Gate)) Gate {
	g := Gate{
		Name: name, Source: v1alpha1.SourceCRD, Accepted: true, Selector: labels.Everything(),
		Created: epoch.Add(-48 * time.Hour), Reclose: v1alpha1.RecloseOnReboot, Existing: v1alpha1.ExistingIgnore,
		CloseAfter: 2 * time.Minute, RolloutGrace: 10 * time.Minute,
		Signals: []NamedSignal{{Name: name, Signal: flagSignal(name)}},
	}
	g.Taint, _ = parseTaint(name + ".example/not-ready:NoSchedule")
	for _, o := range options {
		o(&g)
	}
	return g
}

func tainting(text string) func(*Gate) {
	t, ok := parseTaint(text)
	if !ok {
		panic(text)
	}
	return func(g *Gate) { g.Taint = t }
}

// recloseTainting sets a gate's recloseTaint.
func recloseTainting(text string) func(*Gate) {
	t, ok := parseTaint(text)
	if !ok {
		panic(text)
	}
	return func(g *Gate) { g.RecloseTaint = t }
}

func selecting(selector string) func(*Gate) {
	s, err := labels.Parse(selector)
	if err != nil {
		panic(err)
	}
	return func(g *Gate) { g.Selector = s }
}

func waitingFor(signals ...Signal) func(*Gate) {
	return func(g *Gate) {
		g.Signals = nil
		for i, s := range signals {
			g.Signals = append(g.Signals, NamedSignal{Name: fmt.Sprint(i), Signal: s})
		}
	}
}

func reclosing(p v1alpha1.ReclosePolicy) func(*Gate) { return func(g *Gate) { g.Reclose = p } }
func existing(e v1alpha1.ExistingNodes) func(*Gate)  { return func(g *Gate) { g.Existing = e } }
func createdAgo(d time.Duration) func(*Gate) {
	return func(g *Gate) { g.Created = epoch.Add(-d) }
}
func refused(g *Gate) { g.Accepted = false }

// sim is a node with its gates. Its methods change the facts; decide makes a decision,
// and run also applies it.
type sim struct {
	gates []Gate
	facts Facts
	now   time.Time
}

// aNode returns a node that is a day old, is Ready, and runs in boot "a".
func aNode(gates ...Gate) *sim {
	s := &sim{gates: gates, now: epoch}
	s.facts = Facts{
		Node: Node{
			Name: "n1", UID: "uid-1", Created: epoch.Add(-24 * time.Hour), BootID: "a", Labels: labels.Set{},
			Conditions: []Condition{{Type: "Ready", Status: corev1.ConditionTrue}}, Records: map[string]string{},
		},
		Pods: map[PodQuery][]Pod{}, CompleteSources: map[string]bool{v1alpha1.SourceCRD: true},
	}
	return s
}

func (s *sim) age(d time.Duration) *sim { s.facts.Node.Created = s.now.Add(-d); return s }

// boot reboots the node, and the start of the boot is observed.
func (s *sim) boot(id string) *sim {
	if old := s.facts.Node.BootID; old != id {
		s.facts.Boot = Boot{Seen: s.now, After: old}
	}
	s.facts.Node.BootID = id
	return s
}

// left makes gates have ceased to select the node for long enough to leave it.
func (s *sim) left(names ...string) *sim {
	s.facts.LeftSince = map[string]time.Time{}
	for _, name := range names {
		s.facts.LeftSince[name] = s.now.Add(-LeavesAfter)
	}
	return s
}

// sees sets the time at which the start of the current boot was observed.
func (s *sim) sees(id string, ago time.Duration) *sim {
	s.boot(id).facts.Boot.Seen = s.now.Add(ago)
	return s
}

// bootUnobserved reboots the node unobserved; the boot is first observed now.
func (s *sim) bootUnobserved(id string) *sim {
	s.facts.Node.BootID, s.facts.Boot = id, Boot{Seen: s.now}
	return s
}
func (s *sim) after(d time.Duration) *sim {
	s.now = s.now.Add(d)
	return s
}

func (s *sim) ready(status string) *sim {
	s.facts.Node.Conditions = nil
	if status != "" {
		s.facts.Node.Conditions = []Condition{{Type: "Ready", Status: corev1.ConditionStatus(status), Transition: s.now}}
	}
	return s
}

func (s *sim) shuttingDown(is bool) *sim { s.facts.Node.ShuttingDown = is; return s }
func (s *sim) zone(nodes, silent int) *sim {
	s.facts.Zone = Zone{Nodes: nodes, Silent: silent}
	return s
}

func (s *sim) label(key, value string) *sim {
	s.facts.Node.Labels = maps.Clone(s.facts.Node.Labels)
	s.facts.Node.Labels[key] = value
	return s
}
func (s *sim) flag(name, value string) *sim { return s.label("flag/"+name, value) }

func (s *sim) taint(texts ...string) *sim {
	for _, text := range texts {
		t, ok := parseTaint(text)
		if !ok {
			panic(text)
		}
		s.facts.Node.Taints = append(slices.Clip(s.facts.Node.Taints), t.Core())
	}
	return s
}

func (s *sim) untaint(text string) *sim {
	s.facts.Node.Taints = slices.DeleteFunc(slices.Clone(s.facts.Node.Taints), func(t corev1.Taint) bool { return coreText(t) == text })
	return s
}

// record adds a record to the node, written an hour ago unless changed.
func (s *sim) record(name, state string, change ...func(*Record)) *sim {
	r := Record{State: state, Since: s.now.Add(-time.Hour), Reason: v1alpha1.ReasonBirth, Boot: "a", Taint: name + ".example/not-ready:NoSchedule", Source: v1alpha1.SourceCRD}
	for _, c := range change {
		c(&r)
	}
	return s.raw(name, r.String())
}

func (s *sim) raw(name, text string) *sim {
	s.facts.Node.Records = maps.Clone(s.facts.Node.Records)
	s.facts.Node.Records[name] = text
	return s
}

// closed closes the gates on the node, an hour ago.
func (s *sim) closed(names ...string) *sim {
	for _, n := range names {
		s.record(n, v1alpha1.StateClosed).taint(n + ".example/not-ready:NoSchedule")
	}
	return s
}

func (s *sim) open(names ...string) *sim {
	for _, n := range names {
		s.record(n, v1alpha1.StateOpen)
	}
	return s
}

// pod sets the only pod of an agent. containers determines its current incarnation.
func (s *sim) pod(name, containers string, ready bool) *sim {
	p := Pod{UID: "pod", Name: name, Created: s.facts.Node.Created.Add(time.Second), Ready: ready, ReadySince: s.now}
	p.Incarnation = NewIncarnation(p.UID, []string{containers})
	return s.pods(name, p)
}

// override adds an override of a gate for the given time from now.
func (s *sim) override(name, state string, last time.Duration) *sim {
	return s.overrideRaw(name, Override{State: state, Until: s.now.Add(last), Reason: "so", UID: s.facts.Node.UID}.String())
}

func (s *sim) overrideRaw(name, text string) *sim {
	s.facts.Node.Overrides = maps.Clone(s.facts.Node.Overrides)
	if s.facts.Node.Overrides == nil {
		s.facts.Node.Overrides = map[string]string{}
	}
	s.facts.Node.Overrides[name] = text
	return s
}

func (s *sim) endOverride(name string) *sim {
	s.facts.Node.Overrides = maps.Clone(s.facts.Node.Overrides)
	delete(s.facts.Node.Overrides, name)
	return s
}

func (s *sim) pods(name string, pods ...Pod) *sim {
	s.facts.Pods = maps.Clone(s.facts.Pods)
	s.facts.Pods[agent(name).query()] = pods
	return s
}

func (s *sim) granting(names ...string) *sim {
	s.facts.Granted = map[string]bool{}
	for _, n := range names {
		s.facts.Granted[n] = true
	}
	return s
}

// invisible makes the source of gates incomplete, so that gates are unknown without
// being deleted.
func (s *sim) invisible() *sim { s.facts.CompleteSources = nil; return s }

// forget simulates a restart of the controller, which then knows only the node.
func (s *sim) forget() *sim {
	s.facts.Lost, s.facts.Steady, s.facts.Shadow = nil, nil, nil
	s.facts.GroupWaits = nil
	return s
}

func (s *sim) decide() Decision { return Decide(s.gates, &s.facts, s.now) }

// run decides, applies the decision, and checks that nothing is left to do afterwards.
func (s *sim) run(t failer) Decision {
	t.Helper()
	d := s.decide()
	s.apply(d)
	if again := s.decide(); again.Changes || s.steps(again) {
		t.Fatalf("another decision at the same time has further changes\nfirst: %s\nagain: %s\nrecords: %v", show(d), show(again), again.Records)
	}
	return d
}

func (s *sim) apply(d Decision) {
	s.facts.Node.Taints = d.Taints
	s.facts.Node.Overrides = maps.Clone(s.facts.Node.Overrides)
	for name := range d.Withdrawn {
		delete(s.facts.Node.Overrides, name)
	}
	s.facts.Node.Records = maps.Clone(s.facts.Node.Records)
	for name, raw := range d.Records {
		if raw == "" {
			delete(s.facts.Node.Records, name)
		} else {
			s.facts.Node.Records[name] = raw
		}
	}
	s.remember(d)
}

// steps reports whether a decision changes the shadow of a gate in dry run.
func (s *sim) steps(d Decision) bool {
	return slices.ContainsFunc(d.Verdicts, func(v Verdict) bool { return v.DryRun && v.Shadow != s.facts.Shadow[v.Gate] })
}

// remember stores what a decision passes to the next one.
func (s *sim) remember(d Decision) {
	s.facts.Shadow = map[string]string{}
	s.facts.Steady = map[string]Steady{}
	s.facts.Lost, s.facts.LeftSince = map[string][]Lost{}, map[string]time.Time{}
	s.facts.GroupWaits = map[string]GroupWait{}
	for _, v := range d.Verdicts {
		if !v.GroupWait.Since.IsZero() {
			s.facts.GroupWaits[v.Gate] = v.GroupWait
		}
		if v.Shadow != "" {
			s.facts.Shadow[v.Gate] = v.Shadow
		}
		if !v.LeftSince.IsZero() {
			s.facts.LeftSince[v.Gate] = v.LeftSince
		}
		if v.Lost != nil {
			s.facts.Lost[v.Gate] = v.Lost
		}
		if v.Steady != nil {
			s.facts.Steady[v.Gate] = *v.Steady
		}
	}
}

func coreText(t corev1.Taint) string {
	return TaintText(v1alpha1.TaintOf(t))
}

func taintTexts(taints []corev1.Taint) string {
	var texts []string
	for _, t := range taints {
		texts = append(texts, coreText(t))
	}
	return "[" + strings.Join(texts, " ") + "]"
}

// show returns a decision as one line: whether anything is written, the taints, and for
// each gate its states before and after and what it waits for.
func show(d Decision) string {
	var b strings.Builder
	if d.Changes {
		b.WriteString("write ")
	}
	b.WriteString(taintTexts(d.Taints))
	for i := range d.Verdicts {
		b.WriteString(" " + showVerdict(&d.Verdicts[i]))
	}
	for _, name := range slices.Sorted(maps.Keys(d.Ignored)) {
		b.WriteString(" ignored:" + name)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Withdrawn)) {
		b.WriteString(" withdrawn:" + name)
		if d.Withdrawn[name] != "" {
			b.WriteString("(refused)")
		}
	}
	return b.String()
}

func showVerdict(v *Verdict) string {
	text := fmt.Sprintf("%s:%s>%s", v.Gate, mark(v.Before), mark(v.After))
	if v.Reason != "" {
		text += fmt.Sprintf("(%s)", v.Reason)
	}
	if v.DryRun {
		text += " dry"
	}
	if v.Contended {
		text += " contended"
	}
	if v.Held {
		text += " held"
	}
	if v.Blocked != "" {
		text += fmt.Sprintf(" blocked=%s", v.Blocked)
	}
	if v.Overdue {
		text += " overdue"
	}
	if v.PassedDeadline {
		text += " passed"
	}
	if o := v.Overridden; o != nil {
		text += fmt.Sprintf(" override=%s/%s", mark(o.State), mark(o.Own))
		if o.HeldBy != "" {
			text += ",held by " + o.HeldBy
		}
	}
	if v.Wants != "" {
		text += fmt.Sprintf(" wants=%s", v.Wants)
	}
	return text
}

func mark(state string) string {
	if state == "" {
		return "-"
	}
	return state
}

// failer is the common interface of tests and properties.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}
