// SPDX-License-Identifier: Apache-2.0

package webhook

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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster/freeport"
)

// target is a server under attack.
type target struct {
	*testing.T
	address string
	handler *Handler
}

func newTarget(t *testing.T) *target {
	t.Helper()
	address, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	g := &target{T: t, address: address, handler: &Handler{Gates: known(twoGates...), Log: logr.Discard()}}
	certificates := httptest.NewUnstartedServer(nil)
	certificates.StartTLS()
	t.Cleanup(certificates.Close)
	s := &Server{
		Address: g.address, Handler: g.handler, DrainTime: 50 * time.Millisecond,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificates.TLS.Certificates[0], nil },
	}
	ctx, cancel := context.WithCancel(t.Context())
	var failure error
	ended := make(chan struct{})
	go func() { defer close(ended); failure = s.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if <-ended; failure != nil {
			t.Errorf("serving: %v", failure)
		}
	})
	for g.honest() != nil { // it may not listen yet
		select {
		case <-ended:
			t.FailNow() // why, is reported above
		default:
			runtime.Gosched()
		}
	}
	return g
}

var insecure = &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}} //nolint:gosec // the test does not depend on the server's identity

// honest sends a request as an API server does.
func (g *target) honest() error {
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: insecure.Clone()}}
	defer c.CloseIdleConnections()
	response, err := c.Post("https://"+g.address, "application/json", strings.NewReader(review(`{"metadata":{}}`)))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && !bytes.Contains(text, []byte(`"allowed":true`)) {
		err = fmt.Errorf("status %d: %s", response.StatusCode, text)
	}
	return err
}

// connect opens a connection that is closed when the test ends.
func (g *target) connect() *tls.Conn {
	g.Helper()
	c, err := tls.Dial("tcp", g.address, insecure)
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { c.Close() })
	return c
}

// stall begins a request of the given size and never sends the last byte.
func (g *target) stall(size int) net.Conn {
	g.Helper()
	c := g.connect()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", size)
	_, _ = c.Write(make([]byte, min(size-1, 64<<10))) // more than the server buffers before the handler reads
	return c
}

// 64 clients begin requests of the maximum size and never end them. Their memory is
// limited, other requests are answered meanwhile, and the server ends the connections.
func TestManyLargeRequests(t *testing.T) {
	t.Parallel()
	g := newTarget(t)
	var ends sync.WaitGroup
	for range 64 {
		c := g.stall(maxRequest)
		ends.Go(func() { _, _ = io.Copy(io.Discard, c) })
	}
	for g.handler.limits.large.TryAcquire(maxRequest) { // until all that may be taken is taken
		g.handler.limits.large.Release(maxRequest)
		runtime.Gosched()
	}
	if err := g.honest(); err != nil {
		t.Errorf("request during large requests: %v", err)
	}
	if !g.handler.limits.bytes.TryAcquire(maxBytes - maxLarge - leastRequest) {
		t.Error("large requests use the capacity that is reserved for others")
	}
	g.handler.limits.bytes.Release(maxBytes - maxLarge - leastRequest)
	ends.Wait()
	if err := g.handler.limits.bytes.Acquire(t.Context(), maxBytes); err != nil {
		t.Errorf("ended requests still count: %v", err)
	}
}

// At the limit, a request waits. It is rejected after the timeout.
func TestBusy(t *testing.T) {
	t.Parallel()
	h := &Handler{Gates: known(twoGates...), Log: logr.Discard()}
	ask(t, h, review("{}"))
	if !h.limits.bytes.TryAcquire(maxBytes) {
		t.Fatal("an answered request still counts")
	}
	if answer := ask(t, h, review(`{"metadata":{}}`)); answer.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d: %s", answer.Code, answer.Body)
	}
	h.limits.bytes.Release(maxBytes)
	if answer := ask(t, h, review(`{"metadata":{}}`)); answer.Code != http.StatusOK {
		t.Errorf("afterwards: status %d: %s", answer.Code, answer.Body)
	}
}

// Decoding a large request needs at most four times its size in memory, not fifty times as
// much, whatever it contains. Only many short annotations need more.
func TestDecodingIsBounded(t *testing.T) {
	const size = 3 << 20 // decoding a request of the maximum size takes the race detector long
	fill := func(before, each, after string) string {
		return review(before + strings.TrimSuffix(strings.Repeat(each, size/len(each)), ",") + after)
	}
	entries := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%q:\"\",", fmt.Sprintf("%x", i))
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	h := &Handler{Gates: known(twoGates...), Log: logr.Discard()}
	bounded := func(name, body string, limit int) {
		t.Run(name, func(t *testing.T) {
			if len(body) > maxRequest {
				t.Fatalf("the request has %d bytes", len(body))
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			ask(t, h, body)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > uint64(limit) {
				t.Errorf("%d bytes took %d", len(body), took)
			}
		})
	}
	for name, body := range map[string]string{
		"empty taints": fill(`{"metadata":{},"spec":{"taints":[`, `{},`, `]}}`),
		"null taints":  fill(`{"metadata":{},"spec":{"taints":[`, `null,`, `]}}`),
		"labels":       review(`{"metadata":{"labels":{` + entries(250_000) + `}}}`),
		"annotations":  review(`{"metadata":{"annotations":{` + entries(250_000) + `}}}`),
		"conditions":   fill(`{"metadata":{},"status":{"conditions":[`, `{},`, `]}}`),
		"images":       fill(`{"metadata":{},"status":{"images":[`, `{"names":["x"]},`, `]}}`),
		"nested":       review(`{"metadata":{},"x":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`),
		"names":        fill(`{"metadata":{},"x":{`, `"a":1,`, `}}`),
		"escapes":      fill(`{"metadata":{"annotations":{"x":"`, `\u0041`, `"}}}`),
	} {
		bounded(name, body, 4*size)
	}
	many := entries(maxAnnotationsKept)
	bounded("as many annotations", review(`{"metadata":{"annotations":{`+many+`}}}`), 4*maxRequest)
	forged := strings.ReplaceAll(many, `,"`, `,"`+v1alpha1.RecordAnnotationPrefix)
	bounded("forged records", review(`{"metadata":{"annotations":{`+forged+`}}}`), 4*maxRequest)
}

// Requests whose headers never end are aborted. Meanwhile, other requests are answered.
func TestSlowHeaders(t *testing.T) {
	t.Parallel()
	g := newTarget(t)
	var wait sync.WaitGroup
	for range 100 {
		c := g.connect()
		fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
		wait.Go(func() { _, _ = io.Copy(io.Discard, c) }) // until it is ended
	}
	if err := g.honest(); err != nil {
		t.Errorf("request during slow headers: %v", err)
	}
	wait.Wait()
}

// HTTP/2 is rejected in the handshake: a client could begin and cancel any number of
// requests, or send headers that never end, over one connection.
func TestHTTP2IsRejected(t *testing.T) {
	t.Parallel()
	g := newTarget(t)
	config := insecure.Clone()
	config.NextProtos = []string{"h2"}
	c, err := tls.Dial("tcp", g.address, config)
	if err == nil {
		c.Close()
		t.Errorf("the server accepts %q", c.ConnectionState().NegotiatedProtocol)
	}
}

// Clients send data that is not TLS, not HTTP, or too long.
func TestGarbage(t *testing.T) {
	t.Parallel()
	g := newTarget(t)
	plain, err := net.Dial("tcp", g.address)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	fmt.Fprint(plain, "GET / HTTP/1.1\r\n\r\n")
	_, _ = io.Copy(io.Discard, plain)
	for name, text := range map[string]string{
		"no HTTP":       "\x00\x01\x02\r\n\r\n",
		"HTTP/2":        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"a long header": "POST / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n",
		"many headers":  "POST / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: y\r\n", 16<<10) + "\r\n",
		"no length":     "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
	} {
		c := g.connect()
		go func() { _, _ = io.WriteString(c, text) }()
		answer := make([]byte, len("HTTP/1.1 400"))
		if _, err := io.ReadFull(c, answer); err != nil || string(answer[:10]) != "HTTP/1.1 4" {
			t.Errorf("%s: answer %q (%v)", name, answer, err)
		}
	}
	if err := g.honest(); err != nil {
		t.Error(err)
	}
}
