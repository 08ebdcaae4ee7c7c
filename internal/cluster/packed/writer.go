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

// A text is a number whose lowest bits say what the rest of it is.
const (
	textInline  = iota // a length; as many bytes follow
	textNumber         // a number of the dictionary
	textSaid           // an index into what was said before
	textUUID           // nothing; 16 bytes follow
	textInstant        // nothing; a time follows
	textBits    = 3
)

// So does a time.
const (
	timeZero    = iota // nothing
	timeSeconds        // seconds since the time before, zigzag
	timeNanos          // the same; nanoseconds follow
	timeFar            // nothing; 8 bytes of seconds and nanoseconds follow
	timeBits    = 2
)

// epoch is what the first time of an object is counted from, in Unix seconds: the
// beginning of 2025.
const epoch = 1735689600

// writer packs one object.
type writer struct {
	dict *Dictionary
	// by is the object to the dictionary.
	by uint32
	// buf is what has been packed.
	buf []byte
	// said are texts that an object may repeat.
	said []string
	// last is the last time that was packed, in Unix seconds.
	last int64

	// What follows is room to work in.
	numbers []uint32
	rest    []entry
	names   []string
}

// begin has the writer pack an object. The dictionary stays locked until end.
func (w *writer) begin(d *Dictionary, name string) {
	d.mu.Lock()
	w.dict, w.by = d, d.object(name)
	w.restart()
}

// restart has the writer begin a string of its own.
func (w *writer) restart() { w.buf, w.said, w.last = w.buf[:0], w.said[:0], epoch }

// know has a text count as said, that readers know from elsewhere.
func (w *writer) know(s string) {
	if s != "" {
		w.said = append(w.said, s)
	}
}

// end lets go of the dictionary, and of the object.
func (w *writer) end() {
	w.dict.mu.Unlock()
	w.dict = nil
	clear(w.said[:cap(w.said)])
	clear(w.rest[:cap(w.rest)])
	clear(w.names[:cap(w.names)])
}

func (w *writer) uint(n uint64)   { w.buf = binary.AppendUvarint(w.buf, n) }
func (w *writer) bytes(b ...byte) { w.buf = append(w.buf, b...) }

// length packs the length of a map or slice, and whether it is nil.
func (w *writer) length(n int, isNil bool) {
	if isNil {
		w.uint(0)
		return
	}
	w.uint(uint64(n) + 1) //nolint:gosec // a length
}

// say packs a text that is nobody else's, and may be repeated further on.
func (w *writer) say(s string) {
	w.own(s)
	w.know(s)
}

// text packs a text that others may have too.
func (w *writer) text(s string) {
	if s != "" {
		if n, ok := w.dict.number(entry{key: s}, w.by); ok {
			w.uint(uint64(n)<<textBits | textNumber)
			return
		}
	}
	w.own(s)
}

// own packs a text that is nobody else's.
func (w *writer) own(s string) {
	if i := slices.Index(w.said, s); i >= 0 {
		w.uint(uint64(i)<<textBits | textSaid) //nolint:gosec // an index
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

// pair packs a key and its value.
func (w *writer) pair(e entry) {
	if n, ok := w.pairNumber(e); ok {
		w.uint(uint64(n)<<1 | 1)
		return
	}
	w.uint(0)
	w.text(e.key)
	w.own(e.value)
}

// pairNumber is false for pairs that are not numbered: not yet, or because their value
// is the object's own.
func (w *writer) pairNumber(e entry) (uint32, bool) {
	if e.value != "" && slices.Contains(w.said, e.value) {
		return 0, false
	}
	return w.dict.number(e, w.by)
}

// set packs a map: first those pairs that are numbered.
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
		w.text(e.key)
		w.own(e.value)
	}
}

// each packs a map by way of its names, which others may have too.
func each[V any](w *writer, m map[string]V, pack func(V)) {
	w.length(len(m), m == nil)
	w.names = slices.AppendSeq(w.names[:0], maps.Keys(m))
	slices.Sort(w.names)
	for _, name := range w.names {
		w.text(name)
		pack(m[name])
	}
}

// record packs a text that is as a rule one object of JSON, whose fields are texts:
// it is taken apart between these, and what is in between is left out.
func (w *writer) record(raw string) {
	inner, object := cutEnds(raw, recordBegin, recordEnd)
	if !object {
		w.uint(0)
		w.own(raw)
		return
	}
	w.uint(uint64(strings.Count(inner, recordComma)) + 1) //nolint:gosec // a count
	for field := range strings.SplitSeq(inner, recordComma) {
		key, value, found := strings.Cut(field, recordColon)
		if !found {
			w.uint(2)
			w.own(field)
			continue
		}
		w.pair(entry{key, value})
	}
}

// What stands between the texts of a record.
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

// time packs a time, as far from the one before.
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

// canonicalUUID parses a UUID that is written as Kubernetes writes them, in lower case.
func canonicalUUID(s string) (uuid.UUID, bool) {
	if len(s) != uuidLen || strings.ContainsAny(s, "ABCDEF") {
		return uuid.UUID{}, false
	}
	id, err := uuid.Parse(s)
	return id, err == nil
}

// canonicalInstant parses a time that is written as records have it.
func canonicalInstant(s string) (time.Time, bool) {
	if len(s) < len("2006-01-02T15:04:05Z") || len(s) > len(time.RFC3339Nano) || s[4] != '-' || s[len(s)-1] != 'Z' {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, false
	}
	var room [len(time.RFC3339Nano)]byte
	return t, string(t.AppendFormat(room[:0], time.RFC3339Nano)) == s
}
