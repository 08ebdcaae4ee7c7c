// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// oracle says what state each gate should have on a node. It restates the
// rules without records, digests or taints: it remembers, in plain fields, what
// it has seen. It knows the gates of the property tests only: each looks at its
// own flag, and at the pod of its own name if that begins with "pod".
type oracle struct {
	gates map[string]*memory
	// guests are the taints of gates that are closed by hand on a node that is not
	// theirs.
	guests map[string]string
}

// memory is what the oracle remembers of a gate on the node.
type memory struct {
	taint  string
	closed bool
	boot   string // the boot in which it came into its state, or closed for
	// old are the incarnations that were seen before the present boot, and since
	// when the present boot is known.
	old   map[Incarnation]bool
	since time.Time
	// away is true from silence or shutdown to a new boot: what starts while the
	// node is not reporting is not known to be old.
	away bool
	// from is when it closed; zero where that is not known.
	from time.Time
	// run is how long it has been closed without silence, up to the time at;
	// quiet is whether the node was silent then. overdue is whether that was too
	// long, and lapsed whether it is open for that reason.
	run     time.Duration
	at      time.Time
	quiet   bool
	overdue bool
	lapsed  bool
	// good is since when its signals have been seen to say what opens it; zero
	// while they do not.
	good time.Time
	// disarmed is true from when a closeWhen gate is opened by hand until its
	// flag does not hold.
	disarmed bool
	// mask is what a person has it be instead, for a time.
	mask string
	// anew is true of a gate that closed for a reboot or for its signals: what they
	// said before is nothing to it.
	anew bool
	// inherited is true of a gate that is away and was another's: nobody knows its
	// own pods of before. rebooted is true if it closed for a boot, or saw one.
	inherited, rebooted bool
}

// observe tells the oracle that the core is asked now.
func (o *oracle) observe(s *sim) {
	before := map[string]bool{} // the taints of closed gates
	for _, m := range o.gates {
		before[m.taint] = before[m.taint] || m.tainted()
	}
	for _, taint := range o.guests {
		before[taint] = true
	}
	if s.facts.CompleteSources != nil {
		for _, name := range slices.Sorted(maps.Keys(o.gates)) {
			if find(s.gates, name) == nil {
				o.bequeath(s, name)
			}
		}
		for name := range o.guests {
			if find(s.gates, name) == nil {
				delete(o.guests, name)
			}
		}
	}
	if o.optsOut(s) {
		return
	}
	for name, m := range o.gates {
		if find(s.gates, name) == nil {
			m.good = time.Time{} // nobody looks at its signals
		}
	}
	for i := range s.gates {
		g := &s.gates[i]
		if !g.Selector.Matches(s.facts.Node.Labels) {
			delete(o.gates, g.Name)
			delete(o.guests, g.Name)
			continue
		}
		o.decide(s, g, before)
		o.cover(s, g)
	}
}

func (o *oracle) decide(s *sim, g *Gate, before map[string]bool) {
	m, member := o.gates[g.Name]
	if g.CloseWhen {
		o.follow(s, g, before)
		return
	}
	switch {
	case !member && o.joins(s, g, before):
		m = &memory{taint: o.firstTaint(s, g, before), closed: true, boot: s.facts.Node.BootID, since: s.now, at: s.now}
		if born(s, g) {
			m.from, m.at = s.facts.Node.Created, s.facts.Node.Created
		}
		o.gates[g.Name] = m
	case !member:
		return
	case m.closed:
		m.noteBoot(s, g.Name)
	default:
		m.maybeClose(s, g)
	}
	if m.closed && m.soaked(s, g, m.holds(s, g.Name) && s.facts.Node.Reporting() && !s.facts.Node.ShuttingDown) && m.fit(s, g.Name) && !m.tooSoon(s, g) {
		*m = memory{taint: TaintText(g.Taint), boot: bootToRemember(s, g), mask: m.mask}
	} else if m.closed {
		m.expire(s, g)
	} else if m.lapsed && m.fit(s, g.Name) {
		*m = memory{taint: m.taint, boot: m.boot, mask: m.mask}
	}
}

func find(gates []Gate, name string) *Gate {
	i := slices.IndexFunc(gates, func(g Gate) bool { return g.Name == name })
	if i < 0 {
		return nil
	}
	return &gates[i]
}

// bequeath: a deleted gate's state goes to another gate with the same taint that
// has none on this node, or to nobody.
func (o *oracle) bequeath(s *sim, name string) {
	heirs := slices.Clone(s.gates)
	slices.SortFunc(heirs, func(a, b Gate) int { return strings.Compare(a.Name, b.Name) })
	for _, heir := range heirs {
		_, member := o.gates[heir.Name]
		_, guest := o.guests[heir.Name]
		if !member && !guest && heir.Selector.Matches(s.facts.Node.Labels) && slices.Contains(ownTexts(&heir), o.gates[name].taint) {
			o.gates[heir.Name] = o.gates[name]
			if m := o.gates[heir.Name]; m.boot == "" { // what closeWhen leaves remembers no boot
				m.boot = s.facts.Node.BootID
			}
			o.gates[heir.Name].inherit(s, heir.Name)
			break
		}
	}
	delete(o.gates, name)
}

// inherit: it is not known what the heir's own pods were before the last boot.
func (m *memory) inherit(s *sim, heir string) {
	switch {
	case m.closed && m.away:
		m.inherited = true
	case m.closed && m.rebooted && s.now.Before(m.since.Add(time.Minute)):
		m.old = presentReady(s, heir)
	}
}

// follow: closed while the flag holds, as far as that is known. The histories
// grant every close, and add no gate's taint. Open, the gate remembers nothing,
// but that it was opened by hand.
func (o *oracle) follow(s *sim, g *Gate, before map[string]bool) {
	m := o.gates[g.Name]
	flag := s.facts.Node.Labels["flag/"+g.Name]
	holds, known := flag == "holds", flag != "unknown"
	tainted := slices.Contains(taintList(&s.facts.Node), TaintText(g.Taint))
	switch {
	case m != nil && m.closed && g.Manual && !tainted && m.mask != "Open" && s.word(g.Name) != "Open":
		*m = memory{taint: m.taint, disarmed: true}
	case m != nil && m.closed && !m.soaked(s, g, known && !holds), m != nil && m.closed && m.tooSoon(s, g):
	case m != nil && m.closed && known && !holds && !g.Manual:
		delete(o.gates, g.Name)
	case m != nil && m.closed:
	case tainted && !before[TaintText(g.Taint)]:
		panic("a taint of nobody's")
	case holds && (m == nil || !m.disarmed || !g.Manual):
		o.gates[g.Name] = &memory{taint: TaintText(g.Taint), closed: true, boot: s.facts.Node.BootID, since: s.now, from: s.now, at: s.now, anew: true}
	}
	if m := o.gates[g.Name]; g.Manual && m != nil && m.disarmed && known && !holds {
		delete(o.gates, g.Name)
	}
}

// expire: a deadline passes, on a clock that stands still in silence, and may open
// a gate on a node that speaks and is set up. A pod that was missing too late once
// is enough; so is a deadline that had passed before the node was away.
func (m *memory) expire(s *sim, g *Gate) {
	if m.mask == "Open" || s.word(g.Name) == "Open" {
		m.forgetDeadline(s)
		return
	}
	n, t := &s.facts.Node, g.Deadline
	ready, _ := n.Condition("Ready")
	turned := ready.Transition
	if turned.Before(m.at) {
		turned = m.at
	}
	switch {
	case m.quiet && n.Silent():
	case m.quiet:
		m.run += s.now.Sub(turned)
	case n.Silent():
		m.run += turned.Sub(m.at)
	default:
		m.run += s.now.Sub(m.at)
	}
	m.at, m.quiet = s.now, n.Silent()
	lacks := g.Name[:3] == "pod" && len(s.facts.Pods[agent(g.Name).query()]) == 0
	set := t.Ready > 0 || t.PodMissing > 0
	m.overdue = t.Ready > 0 && m.run >= t.Ready ||
		t.PodMissing > 0 && m.run >= t.PodMissing && (lacks || m.overdue) ||
		set && m.overdue && m.away
	if m.overdue && t.Open && !n.Silent() && !n.ShuttingDown && !beingSetUp(n.Taints) {
		if m.holds(s, g.Name) {
			*m = memory{taint: TaintText(g.Taint), boot: bootToRemember(s, g), mask: m.mask}
			return
		}
		old := m.old
		if m.away && m.boot == n.BootID {
			old = nil
		}
		*m = memory{taint: TaintText(g.Taint), boot: bootToRemember(s, g), lapsed: true, old: old, since: s.now, mask: m.mask}
	}
}

// bootToRemember: a gate that never closes again has no use for it.
func bootToRemember(s *sim, g *Gate) string {
	if g.Reclose == v1alpha1.RecloseNever {
		return ""
	}
	return s.facts.Node.BootID
}

// joins: born into the gate, or it carries one of its taints and no gate accounts
// for that.
func (o *oracle) joins(s *sim, g *Gate, before map[string]bool) bool {
	return born(s, g) || len(unclaimed(s, g, before)) > 0
}

// firstTaint: a new node gets the first taint, others keep what they carry.
func (o *oracle) firstTaint(s *sim, g *Gate, before map[string]bool) string {
	if born(s, g) {
		return TaintText(g.Taint)
	}
	return unclaimed(s, g, before)[0]
}

// ownTexts are the gate's taints as texts, the first one first.
func ownTexts(g *Gate) []string {
	if g.RecloseTaint.Key == "" {
		return []string{TaintText(g.Taint)}
	}
	return []string{TaintText(g.Taint), TaintText(g.RecloseTaint)}
}

func unclaimed(s *sim, g *Gate, before map[string]bool) (texts []string) {
	for _, text := range ownTexts(g) {
		if slices.Contains(taintList(&s.facts.Node), text) && !before[text] {
			texts = append(texts, text)
		}
	}
	return texts
}

func born(s *sim, g *Gate) bool {
	n := &s.facts.Node
	return !n.Created.Before(g.Created) && s.now.Sub(n.Created) <= 10*time.Minute
}

// tooSoon: it has not been closed for long enough, and it is known when it
// closed. One that is back from silence or shutdown in the same boot may open.
func (m *memory) tooSoon(s *sim, g *Gate) bool {
	back := m.away && m.boot == s.facts.Node.BootID
	return !m.from.IsZero() && !back && s.now.Before(m.from.Add(g.MinClosed))
}

// soaked: its signals have said for long enough what opens it, as far as was seen,
// and in this boot.
func (m *memory) soaked(s *sim, g *Gate, good bool) bool {
	switch {
	case !good:
		m.good = time.Time{}
	case m.good.IsZero():
		m.good = s.now
	}
	if m.away && m.boot == s.facts.Node.BootID {
		return true
	}
	return g.OpenAfter == 0 || good && !s.now.Before(m.good.Add(g.OpenAfter))
}

func taintList(n *Node) []string {
	var texts []string
	for _, t := range n.Taints {
		texts = append(texts, coreText(t))
	}
	return texts
}

func present(s *sim, name string) map[Incarnation]bool {
	out := map[Incarnation]bool{}
	for _, p := range s.facts.Pods[agent(name).query()] {
		out[p.Incarnation] = true
	}
	return out
}

// presentReady is present for the pods that are ready.
func presentReady(s *sim, name string) map[Incarnation]bool {
	out := map[Incarnation]bool{}
	for _, p := range s.facts.Pods[agent(name).query()] {
		if p.Ready {
			out[p.Incarnation] = true
		}
	}
	return out
}

// noteBoot: nothing that was ready when a new boot is first seen counts as new,
// unless it came while the node was away.
func (m *memory) noteBoot(s *sim, name string) {
	here := !s.facts.Node.Silent() && !s.facts.Node.ShuttingDown
	switch {
	case s.facts.Node.BootID != m.boot:
		if !m.away || m.inherited {
			m.old = presentReady(s, name)
		}
		m.inherited, m.rebooted = false, true
		m.boot, m.since, m.away, m.from, m.good = s.facts.Node.BootID, s.now, false, s.now, time.Time{}
		m.run, m.at, m.quiet, m.overdue, m.anew = 0, s.now, false, false, true
	case m.away && here:
		m.old, m.inherited = present(s, name), false
	}
}

// againText is the taint of a gate on a node that was in use.
func againText(g *Gate) string {
	texts := ownTexts(g)
	return texts[len(texts)-1]
}

func (m *memory) maybeClose(s *sim, g *Gate) {
	n, z := &s.facts.Node, s.facts.Zone
	rebooted := n.BootID != m.boot
	partitioned := z.Nodes >= 3 && float64(z.Silent)/float64(z.Nodes) > 0.55
	again := againText(g)
	silent := n.Silent() && !partitioned && !strings.HasSuffix(again, ":NoExecute")
	if g.Reclose == v1alpha1.RecloseNever && rebooted {
		m.boot = ""
	}
	if g.Reclose == v1alpha1.RecloseNever || !rebooted && !silent && !n.ShuttingDown {
		return
	}
	*m = memory{
		taint: again, closed: true, boot: n.BootID, since: s.now, from: s.now, at: s.now,
		old: present(s, g.Name), away: !rebooted, overdue: m.lapsed && !rebooted, mask: m.mask, anew: rebooted, rebooted: rebooted,
	}
	if rebooted {
		m.old = presentReady(s, g.Name)
	}
}

// fit: the node speaks, is set up, and every signal holds on evidence of the
// present boot and Node.
func (m *memory) fit(s *sim, name string) bool {
	n := &s.facts.Node
	for _, t := range n.Taints {
		if t.Key == "karpenter.sh/unregistered" {
			return false
		}
	}
	return !n.Silent() && !n.ShuttingDown && m.holds(s, name)
}

// holds: every signal does.
func (m *memory) holds(s *sim, name string) bool {
	n := &s.facts.Node
	if n.Labels["flag/"+name] != "holds" {
		return false
	}
	if name[:3] != "pod" {
		return true
	}
	for _, p := range s.facts.Pods[agent(name).query()] {
		if !p.Ready || p.Terminating {
			continue
		}
		stale := time.Time{}
		if p.Created.Before(n.Created) {
			stale = n.Created
		}
		if m.old[p.Incarnation] && !m.away { // back in the same boot, it is as good as ever
			stale = m.since
		}
		if stale.IsZero() || !s.now.Before(stale.Add(time.Minute)) {
			return true
		}
	}
	return false
}
