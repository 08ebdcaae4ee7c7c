// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Options say what is wanted of objects beyond what facts always need.
type Options struct {
	// ManagedFields tells whether theirs are wanted.
	ManagedFields bool
}

// NewSerializer returns a client's serializer that decodes Nodes, Pods and lists
// of these that come as protobuf thin: of their metadata without generateName,
// selfLink, generation, finalizers and managed fields, and of owners only UID and
// Controller; of Nodes their taints, conditions without reason, allocatable
// resources and nodeInfo; of Pods the node's name, phase, the conditions' type,
// status and transition, and container IDs of those that are no init containers.
// All else is left to the other serializer.
//
// A watch event's bytes are valid only until the next is read, so that whoever
// reads one decodes its object at once, as client-go does.
func NewSerializer(all runtime.NegotiatedSerializer, o Options) runtime.NegotiatedSerializer {
	d := &decoder{texts: newTexts(), managedFields: o.ManagedFields}
	s := &serializer{NegotiatedSerializer: all}
	for _, info := range all.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeProtobuf {
			info.Serializer = &thinSerializer{Serializer: info.Serializer, decoder: d}
			if info.StreamSerializer != nil {
				stream := *info.StreamSerializer
				stream.Serializer = &eventSerializer{Serializer: stream.Serializer, texts: d.texts}
				info.StreamSerializer = &stream
			}
		}
		s.mediaTypes = append(s.mediaTypes, info)
	}
	return s
}

// serializer is another serializer, with other media types.
type serializer struct {
	runtime.NegotiatedSerializer
	mediaTypes []runtime.SerializerInfo
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s *serializer) SupportedMediaTypes() []runtime.SerializerInfo { return s.mediaTypes }

// thinSerializer decodes Nodes and Pods thin, and leaves all else to another
// serializer of protobuf.
type thinSerializer struct {
	runtime.Serializer
	*decoder
}

// Decode implements runtime.Decoder.
func (s *thinSerializer) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if e, ok := open(data); ok && string(e.version) == "v1" {
		if object, decode := s.target(string(e.kind), into); decode != nil {
			kind := corev1.SchemeGroupVersion.WithKind(string(e.kind))
			if err := decode(e.raw); err != nil {
				return nil, &kind, err
			}
			object.GetObjectKind().SetGroupVersionKind(kind)
			return object, &kind, nil
		}
	}
	return s.Serializer.Decode(data, defaults, into)
}

// target returns the empty object that a kind is to be decoded into, and what
// does it; nil for kinds that are not decoded thin, and for objects that are of
// another kind.
func (d *decoder) target(kind string, into runtime.Object) (runtime.Object, func([]byte) error) {
	switch kind {
	case "Node":
		return target(into, d.node)
	case "NodeList":
		return target(into, d.nodeList)
	case "Pod":
		return target(into, d.pod)
	case "PodList":
		return target(into, d.podList)
	}
	return nil, nil
}

func target[O any, P interface {
	*O
	runtime.Object
}](into runtime.Object, decode func([]byte, P) error) (runtime.Object, func([]byte) error) {
	object, ok := into.(P)
	switch {
	case into == nil:
		object = new(O)
	case !ok:
		return nil, nil
	default:
		*object = *new(O)
	}
	return object, func(raw []byte) error { return decode(raw, object) }
}

// prefix is what objects begin with that come as protobuf.
var prefix = []byte("k8s\x00")

// envelope is a runtime.Unknown, in the memory of what was sent.
type envelope struct{ version, kind, raw []byte }

// open is false for what is no object, or is packed in another way.
func open(data []byte) (envelope, bool) {
	message, ok := bytes.CutPrefix(data, prefix)
	if !ok {
		return envelope{}, false
	}
	var e envelope
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 1:
			ok = ok && e.kind == nil // merging two is left to others
			version, kind, err := pair(c.message())
			e.version, e.kind = version, kind
			c.check(err)
		case 2:
			e.raw = c.message()
		case 3, 4: // its encoding and content type: none as a rule
			ok = ok && len(c.message()) == 0
		}
	}
	return e, ok && c.err == nil
}

// eventSerializer decodes watch events without copying their objects.
type eventSerializer struct {
	runtime.Serializer
	texts *texts
}

// Decode implements runtime.Decoder.
func (s *eventSerializer) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, ok := into.(*metav1.WatchEvent)
	if !ok || len(data) == 0 {
		return s.Serializer.Decode(data, defaults, into)
	}
	*event = metav1.WatchEvent{}
	c := cursor{rest: data}
	for c.next() {
		switch c.number {
		case 1:
			event.Type = s.texts.of(c.message())
		case 2:
			c.check(rawExtension(c.message(), &event.Object))
		}
	}
	kind := metav1.SchemeGroupVersion.WithKind("WatchEvent")
	return event, &kind, c.err
}

func rawExtension(message []byte, e *runtime.RawExtension) error {
	c := cursor{rest: message}
	for c.next() {
		if c.number == 1 {
			e.Raw = c.message()
		}
	}
	return c.err
}
