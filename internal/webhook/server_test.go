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

	"k8s.io/client-go/rest"

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

func newReplica(t *testing.T, drainTime time.Duration) *replica {
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
		Address: r.address, DrainTime: drainTime,
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

// TestDrain tests that no request fails while one replica after the other stops and
// clients send requests, some of them without a pause.
func TestDrain(t *testing.T) {
	var service atomic.Pointer[replica]
	service.Store(newReplica(t, 2*time.Second))
	newClient := func() *http.Client {
		return clientOf(t, endpoint(service.Load))
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
	calm := newClient()
	for range 3 {
		if err := ask(calm); err != nil {
			t.Fatal(err)
		}
		before := service.Load()
		service.Store(newReplica(t, 2*time.Second))
		before.stop()
		if before.served.Load() == 0 {
			t.Error("the stopped replica served no request")
		}
	}
	if err := ask(calm); err != nil {
		t.Errorf("request after the last stop: %v", err)
	}
}

// clientOf returns a client with the transport of the API server's client, which uses
// HTTP/1.1 and keeps connections for as long as the server permits.
func clientOf(t *testing.T, dial func(context.Context) (net.Conn, error)) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(&rest.Config{
		TLSClientConfig: rest.TLSClientConfig{Insecure: true, NextProtos: []string{"http/1.1"}}, // as in k8s.io/apiserver/pkg/util/webhook
		Dial:            func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// endpoint returns a function that connects to the current replica.
func endpoint(current func() *replica) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		for to := current(); ; { // it may not listen yet
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.address)
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
	}
}

// ask sends a request and checks the answer.
func ask(c *http.Client) error {
	response, err := c.Post("https://webhook.test/", "text/plain", bytes.NewReader([]byte("x")))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && (string(text) != "x" || response.ProtoMajor != 1) {
		err = fmt.Errorf("the answer of %s is %q", response.Proto, text)
	}
	return err
}

// slowConn is a connection over which everything that the server sends after late is set
// arrives only after the client has sent something.
type slowConn struct {
	net.Conn
	late *atomic.Bool
	// ends is called when such data has been received, or the client closes the connection.
	ends func()
	sent context.Context
	send context.CancelFunc
}

func (c *slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.late.Load() {
		c.ends()
		<-c.sent.Done()
	}
	return n, err
}

func (c *slowConn) Write(b []byte) (int, error) {
	if c.late.Load() {
		defer c.send()
	}
	return c.Conn.Write(b)
}

func (c *slowConn) Close() error {
	c.ends()
	c.send()
	return c.Conn.Close()
}

// TestNoRequestMeetsTheEndOfItsConnection tests that no request fails because the server
// closes the connection while the client sends it: clients do not repeat a POST.
func TestNoRequestMeetsTheEndOfItsConnection(t *testing.T) {
	r := newReplica(t, 50*time.Millisecond)
	var late atomic.Bool
	ended, ends := context.WithCancel(t.Context())
	c := clientOf(t, func(ctx context.Context) (net.Conn, error) {
		conn, err := endpoint(func() *replica { return r })(ctx)
		sent, send := context.WithCancel(context.Background())
		return &slowConn{Conn: conn, late: &late, ends: ends, sent: sent, send: send}, err
	})
	if err := ask(c); err != nil {
		t.Fatal(err)
	}
	late.Store(true)
	<-ended.Done()
	if err := ask(c); err != nil {
		t.Error(err)
	}
}

// TestConnectionsOutliveTheStop tests that a request is served if its connection was
// opened before the replica began to stop, or is opened afterwards.
func TestConnectionsOutliveTheStop(t *testing.T) {
	var wait sync.WaitGroup
	defer wait.Wait()
	for range 10 {
		r := newReplica(t, 0)
		dial := endpoint(func() *replica { return r })
		wait.Go(func() { // concurrently, because each takes as long as draining
			opened, err := dial(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			before := clientOf(t, func(context.Context) (net.Conn, error) { return opened, nil })
			r.cancel()
			runtime.Gosched()
			for _, c := range []*http.Client{before, clientOf(t, dial)} {
				if err := ask(c); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
