// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// wholeRun is for how long the API server is asked to keep a watch, in seconds.
	wholeRun = "14400"

	// streamBuffer holds some eighty nodes.
	streamBuffer = 1 << 20
)

// A stream is one watch. The API server ends watches that are too slow, which
// happens on a busy machine. The stream then resumes the watch and reports the
// interruption.
type stream struct {
	client *http.Client
	url    string
	look   func(event) aspects

	body    io.ReadCloser
	version uint64             // the youngest that was seen
	held    map[string]aspects // by object
}

// open starts a watch: with what there is, or where it was.
func (s *stream) open(ctx context.Context) error {
	query := url.Values{"watch": {"true"}, "timeoutSeconds": {wholeRun}}
	if s.version != 0 {
		query.Set("resourceVersion", strconv.FormatUint(s.version, 10))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"?"+query.Encode(), nil)
	if err != nil {
		return fmt.Errorf("watching %s: %w", s.url, err)
	}
	request.Header.Set("Accept", runtime.ContentTypeProtobuf+";stream=watch")
	response, err := s.client.Do(request)
	if err != nil {
		return fmt.Errorf("watching %s: %w", s.url, err)
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return fmt.Errorf("watching %s: %s", s.url, response.Status)
	}
	s.body = response.Body
	return nil
}

// run follows the stream until ctx ends.
func (s *stream) run(ctx context.Context, w *writer) error {
	for {
		err := s.follow(w)
		s.body.Close()
		if ctx.Err() != nil || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("watching %s: %w", s.url, err)
		}
		if err := w.write([]Sighting{{cut, s.url, time.Now()}}, true); err != nil {
			return fmt.Errorf("writing what was seen: %w", err)
		}
		if err := s.open(ctx); err != nil {
			return err
		}
	}
}

// follow writes a sighting for each aspect that an object gets, until the watch
// ends. It flushes when no more input is available.
func (s *stream) follow(w *writer) error {
	in := bufio.NewReaderSize(s.body, streamBuffer)
	events := frames{in: in}
	for {
		frame, err := events.next()
		if err != nil {
			return err
		}
		now := time.Now()
		e, err := parseEvent(frame)
		if err != nil {
			return err
		}
		if string(e.kind) == "ERROR" {
			return fmt.Errorf("the API server ended it: %q", e.object)
		}
		s.version = max(s.version, e.version()) // what there is at first comes in no order
		if err := w.write(s.news(e, now), in.Buffered() == 0); err != nil {
			return fmt.Errorf("writing what was seen: %w", err)
		}
	}
}

// news returns what an event shows that was not so before.
func (s *stream) news(e event, now time.Time) []Sighting {
	name := e.name()
	if string(e.kind) == "DELETED" {
		delete(s.held, name)
		return []Sighting{{Gone, name, now}}
	}
	have := s.look(e)
	fresh := have &^ s.held[name]
	s.held[name] = have
	var news []Sighting
	for what := range Gone {
		if fresh&(1<<what) != 0 {
			news = append(news, Sighting{what, name, now})
		}
	}
	return news
}
