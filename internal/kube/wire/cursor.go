// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// cursor iterates over the fields of a message in the order in which they were sent. It
// stops at the first error.
type cursor struct {
	rest []byte
	err  error

	// number is the number of the current field.
	number protowire.Number
	kind   protowire.Type
	bytes  []byte
	varint uint64
}

// next advances to the next field. It returns false after the last one or an error.
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

// begin returns the value of the next field, a message, as far as the input contains it. It
// returns nil if the next field has another number.
func (c *cursor) begin(number protowire.Number) []byte {
	got, kind, n := protowire.ConsumeTag(c.rest)
	if n < 0 || got != number || kind != protowire.BytesType {
		return nil
	}
	length, m := protowire.ConsumeVarint(c.rest[n:])
	if m < 0 {
		return nil
	}
	rest := c.rest[n+m:]
	return rest[:min(length, uint64(len(rest)))]
}

// message returns the value of the field, which is a message or a text. It shares memory
// with the input.
func (c *cursor) message() []byte {
	if !c.is(protowire.BytesType) {
		return nil
	}
	return c.bytes
}

// text returns a copy of the field's value.
func (c *cursor) text() string { return string(c.message()) }

// integer returns the value of the field.
func (c *cursor) integer() int64 {
	if !c.is(protowire.VarintType) {
		return 0
	}
	return int64(c.varint) //nolint:gosec // protobuf encodes negative numbers as large ones
}

func (c *cursor) is(kind protowire.Type) bool {
	if c.kind != kind {
		c.check(fmt.Errorf("field %d has wire type %d, not %d", c.number, c.kind, kind))
	}
	return c.kind == kind
}

// check stops the cursor if err is not nil.
func (c *cursor) check(err error) {
	if c.err == nil {
		c.err = err
	}
}

// count returns the number of fields with a number in a message, up to the first error.
func count(message []byte, number protowire.Number) int {
	found := 0
	for c := (cursor{rest: message}); c.next(); {
		if c.number == number {
			found++
		}
	}
	return found
}

// appendOne appends an element to a slice and returns it. If the slice is nil, it is
// allocated with the capacity for all fields of message that have this number.
func appendOne[E any](to *[]E, message []byte, number protowire.Number) *E {
	if *to == nil {
		*to = make([]E, 0, count(message, number))
	}
	var none E
	*to = append(*to, none)
	return &(*to)[len(*to)-1]
}
