// SPDX-License-Identifier: Apache-2.0

// Package connectiontest tests what a client does when an API server disappears without closing
// its connections.
package connectiontest

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// Dial connects to a server, whatever the address.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// TimeToRecover returns how long requests fail after all connections to an HTTP/2 server have
// been lost, as if its machine had lost power. The server accepts new ones. connect returns a function
// that sends a request. Each request may take 100 ms. Time passes in a synctest bubble.
func TimeToRecover(t *testing.T, connect func(Dial) (request func(context.Context) error)) (failing time.Duration) {
	t.Helper()
	serve(t, func(t *testing.T, s *server) {
		request := connect(s.dial)
		send := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			return request(ctx)
		}
		if err := send(); err != nil {
			t.Fatal(err)
		}
		s.lose()
		for began := time.Now(); send() != nil; failing = time.Since(began) {
			if failing > time.Hour {
				t.Fatal("no request succeeds")
			}
		}
	})
	return failing
}

// AfterSilence returns the type of the next event of a watch whose connection delivers nothing for a
// time, and then everything that was sent in the meantime, as if the API server had been paused. The
// server sends a bookmark every second. start starts the watch.
func AfterSilence(t *testing.T, silence time.Duration, start func(context.Context, Dial) (watch.Interface, error)) (next watch.EventType) {
	t.Helper()
	serve(t, func(t *testing.T, s *server) {
		w, err := start(t.Context(), s.dial)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		if e := <-w.ResultChan(); e.Type != watch.Bookmark {
			t.Fatalf("the first event is %+v", e)
		}
		s.silence(silence)
		next = (<-w.ResultChan()).Type
		<-time.After(silence) // reads do not end before
	})
	return next
}

// serve runs a test with a server in a synctest bubble.
func serve(t *testing.T, test func(*testing.T, *server)) {
	t.Helper()
	other := httptest.NewTLSServer(nil) // has a certificate
	other.Close()
	synctest.Test(t, func(t *testing.T) {
		s := &server{accepted: make(chan net.Conn), closed: make(chan struct{})}
		defer s.start(other.TLS.Certificates[0])()
		test(t, s)
	})
}

// server is an HTTP/2 server in memory that answers every request with an empty object, and every watch
// with bookmarks. It is also its listener.
type server struct {
	accepted chan net.Conn
	closed   chan struct{}

	mu    sync.Mutex
	conns []*conn
}

func (s *server) start(certificate tls.Certificate) (stop func()) {
	h := &http.Server{
		Handler: http.HandlerFunc(answer),
		// Tickets would be sent while the client sends its first frames, and a pipe has no buffer.
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, SessionTicketsDisabled: true, MinVersion: tls.VersionTLS13},
		ReadHeaderTimeout: time.Minute,
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = h.ServeTLS(s, "", "") }) // fails when it is closed
	return func() {
		_ = h.Close() // the listener cannot fail
		serving.Wait()
	}
}

// answer answers a request. Writing fails if the client has gone.
func answer(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		_, _ = w.Write([]byte("{}"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	for r.Context().Err() == nil {
		_, _ = w.Write([]byte(`{"type": "BOOKMARK", "object": {"kind": "Node", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}}}`))
		_ = http.NewResponseController(w).Flush() // fails if the client has gone
		select {
		case <-r.Context().Done():
		case <-time.After(time.Second):
		}
	}
}

func (s *server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, accepted := net.Pipe()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case s.accepted <- accepted:
	}
	c := &conn{Conn: client}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
	return c, nil
}

// lose makes all present connections lose what is sent, in both directions, without an error.
func (s *server) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.lost.Store(true)
	}
}

// silence makes all present connections deliver nothing for a time.
func (s *server) silence(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	until := time.Now().Add(d)
	for _, c := range s.conns {
		c.silentUntil.Store(&until)
	}
}

// Accept implements net.Listener.
func (s *server) Accept() (net.Conn, error) {
	select {
	case <-s.closed:
		return nil, errors.New("closed")
	case c := <-s.accepted:
		return c, nil
	}
}

// Close implements net.Listener.
func (s *server) Close() error {
	close(s.closed)
	return nil
}

// Addr implements net.Listener.
func (*server) Addr() net.Addr { return &net.TCPAddr{} }

// conn is the client's end of a connection.
type conn struct {
	net.Conn
	lost        atomic.Bool
	silentUntil atomic.Pointer[time.Time]
}

func (c *conn) Write(p []byte) (int, error) {
	if c.lost.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *conn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if until := c.silentUntil.Load(); until != nil {
			<-time.After(time.Until(*until))
		}
		if err != nil || !c.lost.Load() {
			return n, err
		}
	}
}
