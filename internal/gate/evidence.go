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
// After a reboot the API goes on telling for a while what was true before: a
// pod is Ready=True with containers that do not exist any more. The kubelet's
// loops for node status and pod status are independent, so that neither order
// of the two writes can be relied upon, and neither can clocks. What does
// change is identity: containers started anew have new IDs. So a gate that
// closes for a reboot remembers, as a digest, what its pods were then, and
// believes a pod when it is something else, or when it is ready after so long
// that a wrong status would have been corrected.

// provenAfter is how long after the new boot was seen a pod whose identity proves
// nothing counts if it is ready then, and the node reporting. A kubelet corrects
// pod statuses within 10 seconds, and falls silent in the API after 50. Nobody
// keeps account of silence in between: when a node falls silent, core marks its
// pods as not ready, and only its kubelet makes them ready again.
const provenAfter = time.Minute

// Incarnation identifies a pod together with its present containers. It is a
// hash, so that it stays small in memory and in records.
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

func (i Incarnation) String() string { return strconv.FormatUint(uint64(i), 36) }

// Digest names incarnations of pods, separated by spaces and sorted.
type Digest string

// digestAll stands for every pod that existed when the record was written.
const digestAll Digest = "*"

// digestMax bounds a digest, and so a record, whatever a selector matches.
const digestMax = 32

func digestOf(pods []Pod) Digest { return digestWhere(pods, func(*Pod) bool { return true }) }

// digestWhere names what is known of pods: of some their incarnation, and the
// marks of all.
func digestWhere(pods []Pod, known func(*Pod) bool) Digest {
	ids := make([]string, 0, len(pods))
	for i := range pods {
		p := &pods[i]
		if known(p) {
			ids = append(ids, p.Incarnation.String())
		}
		if !p.MarkedSince.IsZero() {
			ids = append(ids, p.mark().String())
		}
	}
	if len(ids) > digestMax {
		return digestAll
	}
	slices.Sort(ids)
	return Digest(strings.Join(slices.Compact(ids), " "))
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

// takeDigest digests the pods that the gate's signals rest on. Where those have
// not been observed, it is false and the digest stands for all pods.
func (g *Gate) takeDigest(f *Facts) (Digest, bool) {
	pods, observed := g.evidence(f)
	if !observed {
		return digestAll, false
	}
	return digestOf(pods), true
}

// takeDigestOfBoot is takeDigest for when the new boot is there already. A pod
// that is not ready says nothing that could be from before: when it comes to be
// ready, that is the new boot's word, whichever loop of the kubelet spoke first.
func (g *Gate) takeDigestOfBoot(f *Facts) (Digest, bool) {
	pods, observed := g.evidence(f)
	if !observed {
		return digestAll, false
	}
	return digestWhere(pods, func(p *Pod) bool { return p.Ready }), true
}

// evidence returns the pods that the gate's signals rest on. It is false when
// some have not been observed. The slice is the caller's.
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

// Trust tells which pods' readiness may be believed for one gate on one node.
// Its zero value believes all.
type Trust struct {
	// digest names pods that are known from an earlier boot.
	digest Digest
	// since is when the record was written that holds the digest.
	since time.Time
	// nodeCreated is the creation of the Node: an older pod is known from an
	// earlier Node of the same name, perhaps of another machine.
	nodeCreated time.Time
	// reporting is true while the node is reporting.
	reporting bool
	// booted is when the current boot was first seen; zero if the gate did not
	// close for one.
	booted time.Time
}

// trustIn returns what to believe of the node, given the gate's record.
func trustIn(r *Record, n *Node) Trust {
	t := Trust{nodeCreated: n.Created, since: r.closedSince(n), reporting: n.Reporting()}
	if !r.sameBootAsDigest(n) {
		t.digest = r.Digest
	}
	if r.Reason == v1alpha1.ReasonRebooted || r.awaitsBoot() && r.Boot != n.BootID {
		t.booted = t.since
	}
	return t
}

// sameBootAsDigest tells whether the record's digest was taken in the node's
// present boot: the node fell silent or announced its shutdown, and came back
// without a reboot. What was true then is evidence.
func (r *Record) sameBootAsDigest(n *Node) bool {
	return r.awaitsBoot() && r.Boot == n.BootID
}

// Believes tells whether the pod's readiness speaks of the node's current boot
// and the current Node. The time says when that becomes so, or became so, if the
// pod stays ready; zero means that time has nothing to do with it.
func (t Trust) Believes(p *Pod, now time.Time) (bool, time.Time) {
	var stale time.Time // since when the pod's status could have been corrected
	switch {
	case t.digest == digestAll && p.Created.Before(t.since), t.digest.has(p.Incarnation):
		stale = t.since
	case p.Created.Before(t.nodeCreated):
		stale = t.nodeCreated
	default:
		return true, time.Time{}
	}
	if !t.reporting {
		return false, time.Time{}
	}
	proven := stale.Add(provenAfter)
	return !now.Before(proven), proven
}

// HeartbeatSkew is how far the clocks of nodes and of the controller are taken
// to differ where they are compared.
const HeartbeatSkew = 10 * time.Second

// BelievesHeartbeat tells whether what was confirmed at a time, by the node's
// clock, speaks of the current boot. The first status that a kubelet writes
// after a boot repeats what others reported before it, so that only a heartbeat
// of later counts.
func (t Trust) BelievesHeartbeat(at time.Time) bool {
	return t.booted.IsZero() || at.After(t.booted.Add(HeartbeatSkew))
}
