// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// oracle determines the state that each gate should have on a node. It restates the
// rules without records, digests or taints: it remembers what it has observed in plain
// fields. It supports only the gates of the property tests, each of which reads its own
// flag and, if its name starts with "pod", the pod with its name.
type oracle struct {
	gates map[string]*memory
	// guests contains the taints of gates that are overridden closed on a node that is
	// not a member.
	guests map[string]string
	// left is the time since which a gate has been observed not to select a member.
	left map[string]time.Time
}

// memory is what the oracle remembers about a gate on the node.
type memory struct {
	taint  string
	closed bool
	boot   string // the boot in which it entered its state, or for which it closed
	// old contains the incarnations that were observed before the current boot. since
	// is the time since which the current boot is known.
	old   map[Incarnation]bool
	since time.Time
	// known is the time since which that boot is known, though not by this gate.
	known time.Time
	// away is true from unreachability or shutdown until a new boot. A container that
	// starts while the node is not reporting is not known to be old.
	away bool
	// from is the time at which it closed; zero if unknown.
	from time.Time
	// run is how long it has been closed while the node was reachable, up to the time
	// at. quiet reports whether the node was unreachable then. overdue reports whether
	// that exceeded the deadline, and lapsed whether the gate is open for that reason.
	run     time.Duration
	at      time.Time
	quiet   bool
	overdue bool
	lapsed  bool
	// good is the time since which its signals have been observed in the state that
	// opens it; zero while they are not.
	good time.Time
	// disarmed is true from the time at which a user opens a closeWhen gate until its
	// flag does not hold.
	disarmed bool
	// mask is the state that an override sets.
	mask string
	// anew is true for a gate that closed for a reboot or because of its signals:
	// earlier readings do not count.
	anew bool
	// inherited is true for a gate that is away and took over another gate's record:
	// its own earlier pods are unknown. rebooted is true if it closed for a boot, or
	// observed one.
	inherited, rebooted bool
}

// observe updates the oracle before a decision.
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
			m.good = time.Time{} // its signals are not read
		}
	}
	for name := range o.left {
		if find(s.gates, name) == nil {
			delete(o.left, name)
		}
	}
	for i := range s.gates {
		g := &s.gates[i]
		if !g.Selector.Matches(s.facts.Node.Labels) {
			if !o.mayComeBack(s, g.Name) {
				delete(o.gates, g.Name)
				delete(o.guests, g.Name)
			}
			continue
		}
		delete(o.left, g.Name)
		had, first := o.hadTaint(g.Name), ""
		if o.gates[g.Name] == nil && !g.CloseWhen && o.joins(s, g, before) {
			first = o.firstTaint(s, g, before)
		}
		o.decide(s, g, before)
		o.cover(s, g, had, first)
	}
}

// mayComeBack reports whether a gate has ceased to select the node less than half a
// minute ago. Nothing happens to it then, and its signals are not read.
func (o *oracle) mayComeBack(s *sim, name string) bool {
	if o.left == nil {
		o.left = map[string]time.Time{}
	}
	if _, left := o.left[name]; !left {
		o.left[name] = s.now
	}
	if m, member := o.gates[name]; member {
		m.good = time.Time{}
	}
	if !s.now.Before(o.left[name].Add(30 * time.Second)) {
		delete(o.left, name)
		return false
	}
	return true
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
			m.from = s.facts.Node.Created
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

// bequeath gives a deleted gate's state to another gate with the same taint that has no
// state on this node, if there is one.
func (o *oracle) bequeath(s *sim, name string) {
	heirs := slices.Clone(s.gates)
	slices.SortFunc(heirs, func(a, b Gate) int { return strings.Compare(a.Name, b.Name) })
	for _, heir := range heirs {
		_, member := o.gates[heir.Name]
		_, guest := o.guests[heir.Name]
		if !member && !guest && heir.Selector.Matches(s.facts.Node.Labels) && slices.Contains(ownTexts(&heir), o.gates[name].taint) {
			o.gates[heir.Name] = o.gates[name]
			if m := o.gates[heir.Name]; m.boot == "" { // a closeWhen gate records no boot
				m.boot = s.facts.Node.BootID
			}
			o.gates[heir.Name].inherit(s, heir.Name)
			break
		}
	}
	delete(o.gates, name)
}

// inherit takes into account that the earlier state of the successor's own pods is
// unknown, and that its own signals have not been observed for any time.
func (m *memory) inherit(s *sim, heir string) {
	m.good = time.Time{}
	switch {
	case m.closed && m.away:
		m.inherited = true
	case m.closed && m.rebooted && s.now.Before(m.since.Add(time.Minute)):
		m.old = presentReady(s, heir)
	}
}

// follow closes a closeWhen gate while its flag holds, as far as that is known. The
// histories grant every closing, and add no gate's taint. While the gate is open, it
// remembers only whether a user opened it.
func (o *oracle) follow(s *sim, g *Gate, before map[string]bool) {
	m := o.gates[g.Name]
	flag := s.facts.Node.Labels["flag/"+g.Name]
	holds, known := flag == "holds", flag != "unknown"
	tainted := slices.Contains(taintList(&s.facts.Node), TaintText(g.Taint))
	switch {
	case m != nil && m.closed && g.Manual && !tainted && m.mask != "Open" && s.overriddenTo(g.Name) != "Open":
		*m = memory{taint: m.taint, disarmed: true}
	case m != nil && m.closed && !m.soaked(s, g, known && !holds), m != nil && m.closed && m.tooSoon(s, g):
	case m != nil && m.closed && known && !holds && !g.Manual:
		delete(o.gates, g.Name)
	case m != nil && m.closed:
	case tainted && !before[TaintText(g.Taint)]:
		panic("a taint of no gate")
	case holds && (m == nil || !m.disarmed || !g.Manual):
		o.gates[g.Name] = &memory{taint: TaintText(g.Taint), closed: true, boot: s.facts.Node.BootID, since: s.now, from: s.now, at: s.now, anew: true}
	}
	if m := o.gates[g.Name]; g.Manual && m != nil && m.disarmed && known && !holds {
		delete(o.gates, g.Name)
	}
}

// expire determines whether a deadline passes, by a clock that stops while the node is
// unreachable. It may open a gate on a node that is reporting and set up. It is
// sufficient that a pod was missing once after the deadline, or that the deadline had
// passed before the node was away.
func (m *memory) expire(s *sim, g *Gate) {
	if m.mask == "Open" || s.overriddenTo(g.Name) == "Open" {
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
		set && t.Open && m.overdue && m.away
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

// bootToRemember returns the boot, or "" for a gate that never closes again.
func bootToRemember(s *sim, g *Gate) string {
	if g.Reclose == v1alpha1.RecloseNever {
		return ""
	}
	return s.facts.Node.BootID
}

// joins reports whether the node is new to the gate, or carries one of its taints
// without a gate that accounts for it.
func (o *oracle) joins(s *sim, g *Gate, before map[string]bool) bool {
	return born(s, g) || len(unclaimed(s, g, before)) > 0
}

// firstTaint returns the gate's first taint for a new node, and the taint that it
// carries for any other node.
func (o *oracle) firstTaint(s *sim, g *Gate, before map[string]bool) string {
	if born(s, g) {
		return TaintText(g.Taint)
	}
	return unclaimed(s, g, before)[0]
}

// ownTexts returns the texts of the gate's taints, the first taint first.
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

// tooSoon reports whether it has not been closed for long enough, if the time is known.
// A gate may open if its node became reachable again, or cancelled its shutdown, in the
// same boot.
func (m *memory) tooSoon(s *sim, g *Gate) bool {
	back := m.away && m.boot == s.facts.Node.BootID
	return !m.from.IsZero() && !back && s.now.Before(m.from.Add(g.MinClosed))
}

// soaked reports whether its signals have been observed for long enough, in this boot,
// in the state that opens it.
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

// presentReady is present for pods that are ready.
func presentReady(s *sim, name string) map[Incarnation]bool {
	out := map[Incarnation]bool{}
	for _, p := range s.facts.Pods[agent(name).query()] {
		if p.Ready {
			out[p.Incarnation] = true
		}
	}
	return out
}

// noteBoot marks everything that was ready when a new boot is first observed as old,
// unless it started while the node was away.
func (m *memory) noteBoot(s *sim, name string) {
	here := !s.facts.Node.Silent() && !s.facts.Node.ShuttingDown
	recent := s.facts.Boot.After != "" && s.now.Before(s.facts.Boot.Seen.Add(time.Minute))
	switch {
	case s.facts.Node.BootID != m.boot && m.away && !recent && !here:
		// It closed for a boot that it cannot tell from this one, and the node reports
		// nothing that could prove one.
	case s.facts.Node.BootID != m.boot:
		if !m.away || m.inherited || s.facts.Boot.After != m.boot {
			m.old = presentReady(s, name)
		}
		m.inherited, m.rebooted, m.known = false, true, s.facts.Boot.Seen
		m.boot, m.since, m.away, m.from, m.good = s.facts.Node.BootID, s.now, false, s.now, time.Time{}
		m.run, m.at, m.quiet, m.overdue, m.anew = 0, s.now, false, false, true
	case m.away && here:
		m.old, m.inherited = present(s, name), false
	}
}

// againText returns the taint of a gate on a node that was in use.
func againText(g *Gate) string {
	texts := ownTexts(g)
	return texts[len(texts)-1]
}

func (m *memory) maybeClose(s *sim, g *Gate) {
	n, z := &s.facts.Node, s.facts.Zone
	booted := n.BootID != m.boot
	rebooted := booted && s.facts.Boot.After != "" && s.now.Before(s.facts.Boot.Seen.Add(time.Minute))
	partitioned := z.Nodes >= 3 && float64(z.Silent)/float64(z.Nodes) > 0.55
	again := againText(g)
	silent := n.Silent() && (z.Nodes < 3 || settled(s)) && !partitioned && !strings.HasSuffix(again, ":NoExecute")
	if g.Reclose == v1alpha1.RecloseNever && booted {
		m.boot = ""
	}
	if booted && !rebooted && !n.Silent() && !n.ShuttingDown {
		m.takeUp(s, g)
	}
	if g.Reclose == v1alpha1.RecloseNever || !rebooted && !silent && !n.ShuttingDown {
		return
	}
	*m = memory{
		taint: again, closed: true, boot: n.BootID, since: s.now, from: s.now, at: s.now,
		old: present(s, g.Name), away: !rebooted, overdue: m.lapsed && !rebooted, mask: m.mask, anew: rebooted, rebooted: rebooted,
	}
	if rebooted {
		m.old, m.known = presentReady(s, g.Name), s.facts.Boot.Seen
	}
}

// settled reports whether Ready has been Unknown for five seconds.
func settled(s *sim) bool {
	c, _ := s.facts.Node.Condition("Ready")
	return !s.now.Before(c.Transition.Add(5 * time.Second))
}

// takeUp updates the gate to an unobserved boot once its signals have had a minute to
// stop holding, or if the gate would evict pods. The histories grant no closing for it.
func (m *memory) takeUp(s *sim, g *Gate) {
	minute := ready(s, s.facts.Boot.Seen)
	if strings.HasSuffix(againText(g), ":NoExecute") || m.holds(s, g.Name) && !minute.IsZero() && !s.now.Before(minute) {
		m.boot = s.facts.Node.BootID
	}
}

// ready returns the time at which the node will have been Ready for a minute since the
// given time, if it is Ready.
func ready(s *sim, since time.Time) time.Time {
	c, ok := s.facts.Node.Condition("Ready")
	if !ok || c.Status != "True" {
		return time.Time{}
	}
	if c.Transition.After(since) {
		since = c.Transition
	}
	return since.Add(time.Minute)
}

// fit reports whether the node is reporting and set up, and every signal holds on
// evidence of the current boot and Node.
func (m *memory) fit(s *sim, name string) bool {
	n := &s.facts.Node
	for _, t := range n.Taints {
		if t.Key == "karpenter.sh/unregistered" {
			return false
		}
	}
	return !n.Silent() && !n.ShuttingDown && m.holds(s, name)
}

// holds reports whether every signal holds.
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
		if m.old[p.Incarnation] && !m.away { // returned in the same boot, it is valid evidence
			stale = m.since
			if m.rebooted && m.known.Before(stale) {
				stale = m.known
			}
		}
		minute := ready(s, stale)
		if stale.IsZero() || !minute.IsZero() && !s.now.Before(minute) {
			return true
		}
	}
	return false
}
