// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/google/uuid"
)

// reader unpacks one object. Its input was packed by a writer with the same dictionary
// and is never damaged.
type reader struct {
	dict     *Dictionary
	rest     string
	backrefs []string
	last     int64
	// space is the initial backing array of backrefs.
	space [4]string
}

func (r *reader) begin(d *Dictionary, packed string) {
	r.dict, r.rest, r.last = d, packed, epoch
	r.backrefs = r.space[:0]
}

func (r *reader) uint() uint64 {
	var n uint64
	for i := 0; ; i++ {
		b := r.rest[i]
		n |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			r.rest = r.rest[i+1:]
			return n
		}
	}
}

func (r *reader) byte() byte { return r.take(1)[0] }

func (r *reader) take(n int) string {
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

// length reads what writer.length has written.
func (r *reader) length() (n int, isNil bool) {
	switch n := r.uint(); n {
	case 0:
		return 0, true
	default:
		return int(n - 1), false //nolint:gosec // a length
	}
}

func (r *reader) define() string {
	s := r.text()
	r.remember(s)
	return s
}

func (r *reader) remember(s string) {
	if s != "" {
		r.backrefs = append(r.backrefs, s)
	}
}

// text reads what writer.shared or writer.unique has written. The result is a copy, so
// that a retained name does not retain the whole packed string.
func (r *reader) text() string {
	n := r.uint()
	switch rest := n >> textBits; n & (1<<textBits - 1) {
	case textNumber:
		return r.dict.at(rest).key
	case textBackref:
		return r.backrefs[rest]
	case textUUID:
		var id uuid.UUID
		copy(id[:], r.take(len(id)))
		return id.String()
	case textInstant:
		return r.time().Format(time.RFC3339Nano)
	default:
		return strings.Clone(r.take(int(rest))) //nolint:gosec // a length
	}
}

func (r *reader) pair() entry {
	n := r.uint()
	if n&1 == 1 {
		return r.dict.at(n >> 1)
	}
	return entry{r.text(), r.text()}
}

func (r *reader) set() map[string]string {
	n, isNil := r.length()
	if isNil {
		return nil
	}
	m := make(map[string]string, n)
	if n == 0 {
		return m
	}
	numbered := r.uint()
	var number uint64
	for range numbered {
		number += r.uint()
		e := r.dict.at(number)
		m[e.key] = e.value
	}
	for len(m) < n {
		key := r.text()
		m[key] = r.text()
	}
	return m
}

func readEach[V any](r *reader, unpack func() V) map[string]V {
	n, isNil := r.length()
	if isNil {
		return nil
	}
	m := make(map[string]V, n)
	for range n {
		name := r.text()
		m[name] = unpack()
	}
	return m
}

// record reads what writer.record has written.
func (r *reader) record() string {
	n := r.uint()
	if n == 0 {
		return r.text()
	}
	var raw strings.Builder
	raw.Grow(recordSize)
	raw.WriteString(recordBegin)
	for i := range n {
		if i > 0 {
			raw.WriteString(recordComma)
		}
		r.field(&raw)
	}
	raw.WriteString(recordEnd)
	return raw.String()
}

// recordSize is the typical length of a record in bytes.
const recordSize = 192

func (r *reader) field(raw *strings.Builder) {
	if r.rest[0] == 2 {
		r.byte()
		raw.WriteString(r.text())
		return
	}
	field := r.pair()
	raw.WriteString(field.key)
	raw.WriteString(recordColon)
	raw.WriteString(field.value)
}

func (r *reader) time() time.Time {
	n := r.uint()
	kind, zigzag := n&(1<<timeBits-1), n>>timeBits
	var nanos uint64
	switch kind {
	case timeZero:
		return time.Time{}
	case timeFar:
		r.last = int64(binary.LittleEndian.Uint64([]byte(r.take(8)))) //nolint:gosec // as it was packed
		nanos = r.uint()
	default:
		r.last += int64(zigzag>>1) ^ -int64(zigzag&1) //nolint:gosec // as it was packed
		if kind == timeNanos {
			nanos = r.uint()
		}
	}
	return time.Unix(r.last, int64(nanos)).UTC() //nolint:gosec // less than a second
}
