// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
)

// beatsEvery is how often a share of a second's heartbeats is sent.
const beatsEvery = 50 * time.Millisecond

// watch answers a watch until its time is up, or the client or the stand-in goes.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, c collection, heartbeats int) {
	query := r.URL.Query()
	initial, _ := strconv.ParseBool(query.Get("sendInitialEvents"))
	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	if seconds <= 0 {
		seconds = int((10 * time.Minute).Seconds())
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(seconds)*time.Second)
	defer cancel()
	out := newStream(w)
	var err error
	if initial {
		s.count(func(c *Counts) { c.WatchLists++ })
		err = s.sendInitial(out, c)
	} else {
		s.count(func(c *Counts) { c.Watches++ })
		err = out.flush() // so that the client knows that it is being answered
	}
	if err == nil {
		err = s.beat(ctx, out, heartbeats)
	}
	if err != nil && ctx.Err() == nil {
		// The client ends the watch as soon as it cannot read on.
		_ = out.send(watch.Error, statusOf(err))
		_ = out.flush()
	}
}

func statusOf(err error) runtime.Object {
	status := apierrors.NewInternalError(err).Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return &status
}

// sendInitial sends all existing objects, followed by the bookmark that ends the
// initial state.
func (s *Server) sendInitial(out *stream, c collection) error {
	for i := range c.count {
		if err := out.send(watch.Added, c.make(i)); err != nil {
			return err
		}
	}
	s.count(func(total *Counts) {
		total.Initial += c.count
		total.InitialBytes += out.bytes
	})
	end := metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	var mark object = &corev1.Node{ObjectMeta: end}
	if c.kind == "Pod" {
		mark = &corev1.Pod{ObjectMeta: end}
	}
	if err := out.send(watch.Bookmark, version(mark, c.kind, bookmarkVersion)); err != nil {
		return err
	}
	return out.flush()
}

// beat makes Nodes report, one after the other, at the given rate per second.
func (s *Server) beat(ctx context.Context, out *stream, each int) error {
	if each <= 0 || s.fleet.Nodes == 0 {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(beatsEvery)
	defer ticker.Stop()
	begin := time.Now()
	for sent := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			due := int(now.Sub(begin).Seconds() * float64(each))
			for i := sent; i < due; i++ {
				node := s.fleet.heartbeat(i%s.fleet.Nodes, bookmarkVersion+1+i, now)
				if err := out.send(watch.Modified, node); err != nil {
					return err
				}
			}
			s.count(func(c *Counts) { c.Heartbeats += due - sent })
			sent = due
			if err := out.flush(); err != nil {
				return err
			}
		}
	}
}

// A stream is the answer to a watch: events, each with its length before it.
type stream struct {
	events   streaming.Encoder
	buffered *bufio.Writer
	response *http.ResponseController
	object   bytes.Buffer
	// bytes is the size of all objects that were sent.
	bytes int
}

func newStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	w.WriteHeader(http.StatusOK)
	buffered := bufio.NewWriterSize(w, 1<<16)
	framed := protobuf.StreamSerializer.NewFrameWriter(buffered)
	return &stream{
		events:   streaming.NewEncoder(framed, protobuf.StreamSerializer.Serializer),
		buffered: buffered, response: http.NewResponseController(w),
	}
}

func (s *stream) send(kind watch.EventType, o runtime.Object) error {
	s.object.Reset()
	if err := protobuf.Serializer.Encode(o, &s.object); err != nil {
		return fmt.Errorf("marshalling: %w", err)
	}
	s.bytes += s.object.Len()
	event := metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: s.object.Bytes()}}
	if err := s.events.Encode(&event); err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	return nil
}

func (s *stream) flush() error {
	if err := s.buffered.Flush(); err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	if err := s.response.Flush(); err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	return nil
}
