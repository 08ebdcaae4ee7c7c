// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

const draDriver = "gpu.example.com"

// slicesOfU returns a node with the UID u and these ResourceSlices.
func slicesOfU(list ...gate.ResourceSlice) *world {
	return aNode(func(w *world) {
		w.facts.Node.UID = "u"
		w.facts.ResourceSlices = map[string][]gate.ResourceSlice{draDriver: list, "other": {part("o", "u", "p", 1, 1)}}
	})
}

// part returns one of a pool's slices.
func part(name string, owner types.UID, pool string, generation, count int64) gate.ResourceSlice {
	return gate.ResourceSlice{Name: name, Owner: owner, Pool: pool, Generation: generation, Count: count}
}

func TestResourceSlices(t *testing.T) {
	const (
		every      = "every pool of DRA driver " + draDriver
		none       = "ResourceSlice of DRA driver " + draDriver
		incomplete = v1alpha1.ReadingPoolIncomplete
		former     = v1alpha1.ReadingFormerNode
	)
	short := func(pool, has string) string {
		return "pool " + pool + " of DRA driver " + draDriver + ", with " + has + ","
	}
	unobserved := slicesOfU(part("a", "u", "p", 1, 1))
	delete(unobserved.facts.ResourceSlices, draDriver)
	s := mustCompile(t, v1alpha1.SignalSource{ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: draDriver}})
	check(t, s, map[string]reads{
		"one slice":   {slicesOfU(part("a", "u", "p", 1, 1)), gate.Holds, matches, every},
		"all of them": {slicesOfU(part("a", "u", "p", 3, 2), part("b", "u", "p", 3, 2)), gate.Holds, matches, every},
		"two pools":   {slicesOfU(part("a", "u", "p", 1, 1), part("b", "u", "q", 9, 1)), gate.Holds, matches, every},
		"some are old": {slicesOfU(part("a", "u", "p", 1, 2), part("b", "u", "p", 2, 1), part("c", "u", "p", 1, 2)),
			gate.Holds, matches, every},
		"nothing yet":       {slicesOfU(), gate.NotYet, absent, none},
		"one is missing":    {slicesOfU(part("a", "u", "p", 1, 2)), gate.NotYet, incomplete, short("p", "1 of 2 ResourceSlices of generation 1")},
		"one is too many":   {slicesOfU(part("a", "u", "p", 1, 1), part("b", "u", "p", 1, 1)), gate.NotYet, incomplete, short("p", "2 of 1 ResourceSlices of generation 1")},
		"another pool's":    {slicesOfU(part("a", "u", "p", 1, 1), part("b", "u", "q", 1, 2)), gate.NotYet, incomplete, short("q", "1 of 2 ResourceSlices of generation 1")},
		"the newest counts": {slicesOfU(part("a", "u", "p", 1, 1), part("b", "u", "p", 2, 2)), gate.NotYet, incomplete, short("p", "1 of 2 ResourceSlices of generation 2")},
		"in any order":      {slicesOfU(part("a", "u", "p", 2, 2), part("b", "u", "p", 1, 1)), gate.NotYet, incomplete, short("p", "1 of 2 ResourceSlices of generation 2")},
		"of a former Node":  {slicesOfU(part("a", "former", "p", 1, 1)), gate.NotYet, former, "ResourceSlice a"},
		"without an owner":  {slicesOfU(part("a", "", "p", 1, 1)), gate.NotYet, v1alpha1.ReadingNotOwned, "ResourceSlice a"},
		"half of them of a former Node": {slicesOfU(part("a", "former", "p", 1, 2), part("b", "u", "p", 1, 2)),
			gate.NotYet, incomplete, short("p", "1 of 2 ResourceSlices of generation 1")},
		"a former Node has a newer generation": {slicesOfU(part("a", "former", "p", 7, 2), part("b", "u", "p", 1, 1)), gate.Holds, matches, every},
		"not observed":                         {unobserved, gate.Unknown, v1alpha1.ReadingNotObserved, none},
	})
	if n := s.Needs(nil); !slices.Equal(n.ResourceSlices, []string{draDriver}) || s.ProvesBoot() {
		t.Errorf("needs = %+v, proves boot: %v", n, s.ProvesBoot())
	}
}

// A kubelet can publish any number of pools for its node. Reading them takes a time in
// proportion to their number, not to its square.
func TestManyPoolsOfOneNode(t *testing.T) {
	s := mustCompile(t, v1alpha1.SignalSource{ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: draDriver}})
	published := func(pools int) (list []gate.ResourceSlice) {
		for i := range pools {
			name := fmt.Sprintf("pool-%06d", i)
			list = append(list, part(name, "u", name, 1, 1), part("old", "u", name, 0, 7))
		}
		return list
	}
	duration := func(list []gate.ResourceSlice) float64 {
		return float64(testing.Benchmark(func(b *testing.B) {
			for range b.N {
				if reading, _ := read(t, s, slicesOfU(list...)); reading.State != gate.Holds {
					t.Errorf("reading = %+v", reading)
				}
			}
		}).NsPerOp())
	}
	const number, times = 1_000, 50
	list := published(number * times)
	ratio := duration(list) / duration(list[:2*number])
	if ratio > times*times/5 { // the square would be 2,500
		t.Errorf("reading %d times as many pools takes %.0f times as long", times, ratio)
	}
	list[number].Count = 2
	if reading, _ := read(t, s, slicesOfU(list...)); reading.Reason != v1alpha1.ReadingPoolIncomplete || !strings.Contains(reading.Subject, list[number].Pool) {
		t.Errorf("reading of an incomplete pool = %+v", reading)
	}
}
