// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
)

// Dictionaries holds the current dictionary. It is safe for concurrent use.
type Dictionaries struct{ current atomic.Pointer[Dictionary] }

// NewDictionaries returns Dictionaries with an empty dictionary.
func NewDictionaries() *Dictionaries {
	s := &Dictionaries{}
	s.current.Store(newDictionary(entriesMax, refusalsMax))
	return s
}

// Current returns the dictionary to pack with. A dictionary that is full of entries that
// are no longer common is replaced by a new one. Objects that were packed with it keep it
// until they are packed again.
func (s *Dictionaries) Current() *Dictionary {
	d := s.current.Load()
	if d.stale() {
		return s.renew(d)
	}
	return d
}

// renew replaces d by an empty dictionary, unless d has already been replaced. It returns
// the current one.
func (s *Dictionaries) renew(d *Dictionary) *Dictionary {
	s.current.CompareAndSwap(d, newDictionary(d.max, d.refusalsMax))
	return s.current.Load()
}

// entriesMax is the maximum number of entries of a dictionary. They take a few megabytes,
// or 16 MiB if all are as long as possible.
// If the nodes of a fleet share more labels, each node has a copy of the remaining ones.
const entriesMax = 1 << 15

// entryBytesMax is the maximum length of an entry, which a label or a taint never exceeds.
// The type of a condition has no limit, and entries are never removed: without this
// limit, two nodes that report the same long types, always new ones, would fill the memory.
const entryBytesMax = 512

// refusalsMax is how many entries may be refused because the dictionary is full until it
// is replaced.
const refusalsMax = 1 << 20

// seenSlots is how many entries that were seen in one object are remembered. It is a
// power of two.
const seenSlots = 1 << 13

// entry is a text, or a pair of texts such as a label.
type entry struct{ key, value string }

// Dictionary numbers texts, and pairs of texts, that are seen in more than one object.
// Entries are never removed; their number and length are limited. It is safe for concurrent
// use.
type Dictionary struct {
	max, refusalsMax int
	seed             maphash.Seed
	// entries is indexed by number. The elements of the slice never change.
	entries  atomic.Pointer[[]entry]
	refusals atomic.Int64

	mu      sync.Mutex // guards what follows, and appending to entries
	numbers map[entry]uint32
	// seen remembers, by hash, entries that were seen in one object. An entry may be
	// displaced by another of the same slot; it is then numbered a little later.
	seen []seenEntry
}

// seenEntry is the hash of an entry and of the object in which it was seen.
type seenEntry struct{ entry, object uint32 }

func newDictionary(size, refusals int) *Dictionary {
	d := &Dictionary{
		max: size, refusalsMax: refusals, seed: maphash.MakeSeed(),
		numbers: make(map[entry]uint32), seen: make([]seenEntry, seenSlots),
	}
	d.entries.Store(new([]entry))
	return d
}

func (d *Dictionary) stale() bool { return d.refusals.Load() > int64(d.refusalsMax) }

// at returns the entry with a number.
func (d *Dictionary) at(number uint64) entry { return (*d.entries.Load())[number] }

// object returns the hash of an object's name. A collision has no consequence except that
// an entry is numbered later.
func (d *Dictionary) object(name string) uint32 { return uint32(maphash.String(d.seed, name)) }

// number returns the number of an entry that was seen in an object, and whether it has
// one. The caller must hold d.mu.
func (d *Dictionary) number(e entry, object uint32) (uint32, bool) {
	if len(e.key)+len(e.value) > entryBytesMax {
		return 0, false
	}
	if n, ok := d.numbers[e]; ok {
		return n, true
	}
	hash := maphash.Comparable(d.seed, e)
	slot := &d.seen[hash%seenSlots]
	now := seenEntry{entry: uint32(hash >> 32), object: object}
	if slot.entry != now.entry || slot.object == object {
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
