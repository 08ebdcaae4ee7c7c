// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	waveCount = 4
	waveEvery = 2 * time.Second

	// seed makes every run of the demo identical: the same nodes are slow.
	seed = 2026
)

// A nodePlan is how one simulated node behaves.
type nodePlan struct {
	name string
	wave int // from 0
	// cni and init are the times from the node's registration until its daemons
	// are ready. On a third of the nodes both are ready at the same time.
	cni, init time.Duration
	// stuck means that the CNI daemon never becomes ready.
	stuck bool
	// cloud means that the node registers with a cloud's initialization taint,
	// which is removed only after both daemons are ready. Both gates can open at
	// that moment, and not before.
	cloud bool
}

// planNodes plans the nodes in waves of about equal size. The last wave comes
// from a cloud, and one node of the second is stuck.
func planNodes(count int) []nodePlan {
	random := rand.New(rand.NewPCG(seed, seed))
	plans := make([]nodePlan, count)
	width := len(fmt.Sprint(count))
	stuck := -1
	for i := range plans {
		wave := i * waveCount / count
		if wave == 1 && stuck < 0 {
			stuck = i + count/(2*waveCount)
		}
		p := nodePlan{name: fmt.Sprintf("node-%0*d", width, i+1), wave: wave, cloud: wave == waveCount-1}
		p.cni = between(random, time.Second, 6*time.Second)
		p.init = between(random, time.Second, 8*time.Second)
		if random.IntN(3) == 0 {
			p.init = p.cni
		}
		plans[i] = p
	}
	plans[stuck].stuck = true
	return plans
}

func between(random *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(random.Int64N(int64(high-low))).Round(time.Millisecond)
}
