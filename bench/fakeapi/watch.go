// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	// beatInterval is the interval at which due heartbeats are sent.
	beatInterval = 50 * time.Millisecond
	// bookmarkInterval is that of an API server.
	bookmarkInterval = time.Minute
)

// protobuf is the serializer for all objects.
var protobuf = func() runtime.SerializerInfo {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	return info
}()

// watch answers a watch until it times out, the client disconnects, or the proxy stops.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, c collection) {
	query := r.URL.Query()
	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	if seconds <= 0 {
		seconds = int((10 * time.Minute).Seconds())
	}
	ctx := r.Context()
	out := newStream(w)
	var err error
	if initial, _ := strconv.ParseBool(query.Get("sendInitialEvents")); initial {
		err = s.sendInitial(out, c)
	} else {
		at, _ := strconv.Atoi(query.Get("resourceVersion"))
		c.position = max(0, at-firstChange+1)
		err = out.flush() // sends the header
	}
	if err == nil {
		// The time of the initial events does not count: on a busy machine they may take longer.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
		defer cancel()
		err = s.follow(ctx, out, c)
	}
	if err != nil && ctx.Err() == nil {
		status := apierrors.NewInternalError(err).Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		_ = errors.Join(out.send(watch.Error, &status), out.flush()) // the client may have disconnected
	}
}

// sendInitial sends all objects and the bookmark that ends the initial events.
func (s *Server) sendInitial(out *stream, c collection) error {
	s.WatchLists.Add(1)
	for i := range c.count {
		o := c.object(i)
		if o == nil {
			continue
		}
		if err := out.send(watch.Added, o); err != nil {
			return err
		}
		s.Initial.Add(1)
	}
	s.InitialBytes.Add(out.bytes)
	end := metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	if err := out.send(watch.Bookmark, c.bookmark(end, c.position)); err != nil {
		return err
	}
	return out.flush()
}

// follow sends changes, and heartbeats of one Node after the other at the collection's rate
// per second, and bookmarks.
func (s *Server) follow(ctx context.Context, out *stream, c collection) error {
	var tick <-chan time.Time
	if c.heartbeats != nil && s.fleet.Nodes > 0 {
		ticker := time.NewTicker(beatInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	bookmarks := time.NewTicker(bookmarkInterval)
	defer bookmarks.Stop()
	last, due, sent := time.Now(), 0.0, 0
	for {
		changed, more := s.changes.since(c.position)
		c.position += len(changed)
		for _, one := range changed {
			if !c.includes(one.daemon) {
				continue
			}
			if err := out.send(one.kind, one.object); err != nil {
				return err
			}
		}
		if err := out.flush(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-more:
		case <-bookmarks.C:
			if err := out.send(watch.Bookmark, c.bookmark(metav1.ObjectMeta{}, c.position)); err != nil {
				return err
			}
		case now := <-tick:
			due += now.Sub(last).Seconds() * float64(c.heartbeats.Load())
			for last = now; sent < int(due); sent++ {
				if err := out.send(watch.Modified, s.heartbeat(sent%s.fleet.Nodes, sent, now)); err != nil {
					return err
				}
			}
		}
	}
}

// A stream is the response to a watch.
type stream struct {
	events   streaming.Encoder
	buffered *bufio.Writer
	response *http.ResponseController
	object   bytes.Buffer
	bytes    int64 // size of all objects that were sent
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
		return fmt.Errorf("encoding: %w", err)
	}
	s.bytes += int64(s.object.Len())
	return s.events.Encode(&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: s.object.Bytes()}})
}

func (s *stream) flush() error {
	if err := s.buffered.Flush(); err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	return s.response.Flush()
}
