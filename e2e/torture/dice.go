// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
)

// dice are a source of random decisions. The nth decision for a name depends only on
// the seed, the name and n, regardless of the order of other names.
type dice struct {
	seed uint64
	mu   sync.Mutex
	n    map[string]uint64
}

func newDice(seed uint64) *dice { return &dice{seed: seed, n: make(map[string]uint64)} }

// roll returns a random number generator for the next decision for a name.
func (d *dice) roll(name string) *rand.Rand {
	d.mu.Lock()
	d.n[name]++
	n := d.n[name]
	d.mu.Unlock()
	return rand.New(rand.NewPCG(d.seed, hash(fmt.Sprint(name, " ", n))))
}

func (d *dice) event(e faultproxy.Event) *rand.Rand { return d.roll(e.Resource + "/" + e.Name) }

func (d *dice) request(r faultproxy.Request) *rand.Rand {
	return d.roll(r.Verb + " " + r.Resource + "/" + r.Name)
}
