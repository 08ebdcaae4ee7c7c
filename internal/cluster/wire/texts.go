// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"
)

// Texts that many objects have in common are few: keys of labels, types of
// conditions, versions.
const (
	textsMax = 1 << 12
	// textMax is how many bytes a text has at most that is remembered.
	textMax = 256
)

// texts has equal texts share their memory, as far as it remembers them. Each has
// two places, and takes either: where two that many objects have meet in one, soon
// each has its own. With one place, they would cost an allocation each time for as
// long as the process runs. It is safe for concurrent use, and takes no lock.
type texts struct {
	seed  maphash.Seed
	known [textsMax]atomic.Pointer[string]
}

func newTexts() *texts { return &texts{seed: maphash.MakeSeed()} }

// of returns a text, in memory that is not that of the bytes.
func (t *texts) of(b []byte) string {
	if len(b) == 0 || len(b) > textMax {
		return string(b)
	}
	hash := maphash.Bytes(t.seed, b)
	places := [2]*atomic.Pointer[string]{&t.known[hash%textsMax], &t.known[hash/textsMax%textsMax]}
	for _, place := range places {
		if known := place.Load(); known != nil && *known == string(b) {
			return *known
		}
	}
	text := string(b)
	places[rand.N(len(places))].Store(&text)
	return text
}
