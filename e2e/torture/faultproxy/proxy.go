// SPDX-License-Identifier: Apache-2.0

// Package faultproxy is an HTTPS server between a client and an API server that
// injects faults: it loses, delays, duplicates and reorders watch events, freezes
// watches, answers lists from old states, and answers requests with errors, late, in
// part, or not at all.
//
// The client authenticates with its own token, so that the API server's audit log
// names it. A Plan decides which faults are injected.
package faultproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing/iotest"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// Proxy is a proxy in front of an API server.
type Proxy struct {
	Counts

	server  *httptest.Server
	reverse *httputil.ReverseProxy
	config  *rest.Config
	plan    atomic.Pointer[Plan]
	past    past
	freezer freezer
	// streams are the watches that go through the proxy.
	mu      sync.Mutex
	streams map[*stream]bool
}

// New starts a proxy for a client that authenticates with a token.
func New(config *rest.Config) (*Proxy, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("parsing the API server's address: %w", err)
	}
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: config.TLSClientConfig, DisableCompression: true})
	if err != nil {
		return nil, fmt.Errorf("creating the proxy's transport: %w", err)
	}
	p := &Proxy{streams: make(map[*stream]bool)}
	p.plan.Store(&Plan{})
	p.reverse = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Accept-Encoding") // the proxy decodes frames and truncates responses
		},
		Transport:      transport,
		FlushInterval:  -1, // watches
		ErrorLog:       log.New(io.Discard, "", 0),
		ModifyResponse: p.answer,
		// An error means that there is no response: the connection is closed.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.EnableHTTP2 = true
	p.server.StartTLS() // without TLS, clients send no token
	p.config = &rest.Config{Host: p.server.URL, BearerToken: config.BearerToken, QPS: -1}
	p.config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	return p, nil
}

// Config returns the configuration of a client that goes through the proxy.
func (p *Proxy) Config() *rest.Config { return rest.CopyConfig(p.config) }

// Follow replaces the plan. Watches that already lag continue to lag.
func (p *Proxy) Follow(plan Plan) { p.plan.Store(&plan) }

// Heal ends all faults. It delivers frozen events, and ends lagging watches so that the
// client resumes them.
func (p *Proxy) Heal() {
	p.Follow(Plan{})
	p.freezer.thaw()
	for _, s := range p.current() {
		if s.lag > 0 {
			s.end(errBroken)
		}
	}
}

// Freeze stops the delivery of chosen watches, including new ones, until Heal or Thaw.
// Their connections stay open.
func (p *Proxy) Freeze(chosen func(Request) bool) {
	p.freezer.freeze(chosen)
	for _, s := range p.current() {
		if chosen(s.request) {
			p.add(Freeze)
		}
	}
}

// Thaw resumes frozen watches, which then deliver all pending events.
func (p *Proxy) Thaw() { p.freezer.thaw() }

// EndWatches ends all chosen watches.
func (p *Proxy) EndWatches(chosen func(Request) bool) {
	for _, s := range p.current() {
		if chosen(s.request) {
			s.end(errBroken)
		}
	}
}

// Close closes the proxy, including open watches.
func (p *Proxy) Close() {
	p.Heal()
	p.EndWatches(func(Request) bool { return true })
	p.server.CloseClientConnections()
	p.server.Close()
}

func (p *Proxy) current() []*stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*stream, 0, len(p.streams))
	for s := range p.streams {
		all = append(all, s)
	}
	return all
}

// errBroken is the error with which truncated responses end.
var errBroken = errors.New("injected by faultproxy")

// exchange is a request with the faults of its response.
type exchange struct {
	Request
	fault RequestFault
	lag   time.Duration
	// streaming is true if the watch begins with initial events.
	streaming bool
}

type exchangeKey struct{}

var requests = request.RequestInfoFactory{
	APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
}

// describe returns the verb, resource and name of a request.
func describe(r *http.Request) Request {
	info, err := requests.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest {
		return Request{Verb: r.Method, Resource: r.URL.Path}
	}
	resource := info.Resource
	if info.Subresource != "" {
		resource += "/" + info.Subresource
	}
	return Request{Verb: info.Verb, Resource: resource, Namespace: info.Namespace, Name: info.Name}
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	plan := p.plan.Load()
	e := &exchange{Request: describe(r), streaming: r.URL.Query().Get("sendInitialEvents") == "true"}
	if plan.Request != nil {
		e.fault = plan.Request(e.Request)
	}
	if plan.Lag != nil && (e.Verb == "watch" || e.Verb == "list") {
		e.lag = plan.Lag(e.Request)
	}
	if e.lag > 0 && e.fault.Fault == None && (e.Verb == "list" || e.streaming) {
		e.fault = RequestFault{Fault: Rewind, Wait: e.lag}
	}
	if !e.before(p, w, r) {
		return
	}
	ctx := r.Context()
	if e.IsWrite() {
		// A request that was sent is carried out and audited, even if the client exits. With
		// a context that never ends, ReverseProxy would watch the client's connection itself.
		var done context.CancelFunc
		ctx, done = context.WithCancel(context.WithoutCancel(ctx))
		defer done()
	}
	p.reverse.ServeHTTP(w, r.WithContext(context.WithValue(ctx, exchangeKey{}, e)))
}

// before injects faults before the API server receives the request. It reports whether
// the request is forwarded.
func (e *exchange) before(p *Proxy, w http.ResponseWriter, r *http.Request) bool {
	f := e.fault
	if f.After || f.Fault == Half {
		return true
	}
	switch f.Fault {
	case None:
		return true
	case Rewind:
		return e.rewind(p, w, r)
	case Late:
		p.add(f.Fault)
		return wait(r.Context(), f.Wait)
	}
	p.add(f.Fault)
	if s, ok := statuses[f.Fault]; ok {
		writeStatus(w, f.Fault, s)
		return false
	}
	f.perform(r.Context())
	panic(http.ErrAbortHandler)
}

// perform performs the action that precedes a reset.
func (f RequestFault) perform(ctx context.Context) {
	switch f.Fault {
	case Timeout:
		wait(ctx, f.Wait)
	case Call:
		f.Do()
	}
}

// answer injects faults into the API server's response.
func (p *Proxy) answer(response *http.Response) error {
	e, _ := response.Request.Context().Value(exchangeKey{}).(*exchange)
	if f := e.fault; f.Fault != None && (f.After || f.Fault == Half) {
		p.add(f.Fault)
		if s, ok := statuses[f.Fault]; ok {
			return replace(response, f.Fault, s)
		}
		if f.Fault != Half {
			f.perform(response.Request.Context())
			return errBroken
		}
		if e.Verb != "watch" {
			return cut(response)
		}
	}
	if e.Verb == "watch" && response.StatusCode == http.StatusOK {
		response.Body = p.stream(e, response)
	}
	return nil
}

// cut truncates the body of the response.
func cut(response *http.Response) error {
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	response.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body[:len(body)/2]), iotest.ErrReader(errBroken)))
	return nil
}

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func writeStatus(w http.ResponseWriter, f Fault, s any) {
	body, _ := json.Marshal(s) // a Status can be encoded
	w.Header().Set("Content-Type", "application/json")
	if f == TooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(codeOf(f))
	_, _ = w.Write(body) // the client may have disconnected
}

func codeOf(f Fault) int { return int(statuses[f].Code) }

// replace replaces the API server's response by a status.
func replace(response *http.Response, f Fault, s any) error {
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	response.StatusCode, response.Status = codeOf(f), strconv.Itoa(codeOf(f))
	response.Header = http.Header{"Content-Type": {"application/json"}, "Content-Length": {strconv.Itoa(len(body))}}
	if f == TooManyRequests {
		response.Header.Set("Retry-After", "1")
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	response.ContentLength = int64(len(body))
	return nil
}
