// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nodegate/nodegate/internal/webhook"
	"github.com/nodegate/nodegate/testcluster/freeport"
)

// replica is a running server.
type replica struct {
	address string
	served  atomic.Int64
	cancel  context.CancelFunc
	ended   <-chan struct{}
	stop    func()
}

func newReplica(t *testing.T, idleTimeout time.Duration) *replica {
	t.Helper()
	address, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	r := &replica{address: address, ended: ended}
	certificates := httptest.NewUnstartedServer(nil)
	certificates.StartTLS()
	t.Cleanup(certificates.Close)
	s := &webhook.Server{
		Address: r.address, IdleTimeout: idleTimeout,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificates.TLS.Certificates[0], nil },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			r.served.Add(1)
			_, _ = io.Copy(w, request.Body)
		}),
	}
	ctx, cancel := context.WithCancel(t.Context())
	var failure error
	go func() { defer close(ended); failure = s.Start(ctx) }()
	r.cancel = cancel
	r.stop = sync.OnceFunc(func() {
		cancel()
		if <-ended; failure != nil {
			t.Errorf("serving: %v", failure)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// TestDrain tests that no request fails while one replica after the other stops and has
// active and idle connections. The client behaves like the API server's: it keeps
// connections, uses HTTP/2, and connects to a current endpoint of the Service.
func TestDrain(t *testing.T) {
	var service atomic.Pointer[replica]
	service.Store(newReplica(t, 50*time.Millisecond))
	newClient := func() *http.Client {
		return clientOf(service.Load)
	}
	done := make(chan struct{})
	var wait sync.WaitGroup
	defer func() { close(done); wait.Wait() }()
	for i := range 4 {
		wait.Go(func() {
			busy := newClient()
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				if err := ask(busy); err != nil {
					t.Errorf("request %d of client %d: %v", n, i, err)
					return
				}
			}
		})
	}
	idle := newClient()
	for range 3 {
		if err := ask(idle); err != nil {
			t.Fatal(err)
		}
		before := service.Load()
		service.Store(newReplica(t, 50*time.Millisecond))
		before.stop()
		if before.served.Load() == 0 {
			t.Error("the stopped replica served no request")
		}
	}
	if err := ask(idle); err != nil {
		t.Errorf("request on an idle connection: %v", err)
	}
}

// clientOf returns a client that connects to the current replica.
func clientOf(current func() *replica) *http.Client {
	return &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the test does not depend on the server's identity
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			for to := current(); ; { // it may not listen yet
				conn, err := (&net.Dialer{}).DialContext(ctx, network, to.address)
				if err == nil {
					return conn, nil
				}
				select {
				case <-to.ended:
					next := current()
					if next == to {
						return nil, err
					}
					to = next
				default:
				}
			}
		},
	}}
}

// ask sends a request and checks the answer.
func ask(c *http.Client) error {
	response, err := c.Post("https://webhook.test/", "text/plain", bytes.NewReader([]byte("x")))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && (string(text) != "x" || response.ProtoMajor != 2) {
		err = fmt.Errorf("the answer of %s is %q", response.Proto, text)
	}
	return err
}

// TestConnectionsOutliveTheStop tests that a request on an idle connection is served at
// the moment at which the replica begins to stop.
func TestConnectionsOutliveTheStop(t *testing.T) {
	var wait sync.WaitGroup
	defer wait.Wait()
	for range 10 {
		r := newReplica(t, 0)
		var connected atomic.Bool
		c := clientOf(func() *replica {
			if connected.Swap(true) {
				t.Error("the connection was closed")
			}
			return r
		})
		wait.Go(func() { // concurrently, because each takes as long as draining
			if err := ask(c); err != nil {
				t.Error(err)
			}
			r.cancel()
			runtime.Gosched()
			if err := ask(c); err != nil {
				t.Error(err)
			}
		})
	}
}
