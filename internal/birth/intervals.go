// SPDX-License-Identifier: Apache-2.0

package birth

import (
	"time"

	"github.com/nodegate/nodegate/internal/admission"
)

// Intervals at which a gate is probed. A gate that changes is probed immediately. Until it
// is proved, it is probed again after birthFirst, which doubles each time up to birthSoon,
// because policies take up to a second to take effect. After birthHasty attempts, it is
// probed every BirthLater. A proved gate is probed every BirthProved, because the policy
// can be deleted at any time. A probe costs the API server two milliseconds, plus a tenth
// of a millisecond for each gate that selects it.
const (
	birthFirst  = 100 * time.Millisecond
	birthSoon   = time.Second
	BirthLater  = 15 * time.Second
	BirthProved = time.Minute
	birthHasty  = 12
	// birthRemove is the time after which the removal of an entry is tried again: until then,
	// nodes are closed that must not be.
	birthRemove = 5 * time.Second
	// birthTimeout limits each request except probeTimeout, which limits the creation of a
	// probe node: if a webhook does not respond, the API server creates the node without it.
	// birthSearch limits all requests of a search for rejected entries: nothing is probed
	// meanwhile.
	birthTimeout = 5 * time.Second
	probeTimeout = admission.WebhookTimeout + 2*time.Second
	birthSearch  = 30 * time.Second
	// If many probes are due, birthAtOnce are sent, or fewer if they take birthTimeout. A
	// pause of birthPause follows. It is birthSlower times as long as the probes took, so that
	// a busy API server gets fewer, but at most BirthLater, so that gates are proved soon after
	// it has recovered.
	birthAtOnce = 10
	birthPause  = 500 * time.Millisecond
	birthSlower = 9
)

// Intervals at which the guards are probed. They are probed every guardsProved, because
// they can be deleted at any time. While one of them is not proved, they are probed every
// guardsSoon and, after guardsHasty attempts, every guardsLater. The pause after probes is
// birthSlower times as long as they took, but at most guardsSlow.
const (
	guardsProved = time.Minute
	guardsSlow   = 90 * time.Second
	guardsSoon   = time.Second
	guardsLater  = 15 * time.Second
	guardsHasty  = 12
	// guardsOutdated is the time after which a guard no longer counts as proved if no answer
	// shows whether it is in force.
	guardsOutdated = 15 * time.Minute
	// guardTries is the number of consecutive unsuccessful probes after which a guard is
	// reported. Policies take up to a second to take effect, and the Node of a probe may be
	// in deletion.
	guardTries = 3
)
