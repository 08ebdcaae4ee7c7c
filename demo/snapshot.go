// SPDX-License-Identifier: Apache-2.0

package main

import "time"

// A state is a node's progress towards receiving pods.
type state int

const (
	joining    state = iota // started, and not registered yet
	heldByBoth              // closed by both gates
	heldByCNI               // closed by gate cni alone
	heldByInit              // closed by gate init alone
	open                    // closed by none
	states
)

// A snapshot contains the data that the live view shows at one moment.
type snapshot struct {
	elapsed    time.Duration
	nodes      int // planned
	podsWanted int
	waves      []waveCounts
}

// waveCounts count the nodes of one wave that have been started, by state, and
// the workload pods bound to them.
type waveCounts struct {
	states [states]int
	pods   int
}

func (w *waveCounts) nodes() int {
	sum := 0
	for _, n := range w.states {
		sum += n
	}
	return sum
}

// total returns the sum of all waves.
func (s *snapshot) total() waveCounts {
	var t waveCounts
	for i := range s.waves {
		for k, n := range s.waves[i].states {
			t.states[k] += n
		}
		t.pods += s.waves[i].pods
	}
	return t
}
