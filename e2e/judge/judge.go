// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/facts"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// Config holds the facts about a run that its history does not contain.
type Config struct {
	// Controller is the name of nodegate's user.
	Controller string
	// Lag is the maximum age of the state on which a write may be based: nodegate may
	// not have observed changes that were committed within Lag before the write.
	Lag time.Duration
	// Rewinds is true if an API server may have served lists of an old state to nodegate.
	// nodegate may then have lost observations that its status shows.
	Rewinds bool
	// Quiet is the time for which nothing may have changed before the end so that
	// RuleQuiet applies.
	Quiet time.Duration
	// Operators are the users that may write records and overrides.
	Operators []string
	// TransientTaints are prefixes of additional keys of temporary taints.
	TransientTaints []string
}

// DefaultLag and DefaultQuiet are sufficient on a machine without other load.
const (
	DefaultLag   = 5 * time.Second
	DefaultQuiet = 10 * time.Second
)

// Judge returns the verdict on a run.
func Judge(h *revisions.History, c Config) *Verdict {
	t := &trial{History: h, Config: c, verdict: newVerdict(h), boots: make(map[string]*boots), foreignTaints: make(map[taintOf]int), left: make(map[taintOf]string)}
	before := make(map[string]*corev1.Node)
	for _, v := range h.Nodes() {
		node, _ := v.Object.(*corev1.Node)
		if v.Revision > h.From {
			t.judgeWrite(v, before[v.Name], node)
		}
		before[v.Name] = node
	}
	t.judgeRequests()
	t.judgeQuiet()
	t.verdict.sort()
	return t.verdict
}

// trial is a history with the findings so far.
type trial struct {
	*revisions.History
	Config
	verdict *Verdict
	boots   map[string]*boots
	// foreignTaints counts how often another writer has added a taint to a Node or removed it.
	foreignTaints map[taintOf]int
	// left contains the taints that nodegate has left on a Node without a record that holds
	// them, and the gate whose record held them.
	left map[taintOf]string
	// skipped counts what was not judged.
	skipped int
}

// change is one revision of a Node. before is nil if the revision created the Node.
type change struct {
	revision      int64
	name          string
	before, after *corev1.Node
	by            revisions.Write
	// known is true if the audit log contains the request that made the revision; own
	// is true if nodegate sent it.
	known, own bool
	// moments is what window returns, once it has been called.
	moments []revisions.Moment
}

func (t *trial) judgeWrite(v revisions.Version, before, after *corev1.Node) {
	c := &change{revision: v.Revision, name: v.Name, before: before, after: after}
	if after == nil {
		return
	}
	if before != nil && before.UID != after.UID { // deleted and re-created
		c.before = nil
	}
	c.by, c.known = t.writer(c)
	c.own = c.known && c.by.User == t.Controller
	if c.before == nil {
		t.judgeBirth(c)
	}
	t.judgeForeign(c)
	t.judgeFinalizers(c)
	t.noteForeignTaints(c)
	t.noteLeftTaints(c)
	if c.own && c.before != nil {
		t.judgeOwn(c)
	}
}

// writer returns the request that made a change. A request that changes nothing is
// answered with the revision of the previous write, and may be the first or the only
// one in the log with this revision. Therefore, if a record changed, requests that
// mention no record are ignored, and a request of nodegate takes precedence.
func (t *trial) writer(c *change) (by revisions.Write, known bool) {
	if c.before == nil || maps.Equal(recordTexts(c.before), recordTexts(c.after)) {
		return t.Write(c.revision)
	}
	could := slices.DeleteFunc(slices.Clone(t.Writes(c.revision)), func(w revisions.Write) bool { return w.NoRecords })
	if i := slices.IndexFunc(could, func(w revisions.Write) bool { return w.User == t.Controller }); i >= 0 {
		return could[i], true
	}
	if len(could) == 0 {
		return revisions.Write{}, false
	}
	return could[0], true
}

// judgeOwn judges the effect of nodegate's write on each gate.
func (t *trial) judgeOwn(c *change) {
	for _, name := range t.gatesOf(c) {
		before, _ := recordOf(c.before, name)
		after, recorded := recordOf(c.after, name)
		was, taken := t.takenOver(c, name, after)
		taken = taken && before.State == ""
		if !taken || !after.Since.Equal(was.Since) { // the gate may keep the time of the record that it adopts
			t.judgeRecordedTime(c, name, before, after)
		}
		if taken {
			t.checked(RuleOpening, "records of deleted gates that a gate with the same taint adopts")
			if before = was; isRenamed(was, after) {
				continue
			}
		}
		t.judgeRecord(c, name, before, after, recorded)
		t.judgeEffect(c, name, before, after, recorded)
		if before.Override != "" || after.Override != "" {
			t.judgeOwnState(c, name, before.own(), after.own())
		}
	}
	t.judgeUnrecordedOpenings(c)
	t.judgeStamps(c)
}

// judgeRecord judges what a write of nodegate records of a gate, apart from its state.
func (t *trial) judgeRecord(c *change, gate string, before, after record, recorded bool) {
	t.judgeRecordedTaint(c, gate, before, after)
	t.judgeRecordedBoot(c, gate, before, after)
	t.judgeOverdue(c, gate, before, after)
	t.judgeSilence(c, gate, before, after)
	t.judgeLostRecord(c, gate, before, recorded)
}

// judgeEffect judges how a write changes the state of a gate on the node, including an
// override.
func (t *trial) judgeEffect(c *change, gate string, before, after record, recorded bool) {
	switch {
	case after.closed() && (!before.closed() || after.Reason != before.Reason && after.State == before.State):
		t.judgeClosing(c, gate, before, after)
	case !after.closed() && t.opens(c, gate, before, after, recorded):
		t.judgeOpening(c, gate, before, after, recorded)
	}
}

// judgeOwnState judges how a write changes the own state of a gate that is or was
// overridden. The rules are those for a gate without an override. That the reason becomes
// OverrideEnded is judged with the effect.
func (t *trial) judgeOwnState(c *change, gate string, before, after record) {
	if before.closed() && after.closed() && after.Reason == v1alpha1.ReasonOverrideEnded {
		return
	}
	t.judgeEffect(c, gate, before, after, after.State != "")
}

// takenOver returns the record of a deleted gate that the gate adopts with the change:
// the deleted gate's record is gone, and both records refer to the same taint. If the
// deleted gate was open and the node carries the taint, the gate adopts only the taint.
func (t *trial) takenOver(c *change, gate string, after record) (was record, taken bool) {
	for _, other := range recordsOf(c.before) {
		was, _ := recordOf(c.before, other)
		_, remains := recordOf(c.after, other)
		if other != gate && was.Taint == after.Taint && !remains && (was.closed() || !isAdmission(after)) && slices.Contains(t.specs(c, other), nil) {
			return was, true
		}
	}
	return record{}, false
}

// isAdmission reports whether the record is that of a node that became a member with the gate
// closed.
func isAdmission(r record) bool {
	return r.State == v1alpha1.StateClosed && (r.Reason == v1alpha1.ReasonBirth || r.Reason == v1alpha1.ReasonAdopted)
}

// isRenamed reports whether two records of different gates have the same content.
// Adopting such a record neither opens nor closes anything.
func isRenamed(before, after record) bool {
	return before.State == after.State && before.Reason == after.Reason && before.Boot == after.Boot && before.Since.Equal(after.Since)
}

// opens reports whether a gate that is open after a write is opened by it: it was
// closed, the node becomes a member with the gate open, the gate stays open in a new
// boot, or the exception of the deadline that opened it ends. A new boot does not count
// for gates with NoExecute, which stay open in a boot whose start was not observed,
// regardless of their signals.
func (t *trial) opens(c *change, gate string, before, after record, recorded bool) bool {
	rebooted := before.Boot != "" && after.Boot != "" && before.Boot != after.Boot
	switch ng := t.Moment(c.revision - 1).Gate(gate); {
	case before.closed():
		return true
	case !recorded:
		return false
	case before.State != "" && rebooted && ng != nil && effectOf(ng) == corev1.TaintEffectNoExecute:
		t.notJudged(RuleOpening, unjudgedBoot)
		return false
	}
	ended := before.Reason == v1alpha1.ReasonDeadlinePassed && after.Reason != before.Reason
	return before.State == "" || rebooted || ended
}

// unjudgedBoot is what the verdict lists for gates that need no evidence of a new boot.
const unjudgedBoot = "gates with NoExecute that stay open in a new boot"

// gatesOf returns the sorted names of the gates with a record on the Node before or
// after a change.
func (t *trial) gatesOf(c *change) []string {
	names := append(recordsOf(c.before), recordsOf(c.after)...)
	slices.Sort(names)
	return slices.Compact(names)
}

// window returns the moments on which the change may be based, newest first: the state
// just before it, and the states that were current up to Lag earlier. Moments with an
// earlier Node of the same name are excluded, because every patch tests the UID.
func (t *trial) window(c *change) []revisions.Moment {
	if c.moments != nil {
		return c.moments
	}
	since := t.Earliest(c.revision).Add(-t.Lag)
	for _, revision := range t.Relevant(c.name, since, c.revision) {
		node := t.Moment(revision).Node(c.name)
		if node == nil || node.UID != c.before.UID {
			break
		}
		c.moments = append(c.moments, t.Moment(revision))
	}
	return c.moments
}

// windowOfBoot returns the moments of the window that have the Node's current boot ID,
// because the patch of every opening tests it.
func (t *trial) windowOfBoot(c *change) []revisions.Moment {
	moments := t.window(c)
	for i, m := range moments {
		if m.Node(c.name).Status.NodeInfo.BootID != c.before.Status.NodeInfo.BootID {
			return moments[:i]
		}
	}
	return moments
}

// seenAfter is the time after which no write is based on a gate's earlier specs, once
// the gate's status shows a newer observed generation.
const seenAfter = 2 * time.Second

// specs returns the versions of a gate that were current at some time in the window,
// newest first; nil means that the gate did not exist. The age of the Node and of its
// boot does not matter. Versions are omitted if the gate's status had shown a later
// observed generation for seenAfter before the change.
func (t *trial) specs(c *change, gate string) []*v1alpha1.NodeGate {
	versions := t.VersionsOf(revisions.ID{Kind: revisions.KindNodeGate, Name: gate})
	versions = versions[:sort.Search(len(versions), func(i int) bool { return versions[i].Revision >= c.revision })]
	observed := t.observed(versions, t.Earliest(c.revision).Add(-seenAfter))
	since := t.Earliest(c.revision).Add(-t.Lag)
	var specs []*v1alpha1.NodeGate
	for _, v := range slices.Backward(versions) {
		ng, _ := v.Object.(*v1alpha1.NodeGate)
		n := len(specs)
		if repeats := n > 0 && ng != nil && specs[n-1] != nil && specs[n-1].UID == ng.UID && specs[n-1].Generation == ng.Generation; !repeats {
			specs = append(specs, ng)
		}
		if t.Latest(v.Revision).Before(since) {
			return withoutOutdated(specs, observed)
		}
	}
	// Once nodegate has observed a gate, it cannot act on the time before the gate's
	// creation, unless a list was served from an old state.
	if len(versions) == 0 || t.Rewinds && versions[0].Revision > t.From {
		specs = append(specs, nil)
	}
	return withoutOutdated(specs, observed)
}

// observed returns the highest status.observedGeneration that was committed until a
// time, by the UID of the gate. A status cannot show that a later spec than the stored one was
// observed, so a wrong status does not exclude all specs.
func (t *trial) observed(versions []revisions.Version, until time.Time) map[types.UID]int64 {
	observed := make(map[types.UID]int64)
	if t.Rewinds {
		return observed
	}
	for _, v := range versions {
		if ng, ok := v.Object.(*v1alpha1.NodeGate); ok && !t.Latest(v.Revision).After(until) {
			observed[ng.UID] = max(observed[ng.UID], min(ng.Status.ObservedGeneration, ng.Generation))
		}
	}
	return observed
}

func withoutOutdated(specs []*v1alpha1.NodeGate, observed map[types.UID]int64) []*v1alpha1.NodeGate {
	return slices.DeleteFunc(specs, func(ng *v1alpha1.NodeGate) bool { return ng != nil && ng.Generation < observed[ng.UID] })
}

// ofGate combines each moment of a window with each of the gate's specs: nodegate
// watches them separately.
func (t *trial) ofGate(window []revisions.Moment, c *change, gate string) []revisions.Moment {
	var all []revisions.Moment
	specs := t.specs(c, gate)
	for _, m := range window {
		for _, ng := range specs {
			all = append(all, m.Declaring(gate, ng))
		}
	}
	return all
}

// whyNone returns why none of these moments or specs passes a check, which returns why one does not, or
// "". It is the reason of the first one, and "" if one passes or there are none.
func whyNone[T any](all []T, check func(T) string) (first string) {
	for _, one := range all {
		why := check(one)
		if why == "" {
			return ""
		}
		first = cmp.Or(first, why)
	}
	return first
}

// evaluator returns an evaluator for a node in a moment, at a time. If evidence is true, pods from
// before the boot need evidence of the boot.
func (t *trial) evaluator(m revisions.Moment, name string, now time.Time, evidence bool) evaluator {
	l := evaluator{Moment: m, node: m.Node(name), now: now, doubtful: notJudged}
	l.transient = func(key string) bool { return facts.IsTransient(key, t.TransientTaints) }
	if evidence {
		l.boots = t.bootsOf(name)
	}
	return l
}

// bootsOf returns the boots of a node.
func (t *trial) bootsOf(name string) *boots {
	if t.boots[name] == nil {
		t.boots[name] = newBoots(t.History, name)
	}
	return t.boots[name]
}

// violation adds a violation to the verdict.
func (t *trial) violation(rule Rule, c *change, gate, what, why string, args ...any) {
	who := "a request that is not in the audit log"
	if c.known {
		who = fmt.Sprintf("%s (%s, audit ID %s)", c.by.User, c.by.Verb, c.by.AuditID)
	}
	t.verdict.Violations = append(t.verdict.Violations, Violation{
		Rule: rule, Node: c.name, Gate: gate, Revision: c.revision, At: t.Latest(c.revision),
		Who: who, What: what, Why: fmt.Sprintf(why, args...),
	})
}

func (t *trial) checked(rule Rule, what string) { t.verdict.Checked[rule][what]++ }

func (t *trial) notJudged(rule Rule, why string) {
	t.verdict.NotJudged[rule][why]++
	t.skipped++
}
