// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// frames reads the frames of a watch: lines of JSON, or length-delimited protobuf.
type frames struct {
	from  *bufio.Reader
	proto bool
}

func newFrames(from io.Reader, contentType string) *frames {
	return &frames{from: bufio.NewReader(from), proto: strings.HasPrefix(contentType, runtime.ContentTypeProtobuf)}
}

// next returns the next complete frame, with its delimiter.
func (f *frames) next() ([]byte, error) {
	if !f.proto {
		return f.from.ReadBytes('\n')
	}
	var length [4]byte
	if _, err := io.ReadFull(f.from, length[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(length[:]))
	copy(frame, length[:])
	_, err := io.ReadFull(f.from, frame[4:])
	return frame, err
}

// decoded is an event, and whether it is the bookmark after which a streaming list
// is complete.
type decoded struct {
	Event
	endsInitial bool
}

// decode returns the parts of an event that the proxy uses.
func (f *frames) decode(frame []byte) (decoded, error) {
	var event metav1.WatchEvent
	var object metav1.PartialObjectMetadata
	var err error
	if f.proto {
		if err = event.Unmarshal(frame[4:]); err == nil {
			err = decodeProto(event.Object.Raw, &object)
		}
	} else if err = json.Unmarshal(frame, &event); err == nil {
		err = json.Unmarshal(event.Object.Raw, &object)
	}
	if err != nil {
		return decoded{}, fmt.Errorf("decoding a watch event: %w", err)
	}
	return decoded{
		Event: Event{
			Type: event.Type, Namespace: object.Namespace, Name: object.Name, ResourceVersion: object.ResourceVersion,
		},
		endsInitial: object.Annotations[metav1.InitialEventsAnnotationKey] == "true",
	}, nil
}

// protoPrefix is the prefix of every object in protobuf.
var protoPrefix = []byte{'k', '8', 's', 0}

// decodeProto reads an object's metadata, which is the first field of every kind.
func decodeProto(raw []byte, into *metav1.PartialObjectMetadata) error {
	raw, ok := bytes.CutPrefix(raw, protoPrefix)
	if !ok {
		return fmt.Errorf("it begins with %q", raw[:min(4, len(raw))])
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(raw); err != nil {
		return err
	}
	return into.Unmarshal(unknown.Raw)
}

// expired is an event with which an API server ends a watch that is too far behind.
func (f *frames) expired() []byte {
	s := statuses[Gone]
	raw := must(json.Marshal(&s))
	if !f.proto {
		return append(must(json.Marshal(metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Raw: raw}})), '\n')
	}
	raw = must(runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), &s))
	event := must((&metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Raw: raw}}).Marshal())
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
}

// must encodes an object and panics on an error, which cannot occur.
func must(b []byte, err error) []byte {
	if err != nil {
		panic(fmt.Sprintf("faultproxy: encoding a Status: %v", err))
	}
	return b
}
