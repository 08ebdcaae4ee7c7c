// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nodegate/nodegate/bench/scene"
)

// The field numbers of what the observer looks at, from generated.proto in
// k8s.io/apimachinery and k8s.io/api. Everything else is skipped unread: to decode
// whole nodes would take the processor time that the others are measured by.
const (
	eventType, eventObject        = 1, 2
	rawExtension                  = 1
	unknownRaw                    = 2
	objectMetadata                = 1
	objectSpec                    = 2
	objectStatus                  = 3
	metadataName                  = 1
	metadataVersion               = 6
	nodeTaints                    = 5
	taintKey, taintEffect         = 1, 3
	podNodeName                   = 10
	podConditions                 = 2
	conditionType, conditionState = 1, 2
)

// magic begins every object in protobuf.
var magic = []byte("k8s\x00")

// maxFrame bounds what is believed about a frame's length.
const maxFrame = 16 << 20

// frames reads a watch stream: each event follows its length in four bytes.
type frames struct {
	in     io.Reader
	buffer []byte
}

// next returns the next event, valid until the one after.
func (f *frames) next() ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(f.in, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxFrame {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	if int(n) > cap(f.buffer) {
		f.buffer = make([]byte, n)
	}
	f.buffer = f.buffer[:n]
	_, err := io.ReadFull(f.in, f.buffer)
	return f.buffer, err
}

// An event is what an observer notices of one: kind is that of the watch, and the
// object is not decoded further.
type event struct {
	kind   []byte // ADDED, MODIFIED, DELETED, ERROR
	object []byte
}

func parseEvent(frame []byte) (event, error) {
	e := event{kind: field(frame, eventType)}
	raw := field(field(frame, eventObject), rawExtension)
	if !bytes.HasPrefix(raw, magic) {
		return e, errors.New("an event without an object in protobuf")
	}
	e.object = field(raw[len(magic):], unknownRaw)
	return e, nil
}

// name is that of a node or a pod.
func (e event) name() string { return string(field(field(e.object, objectMetadata), metadataName)) }

// version is the object's resource version, or 0 if that is none.
func (e event) version() uint64 {
	version, err := strconv.ParseUint(string(field(field(e.object, objectMetadata), metadataVersion)), 10, 64)
	if err != nil {
		return 0
	}
	return version
}

// tainted reports whether a node carries the gate's taint.
func (e event) tainted() bool {
	for taint := range fields(field(e.object, objectSpec), nodeTaints) {
		if string(field(taint, taintKey)) == scene.Taint.Key && string(field(taint, taintEffect)) == string(scene.Taint.Effect) {
			return true
		}
	}
	return false
}

// bound reports whether a pod is bound to a node.
func (e event) bound() bool { return len(field(field(e.object, objectSpec), podNodeName)) > 0 }

// ready reports whether a pod is ready.
func (e event) ready() bool {
	for condition := range fields(field(e.object, objectStatus), podConditions) {
		if string(field(condition, conditionType)) == "Ready" {
			return string(field(condition, conditionState)) == "True"
		}
	}
	return false
}

// field returns the first occurrence of a message's field, or nil.
func field(message []byte, number protowire.Number) []byte {
	for value := range fields(message, number) {
		return value
	}
	return nil
}

// fields yields a field's occurrences, which are strings, bytes or messages. What
// is broken ends the message.
func fields(message []byte, number protowire.Number) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(message) > 0 {
			found, kind, n := protowire.ConsumeTag(message)
			if n < 0 {
				return
			}
			message = message[n:]
			size := protowire.ConsumeFieldValue(found, kind, message)
			if size < 0 {
				return
			}
			if found == number && kind == protowire.BytesType {
				value, _ := protowire.ConsumeBytes(message)
				if !yield(value) {
					return
				}
			}
			message = message[size:]
		}
	}
}
