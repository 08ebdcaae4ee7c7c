// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// stream is the response to a watch, as frames. One goroutine reads frames and injects
// faults; another delivers them when they are due.
type stream struct {
	proxy    *Proxy
	request  Request
	lag      time.Duration
	frames   *frames
	upstream io.Closer
	reader   *io.PipeReader
	writer   *io.PipeWriter
	ctx      context.Context
	cancel   context.CancelCauseFunc

	// initial is true until all initial events have arrived.
	initial bool
	// cutAfter, if positive, is the number of frames after which the stream breaks.
	cutAfter int

	mu    sync.Mutex
	queue []due
	// held is a frame that the next frame overtakes.
	held []byte
	// late is the number of frames that timers have yet to queue; done is true if the API
	// server has ended the watch; broken is true if the connection is to break.
	late   int
	done   bool
	broken bool
	wake   chan struct{}
}

// due is a frame with its delivery time.
type due struct {
	frame []byte
	at    time.Time
}

func (p *Proxy) stream(e *exchange, response *http.Response) io.ReadCloser {
	reader, writer := io.Pipe()
	s := &stream{
		proxy: p, request: e.Request, lag: e.lag, upstream: response.Body, reader: reader, writer: writer,
		frames: newFrames(response.Body, response.Header.Get("Content-Type")), initial: e.streaming, wake: make(chan struct{}, 1),
	}
	if e.fault.Fault == Half {
		s.cutAfter = 1
	}
	if s.lag > 0 {
		p.add(Lagging)
	}
	p.mu.Lock()
	p.streams[s] = true
	p.mu.Unlock()
	s.ctx, s.cancel = context.WithCancelCause(response.Request.Context())
	context.AfterFunc(s.ctx, s.close)
	go s.receive()
	go s.deliver()
	return s
}

// Read implements io.Reader.
func (s *stream) Read(b []byte) (int, error) { return s.reader.Read(b) }

// Close implements io.Closer. It is called when the client disconnects.
func (s *stream) Close() error {
	s.end(io.ErrClosedPipe)
	return nil
}

// end ends the stream for both sides.
func (s *stream) end(err error) { s.cancel(err) }

// close is called once, when the stream has ended.
func (s *stream) close() {
	err := context.Cause(s.ctx)
	_ = s.writer.CloseWithError(err) // it never fails
	_ = s.upstream.Close()           // nothing more is read
	s.proxy.mu.Lock()
	delete(s.proxy.streams, s)
	s.proxy.mu.Unlock()
}

// receive reads frames until the API server or a fault ends the watch.
func (s *stream) receive() {
	for n := 1; ; n++ {
		frame, err := s.frames.next()
		if err != nil {
			s.finish()
			return
		}
		if !s.take(frame) {
			return
		}
		if n == s.cutAfter {
			s.breakSoon()
			return
		}
	}
}

// take injects a fault into a frame, or queues it. It reports whether to continue reading.
func (s *stream) take(frame []byte) bool {
	event, err := s.frames.decode(frame)
	if err != nil || event.Type == "ERROR" {
		s.put(frame)
		return true
	}
	event.Resource = s.request.Resource
	s.proxy.past.reached(event.ResourceVersion, time.Now())
	if event.Type == "BOOKMARK" {
		s.release() // otherwise, the client would resume after it
		s.put(frame)
		s.initial = s.initial && !event.endsInitial
		return true
	}
	plan := s.proxy.plan.Load()
	if s.initial || plan.Event == nil {
		s.put(frame)
		s.release()
		return true
	}
	f := plan.Event(event.Event)
	s.proxy.add(f.Fault)
	switch f.Fault {
	case EventLost:
		s.breakSoon()
		return false
	case EventError:
		s.put(s.frames.expired())
		s.finish()
		return false
	case EventDropped:
	case EventDoubled:
		s.put(frame)
		s.put(frame)
	case EventLate:
		s.putLater(frame, f.Wait)
		return true
	case EventSwapped:
		s.hold(frame)
		return true
	default:
		s.put(frame)
	}
	s.release()
	return true
}

// put queues a frame.
func (s *stream) put(frame []byte) {
	s.mu.Lock()
	s.queue = append(s.queue, due{frame, time.Now().Add(s.lag)})
	s.mu.Unlock()
	s.rouse()
}

func (s *stream) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// putLater queues a frame after a delay.
func (s *stream) putLater(frame []byte, d time.Duration) {
	s.mu.Lock()
	s.late++
	s.mu.Unlock()
	time.AfterFunc(d, func() {
		s.put(frame)
		s.mu.Lock()
		s.late--
		s.mu.Unlock()
		s.rouse()
	})
}

// swapWithin is how long a held frame waits for the next one.
const swapWithin = time.Second

// hold holds a frame until the next one is queued, or for swapWithin.
func (s *stream) hold(frame []byte) {
	s.release()
	s.mu.Lock()
	s.held = frame
	s.mu.Unlock()
	time.AfterFunc(swapWithin, func() {
		s.mu.Lock()
		same := s.held != nil && &s.held[0] == &frame[0]
		s.mu.Unlock()
		if same {
			s.release()
		}
	})
}

// release queues the held frame.
func (s *stream) release() {
	s.mu.Lock()
	frame := s.held
	s.held = nil
	s.mu.Unlock()
	if frame != nil {
		s.put(frame)
	}
}

// finish ends the stream like the API server, after all frames are delivered.
func (s *stream) finish() {
	s.release()
	s.mu.Lock()
	s.done = true
	s.mu.Unlock()
	s.rouse()
}

// loseFor is how long a connection that has lost an event stays open after the delivery of
// earlier ones.
const loseFor = 200 * time.Millisecond

// breakSoon breaks the connection a moment after all frames are delivered, including held and
// late ones: the client may have received newer frames, after which it resumes.
func (s *stream) breakSoon() {
	s.release()
	s.mu.Lock()
	s.broken = true
	s.mu.Unlock()
	s.rouse()
}

// deliver delivers frames that are due, in order.
func (s *stream) deliver() {
	for s.ctx.Err() == nil {
		next, ok := s.head()
		if !ok {
			return
		}
		if !wait(s.ctx, time.Until(next.at)) || !s.proxy.freezer.pass(s.ctx, s.request) {
			return
		}
		if _, err := s.writer.Write(next.frame); err != nil {
			s.end(err)
			return
		}
	}
}

// head waits for the next frame. It returns false when the stream has ended.
func (s *stream) head() (due, bool) {
	for {
		s.mu.Lock()
		if len(s.queue) > 0 {
			next := s.queue[0]
			s.queue = s.queue[1:]
			s.mu.Unlock()
			return next, true
		}
		over, broken := s.done && s.late == 0, s.broken && s.late == 0
		s.mu.Unlock()
		if broken {
			wait(s.ctx, loseFor)
			s.end(errBroken)
			return due{}, false
		}
		if over {
			s.end(io.EOF)
			return due{}, false
		}
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return due{}, false
		}
	}
}

// freezer stops the delivery of watches.
type freezer struct {
	mu     sync.Mutex
	chosen func(Request) bool
	// thawed is closed when watches are resumed; nil if nothing is frozen.
	thawed chan struct{}
}

func (f *freezer) freeze(chosen func(Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.chosen = chosen
	if f.thawed == nil {
		f.thawed = make(chan struct{})
	}
}

func (f *freezer) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thawed != nil {
		close(f.thawed)
	}
	f.chosen, f.thawed = nil, nil
}

// pass waits until the watch is not frozen. It returns false if the watch ends first.
func (f *freezer) pass(ctx context.Context, r Request) bool {
	for {
		f.mu.Lock()
		thawed := f.thawed
		frozen := thawed != nil && f.chosen(r)
		f.mu.Unlock()
		if !frozen {
			return true
		}
		select {
		case <-thawed:
		case <-ctx.Done():
			return false
		}
	}
}
