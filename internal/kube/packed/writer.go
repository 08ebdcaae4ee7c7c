// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// A text is a number whose lowest bits are its kind. The meaning of the remaining bits
// depends on the kind.
const (
	textInline  = iota // length; that many bytes follow
	textNumber         // number in the dictionary
	textBackref        // index into backrefs
	textUUID           // unused; 16 bytes follow
	textInstant        // unused; a time follows
	textBits    = 3
)

// A time has the same structure.
const (
	timeZero    = iota // unused
	timeSeconds        // seconds since the previous time, zigzag
	timeNanos          // seconds since the previous time, zigzag; nanoseconds follow
	timeFar            // unused; 8 bytes of seconds, and nanoseconds follow
	timeBits    = 2
)

// epoch is the reference for the first time of an object, in Unix seconds: the beginning
// of 2025.
const epoch = 1735689600

// writer packs one object.
type writer struct {
	dict *Dictionary
	// object is the hash of the object's name in the dictionary.
	object uint32
	// buf is the output.
	buf []byte
	// backrefs are texts that the object may repeat.
	backrefs []string
	// last is the previous time, in Unix seconds.
	last int64

	// Scratch space.
	numbers []uint32
	rest    []entry
	names   []string
}

// begin begins an object. The dictionary stays locked until end is called.
func (w *writer) begin(d *Dictionary, name string) {
	d.mu.Lock()
	w.dict, w.object = d, d.object(name)
	w.restart()
}

// restart begins a new string of the same object.
func (w *writer) restart() { w.buf, w.backrefs, w.last = w.buf[:0], w.backrefs[:0], epoch }

// remember adds a text to backrefs that the reader knows without reading it.
func (w *writer) remember(s string) {
	if s != "" {
		w.backrefs = append(w.backrefs, s)
	}
}

// end releases the dictionary and all references to the object.
func (w *writer) end() {
	w.dict.mu.Unlock()
	w.dict = nil
	clear(w.backrefs[:cap(w.backrefs)])
	clear(w.rest[:cap(w.rest)])
	clear(w.names[:cap(w.names)])
}

func (w *writer) uint(n uint64)   { w.buf = binary.AppendUvarint(w.buf, n) }
func (w *writer) bytes(b ...byte) { w.buf = append(w.buf, b...) }

// length writes the length of a map or slice, and whether it is nil.
func (w *writer) length(n int, isNil bool) {
	if isNil {
		w.uint(0)
		return
	}
	w.uint(uint64(n) + 1) //nolint:gosec // a length
}

// define writes a text that no other object has and that may be repeated in this object.
func (w *writer) define(s string) {
	w.unique(s)
	w.remember(s)
}

// shared writes a text that other objects may have too.
func (w *writer) shared(s string) {
	if s != "" {
		if n, ok := w.dict.number(entry{key: s}, w.object); ok {
			w.uint(uint64(n)<<textBits | textNumber)
			return
		}
	}
	w.unique(s)
}

// unique writes a text that no other object has.
func (w *writer) unique(s string) {
	if i := slices.Index(w.backrefs, s); i >= 0 {
		w.uint(uint64(i)<<textBits | textBackref) //nolint:gosec // an index
		return
	}
	if id, ok := canonicalUUID(s); ok {
		w.uint(textUUID)
		w.bytes(id[:]...)
		return
	}
	if t, ok := canonicalInstant(s); ok {
		w.uint(textInstant)
		w.time(t)
		return
	}
	w.uint(uint64(len(s))<<textBits + textInline)
	w.buf = append(w.buf, s...)
}

// pair writes a key and its value.
func (w *writer) pair(e entry) {
	if n, ok := w.pairNumber(e); ok {
		w.uint(uint64(n)<<1 | 1)
		return
	}
	w.uint(0)
	w.shared(e.key)
	w.unique(e.value)
}

// pairNumber returns the number of a pair. It returns false if the pair has no number
// yet, or if its value occurs in this object only.
func (w *writer) pairNumber(e entry) (uint32, bool) {
	if e.value != "" && slices.Contains(w.backrefs, e.value) {
		return 0, false
	}
	return w.dict.number(e, w.object)
}

// set writes a map, beginning with the pairs that have numbers.
func (w *writer) set(m map[string]string) {
	w.length(len(m), m == nil)
	w.numbers, w.rest = w.numbers[:0], w.rest[:0]
	for key, value := range m {
		e := entry{key, value}
		if n, ok := w.pairNumber(e); ok {
			w.numbers = append(w.numbers, n)
		} else {
			w.rest = append(w.rest, e)
		}
	}
	if len(m) == 0 {
		return
	}
	slices.Sort(w.numbers)
	w.uint(uint64(len(w.numbers)))
	var last uint32
	for _, n := range w.numbers {
		w.uint(uint64(n - last))
		last = n
	}
	slices.SortFunc(w.rest, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	for _, e := range w.rest {
		w.shared(e.key)
		w.unique(e.value)
	}
}

// each writes a map whose keys other objects may have too.
func each[V any](w *writer, m map[string]V, pack func(V)) {
	w.length(len(m), m == nil)
	w.names = slices.AppendSeq(w.names[:0], maps.Keys(m))
	slices.Sort(w.names)
	for _, name := range w.names {
		w.shared(name)
		pack(m[name])
	}
}

// record writes a text that is usually a JSON object whose values are strings. It is
// split at the delimiters, which are omitted.
func (w *writer) record(raw string) {
	inner, object := cutEnds(raw, recordBegin, recordEnd)
	if !object {
		w.uint(0)
		w.unique(raw)
		return
	}
	w.uint(uint64(strings.Count(inner, recordComma)) + 1) //nolint:gosec // a count
	for field := range strings.SplitSeq(inner, recordComma) {
		key, value, found := strings.Cut(field, recordColon)
		if !found {
			w.uint(2)
			w.unique(field)
			continue
		}
		w.pair(entry{key, value})
	}
}

// The delimiters of a record.
const (
	recordBegin = `{"`
	recordComma = `","`
	recordColon = `":"`
	recordEnd   = `"}`
)

func cutEnds(s, begin, end string) (string, bool) {
	if len(s) < len(begin)+len(end) || !strings.HasPrefix(s, begin) || !strings.HasSuffix(s, end) {
		return "", false
	}
	return s[len(begin) : len(s)-len(end)], true
}

// time writes a time as the difference from the previous one.
func (w *writer) time(t time.Time) {
	if t.IsZero() {
		w.uint(timeZero)
		return
	}
	seconds, nanos := t.Unix(), uint64(t.Nanosecond()) //nolint:gosec // less than a second
	delta := seconds - w.last
	w.last = seconds
	zigzag := uint64(delta<<1) ^ uint64(delta>>63) //nolint:gosec // as varints are
	switch {
	case zigzag >= 1<<(64-timeBits):
		w.uint(timeFar)
		w.buf = binary.LittleEndian.AppendUint64(w.buf, uint64(seconds)) //nolint:gosec // all bits come back
		w.uint(nanos)
	case nanos == 0:
		w.uint(zigzag<<timeBits | timeSeconds)
	default:
		w.uint(zigzag<<timeBits | timeNanos)
		w.uint(nanos)
	}
}

// uuidLen is the length of a UUID as text.
const uuidLen = 36

// canonicalUUID parses a UUID in the form that Kubernetes uses, in lower case.
func canonicalUUID(s string) (uuid.UUID, bool) {
	if len(s) != uuidLen || strings.ContainsAny(s, "ABCDEF") {
		return uuid.UUID{}, false
	}
	id, err := uuid.Parse(s)
	return id, err == nil
}

// canonicalInstant parses a time in the form that records use.
func canonicalInstant(s string) (time.Time, bool) {
	if len(s) < len("2006-01-02T15:04:05Z") || len(s) > len(time.RFC3339Nano) || s[4] != '-' || s[len(s)-1] != 'Z' {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, false
	}
	var buf [len(time.RFC3339Nano)]byte
	return t, string(t.AppendFormat(buf[:0], time.RFC3339Nano)) == s
}
