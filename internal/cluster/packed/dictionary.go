// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
)

// Books hands out dictionaries. It is safe for concurrent use.
type Books struct{ current atomic.Pointer[Dictionary] }

// NewBooks returns books with an empty dictionary.
func NewBooks() *Books {
	b := &Books{}
	b.current.Store(newDictionary(entriesMax, refusalsMax))
	return b
}

// Dictionary returns the dictionary in which to pack from now on. One that is
// full of what was common long ago gives way to a new one; what was packed in it
// keeps it until it is packed anew.
func (b *Books) Dictionary() *Dictionary {
	d := b.current.Load()
	if d.worn() {
		return b.renew(d)
	}
	return d
}

// renew begins a new dictionary, unless somebody else has. It returns the newest.
func (b *Books) renew(d *Dictionary) *Dictionary {
	b.current.CompareAndSwap(d, newDictionary(d.max, d.refusalsMax))
	return b.current.Load()
}

// entriesMax is how many entries a dictionary has at most: some megabytes. A
// fleet whose nodes have more labels in common has the rest of them in full.
const entriesMax = 1 << 15

// refusalsMax is how often an entry that would be worth it finds no room before
// the dictionary has served its time.
const refusalsMax = 1 << 20

// seenSlots is how many entries that were seen once are remembered. It is a power of two.
const seenSlots = 1 << 13

// entry is a text, or a pair of texts such as a label.
type entry struct{ key, value string }

// Dictionary gives numbers to texts, and to pairs of texts, that are seen in
// more than one object. Entries stay; it grows to a fixed size. It is safe for
// concurrent use.
type Dictionary struct {
	max, refusalsMax int
	seed             maphash.Seed
	// entries are by number. Readers see a slice of which nothing changes any more.
	entries  atomic.Pointer[[]entry]
	refusals atomic.Int64

	mu      sync.Mutex // guards what follows, and appending to entries
	numbers map[entry]uint32
	// seen remembers by hash what was seen in one object, and in which. An entry may be
	// forgotten for another of the same slot, and is then numbered a little later.
	seen []sighting
}

// sighting is the hash of an entry and of the object that it was seen in.
type sighting struct{ entry, by uint32 }

func newDictionary(size, refusals int) *Dictionary {
	d := &Dictionary{
		max: size, refusalsMax: refusals, seed: maphash.MakeSeed(),
		numbers: make(map[entry]uint32), seen: make([]sighting, seenSlots),
	}
	d.entries.Store(new([]entry))
	return d
}

func (d *Dictionary) worn() bool { return d.refusals.Load() > int64(d.refusalsMax) }

// at returns the entry of a number.
func (d *Dictionary) at(number uint64) entry { return (*d.entries.Load())[number] }

// object identifies an object among others by its name; two may be taken for one.
func (d *Dictionary) object(name string) uint32 { return uint32(maphash.String(d.seed, name)) }

// number returns the number of an entry that was seen in an object, if it has one by now.
// The dictionary is locked.
func (d *Dictionary) number(e entry, by uint32) (uint32, bool) {
	if n, ok := d.numbers[e]; ok {
		return n, true
	}
	hash := maphash.Comparable(d.seed, e)
	slot := &d.seen[hash%seenSlots]
	now := sighting{entry: uint32(hash >> 32), by: by}
	if slot.entry != now.entry || slot.by == by {
		*slot = now
		return 0, false
	}
	return d.add(e)
}

func (d *Dictionary) add(e entry) (uint32, bool) {
	before := *d.entries.Load()
	if len(before) >= d.max {
		d.refusals.Add(1)
		return 0, false
	}
	number := uint32(len(before)) //nolint:gosec // less than max
	after := append(before, entry{strings.Clone(e.key), strings.Clone(e.value)})
	d.numbers[after[number]] = number
	d.entries.Store(&after)
	return number, true
}
