// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Evidence of this boot.
//
// For some time after a reboot, the API still contains what was true before: a pod is
// Ready=True with containers that no longer exist. The kubelet's loops for node status
// and pod status are independent, so neither the order of the two writes nor their
// times are reliable. Identity is: containers that have been started again have new
// IDs. A gate that closes for a reboot therefore stores a digest of its pods'
// identities. It accepts a pod as evidence if its identity is a different one, or if
// the pod is still ready after the time in which a wrong status would have been
// corrected.

// provenAfter is how long a boot must be known and the node be Ready before a ready pod
// counts whose identity proves nothing. A kubelet that is Ready synchronizes its pods
// and corrects their statuses within 10 seconds. If it stops reporting, the API shows
// that after 50 seconds; the node lifecycle controller then marks its pods as not
// ready, and only the kubelet makes them ready again. A kubelet that is not Ready may
// not synchronize any pod.
const provenAfter = time.Minute

// Incarnation identifies a pod together with its current containers. It is a hash, so
// that it takes little space in memory and in records.
type Incarnation uint64

// NewIncarnation returns the incarnation of a pod with these containers.
func NewIncarnation(uid types.UID, containerIDs []string) Incarnation {
	h := fnv.New64a()
	h.Write([]byte(uid))
	for _, id := range containerIDs {
		h.Write([]byte{0})
		h.Write([]byte(id))
	}
	return Incarnation(h.Sum64())
}

// String returns the incarnation in the form used in digests.
func (i Incarnation) String() string { return strconv.FormatUint(uint64(i), 36) }

// Digest is a list of incarnations, sorted and separated by spaces.
type Digest string

// digestAll represents every pod that existed when the record was written.
const digestAll Digest = "*"

// digestMax limits the incarnations in a digest, and so the size of a record, however
// many pods a selector matches.
const digestMax = 32

func digestOf(pods []Pod) Digest { return digestWhere(pods, everyPod, everyPod) }

func everyPod(*Pod) bool { return true }

// digestWhere returns a digest of the incarnations of those pods for which known returns
// true, and of the marks of those for which marked does.
func digestWhere(pods []Pod, known, marked func(*Pod) bool) Digest {
	ids := make([]string, 0, len(pods))
	for i := range pods {
		p := &pods[i]
		if known(p) {
			ids = append(ids, p.Incarnation.String())
		}
		if !p.MarkedSince.IsZero() && marked(p) {
			ids = append(ids, p.mark().String())
		}
	}
	return newDigest(ids)
}

func newDigest(ids []string) Digest {
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) > digestMax {
		return digestAll
	}
	return Digest(strings.Join(ids, " "))
}

// withMarks returns a digest that also contains the marks that the pods which the gate's signals
// depend on had when the current boot was first observed.
func (d Digest) withMarks(g *Gate, f *Facts) Digest {
	pods, observed := g.evidence(f)
	if !observed || d == digestAll {
		return digestAll
	}
	ids := strings.Fields(string(d))
	for i := range pods {
		if mark := pods[i].mark(); slices.Contains(f.Boot.Known, mark) {
			ids = append(ids, mark.String())
		}
	}
	return newDigest(ids)
}

func (d Digest) has(i Incarnation) bool {
	if d == "" {
		return false
	}
	want := i.String()
	for id := range strings.SplitSeq(string(d), " ") {
		if id == want {
			return true
		}
	}
	return false
}

// takeDigest returns a digest of the pods that the gate's signals depend on. If they
// have not been observed, it returns digestAll and false.
func (g *Gate) takeDigest(f *Facts) (Digest, bool) {
	pods, observed := g.evidence(f)
	if !observed {
		return digestAll, false
	}
	return digestOf(pods), true
}

// takeDigestOfBoot is takeDigest for a node whose new boot is already known. It
// includes only pods that are ready: if any other pod becomes ready later, that happens
// in the new boot, regardless of the order in which the kubelet writes its statuses. A
// pod that runs once may succeed later although it ran before the boot, so all of these
// are included. So are marks for which marked returns true. While the boot is ahead of the
// watch, a pod's status of an earlier boot may be delivered later, so no pod is evidence.
func (g *Gate) takeDigestOfBoot(f *Facts, marked func(*Pod) bool) (Digest, bool) {
	pods, observed := g.evidence(f)
	if !observed || f.Boot.Ahead {
		return digestAll, false
	}
	return digestWhere(pods, func(p *Pod) bool { return p.Ready || p.Run != (Run{}) }, marked), true
}

// takeDigestOfFormer returns a digest of what was known of the gate's pods when the current
// boot was observed to begin. It is "" if no boot or no pods have been observed.
func (g *Gate) takeDigestOfFormer(f *Facts) Digest {
	if f.Boot.After == "" {
		return ""
	}
	pods, _ := g.evidence(f)
	known := func(i Incarnation) bool { return slices.Contains(f.Boot.Known, i) }
	return digestWhere(pods, func(p *Pod) bool { return known(p.Incarnation) }, func(p *Pod) bool { return known(p.mark()) })
}

// evidence returns the pods that the gate's signals depend on, or false if some of them
// have not been observed. The caller owns the slice.
func (g *Gate) evidence(f *Facts) ([]Pod, bool) {
	var pods []Pod
	for _, s := range g.Signals {
		p, observed := s.Evidence(f)
		if !observed {
			return nil, false
		}
		pods = append(pods, p...)
	}
	return pods, true
}

// Trust determines whether a pod's readiness is accepted as evidence for one gate on
// one node. The zero value accepts all pods.
type Trust struct {
	// digest contains pods that are known from an earlier boot. So does known, which is
	// what this replica observed itself.
	digest Digest
	known  []Incarnation
	// former contains pods that were ready on a former Node of the same name. Creation
	// times do not prove that, because they are whole seconds.
	former []Incarnation
	// since is the time at which the record with the digest was written.
	since time.Time
	// nodeCreated is the creation time of the Node. An older pod is known from a former
	// Node of the same name, possibly on another machine.
	nodeCreated time.Time
	// bootKnown is the time since which the node's boot is known. The digest was taken
	// in that boot or before it.
	bootKnown time.Time
	// node is the node in its current state. podsAt is the time for which its pods are
	// known.
	node   *Node
	podsAt time.Time
	// readySince is when the node was observed to become Ready, if it was.
	readySince time.Time
	// behind is true if another replica may have known later states of the pods when it
	// closed the gate.
	behind bool
	// booted is the time at which the current boot was first observed. Zero if heartbeats
	// from before that time count.
	booted time.Time
}

// trustIn returns the trust that follows from the gate's record.
func (d *decider) trustIn(g *Gate, r *Record) Trust {
	n := &d.Node
	t := Trust{nodeCreated: n.Created, since: r.closedSince(n), node: n, podsAt: d.podsAt(), readySince: d.ReadySince}
	switch t.bootKnown = t.since; {
	case d.trustsMemory(r):
		t.bootKnown, t.booted, t.known = d.bootSeen(), d.bootSeen(), d.Boot.Known
	case r.closedForBoot() && r.Boot == n.BootID && d.bootSeen().Before(t.since), // it was written after the boot began
		r.followedSignals():
		t.bootKnown = d.bootSeen()
	}
	t.digest = d.digestIn(g, r)
	switch {
	case r.closedForBoot() || r.awaitsBoot() && r.Boot != n.BootID:
		t.booted, t.known = t.bootKnown, d.Boot.Known
	case d.hasBooted(r): // it is open, and nothing has been proved in this boot
		t.booted = d.bootSeen()
	case !r.BootSeen.IsZero():
		t.booted = Earliest(r.BootSeen, d.bootSeen()) // the clock that wrote it may have been wrong
	}
	if d.Boot.After == "" {
		t.former, t.behind = d.Boot.Known, d.isBehind(r)
	}
	return t
}

// isBehind reports whether the gate closed for a boot after the time for which the pods are known. To
// a replica that did not observe the start of the boot, a pod of the previous boot may then still be
// ready. If another replica already knew that it was not, the digest does not contain it.
func (d *decider) isBehind(r *Record) bool {
	behind := r.closedForBoot() && r.Boot == d.Node.BootID && d.podsAt().Before(r.Since)
	if behind {
		d.recheckAt(d.now.Add(podsRecheck))
	}
	return behind
}

// digestIn returns the digest that applies, given the gate's record.
func (d *decider) digestIn(g *Gate, r *Record) Digest {
	switch {
	case r.followedSignals():
		return digestAll
	case d.Boot.Ahead && r.isUnproved():
		// Another replica may have written the record, with a digest that says nothing about
		// late statuses.
		return digestAll
	case r.sameBootAsDigest(&d.Node):
		return ""
	case r.closedForBoot() && g.editedSince(r):
		return digestAll
	}
	return r.Digest
}

// editLag is how long after an edit was observed a record may still be that of the former signals: while
// the gates are compiled, and if another leader observes the edit later.
const editLag = 10 * time.Second

// editedSince reports whether the gate's signals have changed since it closed, also because it was
// created again. The digest in its record then says nothing about the pods of its present signals.
func (g *Gate) editedSince(r *Record) bool {
	return Latest(g.Edited.Add(editLag), g.Created).After(r.Since)
}

// followedSignals reports whether the record was written by a closeWhen gate that closed. Such a
// gate ignores pods.
func (r *Record) followedSignals() bool {
	return r.State == v1alpha1.StateClosed && r.Reason == v1alpha1.ReasonSignalsHold
}

// trustsMemory reports whether only this replica's memory (Facts.Boot) distinguishes evidence of
// the node's boot from older evidence: the boot was observed to begin, but the unproved record says
// nothing about it. For example, the gate has taken on the node only after the boot.
func (d *decider) trustsMemory(r *Record) bool {
	// A gate that its deadline had opened had proved nothing, either, when it closed for an outage.
	outage := r.awaitsBoot() && (!r.Overdue || r.Boot != d.Node.BootID)
	return r.isUnproved() && !r.closedForBoot() && !outage && (d.Boot.After != "" || d.Boot.Ahead)
}

// isUnproved reports whether the gate has not opened on evidence: it is closed, or its deadline has
// opened it.
func (r *Record) isUnproved() bool {
	return r.State == v1alpha1.StateClosed || r.Reason == v1alpha1.ReasonDeadlinePassed
}

// inBootOf adds to the gate's new record r what its previous record shows about the node's current
// boot, and returns it. A gate that never closes again records no boot.
func (d *decider) inBootOf(g *Gate, from, r *Record) *Record {
	if r.Boot != "" && r.Boot == from.Boot {
		r.Completed = from.Completed
	}
	readsHeartbeats := g.ReadsHeartbeats || len(g.Signals) == 0 // perhaps, if the gate did not compile
	if readsHeartbeats && (r.Boot == "" || r.Boot == d.Node.BootID) && !r.closedForBoot() {
		r.BootSeen = d.trustIn(g, from).booted
	}
	return r
}

// sameBootAsDigest reports whether the record's digest was taken in the node's current
// boot: the node became unreachable or announced its shutdown, and returned without a
// reboot. The pods in the digest are then valid evidence.
func (r *Record) sameBootAsDigest(n *Node) bool {
	return r.awaitsBoot() && r.Boot == n.BootID
}

// Believes reports whether the pod's readiness is evidence of the node's current boot
// and the current Node. The returned time is when it became evidence, or when it may
// become evidence if the pod stays ready. It is zero if that does not depend on time.
func (t Trust) Believes(p *Pod, now time.Time) (bool, time.Time) {
	known := t.bootKnown
	switch {
	case t.digest == digestAll && p.Created.Before(t.since), t.digest.has(p.Incarnation), slices.Contains(t.known, p.Incarnation):
	case p.Created.Before(t.nodeCreated), slices.Contains(t.former, p.Incarnation):
		known = t.nodeCreated
	case t.behind && !p.ReadySince.After(t.since):
	default:
		return true, time.Time{}
	}
	return provenBy(t.node, Latest(known, t.readySince), t.podsAt, now)
}

// HeartbeatSkew is the assumed maximum difference between the clocks of a node and of
// the controller, where their times are compared.
const HeartbeatSkew = 10 * time.Second

// BelievesHeartbeat reports whether a heartbeat at the given time, by the node's clock,
// is evidence of the current boot. The first status that a kubelet writes after a boot
// repeats what other programs reported before it, so only a later heartbeat counts.
func (t Trust) BelievesHeartbeat(at time.Time) bool {
	return t.booted.IsZero() || at.After(t.booted.Add(HeartbeatSkew))
}
