// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// cursor goes through the fields of a message, in the order in which they were
// sent. After an error there is no next field.
type cursor struct {
	rest []byte
	err  error

	// number is that of the field that the cursor is at.
	number protowire.Number
	kind   protowire.Type
	bytes  []byte
	varint uint64
}

// next moves to the next field, and is false after the last.
func (c *cursor) next() bool {
	if c.err != nil || len(c.rest) == 0 {
		return false
	}
	number, kind, n := protowire.ConsumeTag(c.rest)
	if n < 0 {
		c.check(protowire.ParseError(n))
		return false
	}
	c.number, c.kind, c.rest = number, kind, c.rest[n:]
	switch kind {
	case protowire.BytesType:
		c.bytes, n = protowire.ConsumeBytes(c.rest)
	case protowire.VarintType:
		c.varint, n = protowire.ConsumeVarint(c.rest)
	default:
		n = protowire.ConsumeFieldValue(number, kind, c.rest)
	}
	if n < 0 {
		c.check(protowire.ParseError(n))
		return false
	}
	c.rest = c.rest[n:]
	return true
}

// message returns the field's value, which is a message or a text. It is in the
// memory of what is read.
func (c *cursor) message() []byte {
	if !c.is(protowire.BytesType) {
		return nil
	}
	return c.bytes
}

// text returns the field's value in memory of its own.
func (c *cursor) text() string { return string(c.message()) }

// integer returns the field's value.
func (c *cursor) integer() int64 {
	if !c.is(protowire.VarintType) {
		return 0
	}
	return int64(c.varint) //nolint:gosec // protobuf sends negative numbers so
}

func (c *cursor) is(kind protowire.Type) bool {
	if c.kind != kind {
		c.check(fmt.Errorf("field %d has wire type %d, not %d", c.number, c.kind, kind))
	}
	return c.kind == kind
}

// check has the cursor end if something about the field was wrong.
func (c *cursor) check(err error) {
	if c.err == nil {
		c.err = err
	}
}

// count tells how many fields of a number a message has, as far as it can be
// read.
func count(message []byte, number protowire.Number) int {
	found := 0
	for c := (cursor{rest: message}); c.next(); {
		if c.number == number {
			found++
		}
	}
	return found
}

// one appends one element to a slice, which at first is made with room for as
// many as a message has under a number, and returns it.
func one[E any](to *[]E, message []byte, number protowire.Number) *E {
	if *to == nil {
		*to = make([]E, 0, count(message, number))
	}
	var none E
	*to = append(*to, none)
	return &(*to)[len(*to)-1]
}
