// SPDX-License-Identifier: Apache-2.0

package revisions

import (
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Request is a write in the audit log that is not a dry run, carried out or rejected.
type Request struct {
	// User is the name of the user that sent the request. IsMaster is true if the user is in
	// the group system:masters, which has all permissions.
	User     string
	IsMaster bool
	// AuditID is the request's ID in the audit log.
	AuditID string
	Verb    string
	// Resource contains the subresource: "nodes/status".
	Resource, Namespace, Name string
	// Code is the HTTP status of the response.
	Code int32
	// Message is the reason for which the request was rejected, and Body is what it contained.
	// Both are empty if it was carried out.
	Message string
	Body    []byte
	// Received and Done are the times at which the API server received the request and
	// had answered it.
	Received, Done time.Time
}

// During returns the versions of an object that may have been current at some time between two
// times. Deletions are versions without an object.
func (h *History) During(id ID, from, to time.Time) []Version {
	versions := h.byID[id]
	first := sort.Search(len(versions), func(i int) bool { return !h.Latest(versions[i].Revision).Before(from) })
	end := sort.Search(len(versions), func(i int) bool { return h.Earliest(versions[i].Revision).After(to) })
	return versions[max(0, first-1):max(end, first)]
}

// NodesDuring is During for the states of a Node, without deletions.
func (h *History) NodesDuring(name string, from, to time.Time) []*corev1.Node {
	var nodes []*corev1.Node
	for _, v := range h.During(ID{Kind: KindNode, Name: name}, from, to) {
		if node, ok := v.Object.(*corev1.Node); ok {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// Reached returns a revision that was certainly committed at a time, and is as late as possible.
func (h *History) Reached(at time.Time) int64 {
	return max(h.From, h.clock.reached(at))
}
