// SPDX-License-Identifier: Apache-2.0

package birth

import "time"

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
	// birthTimeout limits each request. birthSearch limits all requests of a search for
	// rejected entries: nothing is probed meanwhile.
	birthTimeout = 5 * time.Second
	birthSearch  = 30 * time.Second
	// If many probes are due, birthAtOnce are sent, followed by a pause of birthPause, or
	// birthSlower times as long as the probes took, so that a busy API server gets fewer.
	birthAtOnce = 10
	birthPause  = 500 * time.Millisecond
	birthSlower = 9
)

// Intervals at which the guards are probed. They are probed every guardsProved, because
// they can be deleted at any time. While one of them is not proved, they are probed every
// guardsSoon and, after guardsHasty attempts, every guardsLater.
const (
	guardsProved = time.Minute
	guardsSoon   = time.Second
	guardsLater  = 15 * time.Second
	guardsHasty  = 12
	// guardTries is the number of consecutive unsuccessful probes after which a guard is
	// reported. Policies take up to a second to take effect, and the Node of a probe may be
	// in deletion.
	guardTries = 3
)
