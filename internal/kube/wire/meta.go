// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// decoder decodes messages. Decoding into a non-empty object merges the two, as protobuf
// requires for a message that is sent twice. The result shares no memory with the input.
// It is safe for concurrent use.
type decoder struct {
	texts   *texts
	options Options
}

func (d *decoder) meta(message []byte, m *metav1.ObjectMeta) error {
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 10:
			m.DeletionGracePeriodSeconds = new(c.integer())
		case 11:
			grow(&m.Labels, message, 11)
			c.check(d.entry(c.message(), m.Labels, d.texts.of))
		case 12:
			grow(&m.Annotations, message, 12)
			c.check(d.entry(c.message(), m.Annotations, ownText))
		case 13:
			c.check(d.owner(c.message(), appendOne(&m.OwnerReferences, message, 13)))
		case 17:
			if d.options.ManagedFields {
				c.check(appendOne(&m.ManagedFields, message, 17).Unmarshal(c.message()))
			}
		default:
			d.identity(&c, m)
		}
	}
	return c.err
}

// identity decodes the current field if it identifies the object, or if it is the time of its
// creation or deletion.
func (d *decoder) identity(c *cursor, m *metav1.ObjectMeta) {
	switch c.number {
	case 1:
		m.Name = c.text()
	case 3:
		m.Namespace = d.texts.of(c.message())
	case 5:
		m.UID = types.UID(c.text())
	case 6:
		m.ResourceVersion = c.text()
	case 8:
		c.check(m.CreationTimestamp.Unmarshal(c.message()))
	case 9:
		c.check(timestamp(c.message(), &m.DeletionTimestamp))
	}
}

// list decodes a list, item by item.
func list[E any](message []byte, m *metav1.ListMeta, items *[]E, decode func([]byte, *E) error) error {
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 1:
			c.check(m.Unmarshal(c.message()))
		case 2:
			c.check(decode(c.message(), appendOne(items, message, 2)))
		}
	}
	return c.err
}

func (d *decoder) owner(message []byte, o *metav1.OwnerReference) error {
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 4:
			o.UID = types.UID(d.texts.of(c.message()))
		case 6:
			o.Controller = new(c.integer() != 0)
		}
	}
	return c.err
}

// timestamp decodes an optional time.
func timestamp(message []byte, at **metav1.Time) error {
	if *at == nil {
		*at = new(metav1.Time)
	}
	return (*at).Unmarshal(message)
}

// grow allocates a map, if it is nil, for all fields of message that have a number.
func grow[M ~map[K]V, K comparable, V any](m *M, message []byte, number protowire.Number) {
	if *m == nil {
		*m = make(M, count(message, number))
	}
}

func ownText(b []byte) string { return string(b) }

// entry decodes one entry of a map of strings.
func (d *decoder) entry(message []byte, into map[string]string, text func([]byte) string) error {
	key, value, err := pair(message)
	if err == nil {
		into[d.texts.of(key)] = text(value)
	}
	return err
}

// pair returns the first two fields of a message, which are the key and the value of a
// map's entry. They share memory with the input.
func pair(message []byte) (first, second []byte, err error) {
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 1:
			first = c.message()
		case 2:
			second = c.message()
		}
	}
	return first, second, c.err
}
