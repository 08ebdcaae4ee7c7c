// SPDX-License-Identifier: Apache-2.0

package write

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// NoResponseTimeout is how long a leader may go without a response to a patch. It is
// longer than a Lease, because the cause usually affects other replicas, too, and they
// would only take turns.
const NoResponseTimeout = 15 * time.Second

// Responses tracks whether patches of nodes receive responses.
type Responses struct {
	mu sync.Mutex
	// last is the time of the last response since this replica became the leader; zero if
	// there was none.
	last time.Time
	// unanswered is the time since which no patch has been answered, although some were sent. It
	// is zero until a patch fails without a response after the last response.
	unanswered time.Time
	// failed is the time at which the last of these patches failed.
	failed time.Time
	// node is the node of the first of these patches, and several reports whether there was another.
	node    string
	several bool
}

// Record records the outcome of a patch of a node that was sent at a time. Any answer of the API
// server is a response, also a rejection, or an error of a webhook: it may concern only this node.
// If nothing could be sent, the outcome does not matter.
func (r *Responses) Record(node string, sent, now time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case errors.Is(err, ErrUnsent):
		return
	case !errors.Is(err, ErrUnanswered):
		r.last, r.unanswered, r.node = now, time.Time{}, ""
		return
	case r.unanswered.IsZero():
		r.unanswered, r.node, r.several = sent, node, false
		if sent.Before(r.last) {
			r.unanswered = r.last // other patches have been answered since
		}
	case r.node != node:
		r.several = true
	}
	r.failed = now
}

// Check returns an error if this replica should give up the Lease. It does not if the answer of
// one patch was lost and nothing remains to be written: the API server may well answer. A leader
// whose patches have never received a response continues: its predecessor had the same problem,
// and the replicas would take turns without success. They would also if a webhook did not answer for
// one node. If the patches of only one node were not answered, Check therefore tries a patch of
// another one of these nodes.
func (r *Responses) Check(nodes func() []string, patch func(node string) error) error {
	since, only := r.unansweredSince()
	if since.IsZero() {
		return nil
	}
	names := slices.DeleteFunc(nodes(), func(name string) bool { return name == only })
	if only != "" && len(names) > 0 && isAnswer(patch(names[len(names)-1])) { // the last one probably has no taint
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.unanswered.IsZero() {
			r.last, r.unanswered, r.node = r.failed, time.Time{}, ""
		}
		return nil
	}
	return fmt.Errorf("no patch of a node has been answered since %s: another replica may be able to write", since.UTC().Format(time.RFC3339))
}

// unansweredSince returns since when no patch has been answered, if that is too long, and the node if
// all of these patches are of one.
func (r *Responses) unansweredSince() (since time.Time, only string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last.IsZero() || r.unanswered.IsZero() || r.failed.Sub(r.unanswered) < NoResponseTimeout {
		return time.Time{}, ""
	}
	if !r.several {
		only = r.node
	}
	return r.unanswered, only
}
