// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Options specifies what to decode in addition to what facts require.
type Options struct {
	// ManagedFields specifies whether to decode managed fields.
	ManagedFields bool
	// ContainerStates specifies whether to decode the states of the containers in pods.
	ContainerStates bool
	// Workloads specifies whether to decode of pods what is known about any pod on a node, and
	// not only about those of gates: who created it, what it tolerates, and when its containers
	// started. Labels and all annotations except that of mirror pods are then skipped.
	Workloads bool
	// Rejections specifies whether to decode of workloads also how a kubelet rejected them:
	// managed fields, the reason and the start time.
	Rejections bool
}

// NewSerializer returns a serializer for clients that decodes Nodes, Pods and their lists
// only in part if they are sent as protobuf. Metadata lacks generateName, selfLink,
// generation, finalizers and managed fields; owner references contain only UID and
// Controller. Nodes contain taints, conditions without reason, allocatable resources and
// nodeInfo. Pods contain the node's name, the phase, the type, status and last transition
// of conditions, and the IDs of containers other than init containers; with
// Options.Workloads also the kinds of owners, the host network, tolerations, and the states
// and restarts of all containers; with Options.Rejections also the reason, the start time and
// managed fields. Everything else is decoded by all.
//
// The object of a watch event shares memory with the stream until the next event is read.
// It must be decoded at once, as client-go does.
func NewSerializer(all runtime.NegotiatedSerializer, o Options) runtime.NegotiatedSerializer {
	d := newDecoder(o)
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

func newDecoder(o Options) *decoder {
	return &decoder{texts: newTexts(), options: o}
}

// NewDecoder returns the decoder of NewSerializer for protobuf.
func NewDecoder(all runtime.NegotiatedSerializer, o Options) runtime.Decoder {
	info, _ := runtime.SerializerInfoForMediaType(all.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	return &thinSerializer{Serializer: info.Serializer, decoder: newDecoder(o)}
}

// serializer is a NegotiatedSerializer with other media types.
type serializer struct {
	runtime.NegotiatedSerializer
	mediaTypes []runtime.SerializerInfo
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s *serializer) SupportedMediaTypes() []runtime.SerializerInfo { return s.mediaTypes }

// thinSerializer decodes Nodes and Pods in part, and everything else with another
// protobuf serializer.
type thinSerializer struct {
	runtime.Serializer
	*decoder
}

// Decode implements runtime.Decoder.
func (s *thinSerializer) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if e, ok := openEnvelope(data); ok && string(e.version) == "v1" {
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

// target returns the empty object to decode a kind into, and the function that decodes
// it. The function is nil if the kind is not decoded in part or if into is of another
// kind.
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

// prefix begins every object that is sent as protobuf.
var prefix = []byte("k8s\x00")

// envelope is a runtime.Unknown that shares memory with the input.
type envelope struct{ version, kind, raw []byte }

// openEnvelope returns false if data is not an object, or has a form that API servers do
// not use.
func openEnvelope(data []byte) (envelope, bool) {
	message, ok := bytes.CutPrefix(data, prefix)
	if !ok {
		return envelope{}, false
	}
	var e envelope
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 1:
			ok = ok && e.kind == nil // the general serializer merges repeated fields
			version, kind, err := pair(c.message())
			e.version, e.kind = version, kind
			c.check(err)
		case 2:
			e.raw = c.message()
		case 3, 4: // content encoding and content type, which are usually empty
			ok = ok && len(c.message()) == 0
		}
	}
	return e, ok && c.err == nil
}

// ListMeta returns the metadata of a list that is sent as protobuf. The beginning of the
// list is enough, because API servers send the metadata before the items. It returns false
// if data is not the beginning of such a list, or ends before the metadata does.
func ListMeta(data []byte) (m metav1.ListMeta, ok bool) {
	message, ok := bytes.CutPrefix(data, prefix)
	envelope := cursor{rest: message}
	if !ok || !envelope.next() || envelope.number != 1 {
		return m, false
	}
	if _, kind, err := pair(envelope.message()); err != nil || !bytes.HasSuffix(kind, []byte("List")) {
		return m, false
	}
	list := cursor{rest: envelope.begin(2)}
	if !list.next() || list.number != 1 {
		return m, false
	}
	list.check(m.Unmarshal(list.message()))
	return m, list.err == nil
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
