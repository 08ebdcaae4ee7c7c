// SPDX-License-Identifier: Apache-2.0

// Package fakeapi simulates a fleet that is too large for a test machine. It is a proxy
// between a client and a real API server. It answers watches of Nodes, and of the pods of
// one namespace, from templates, like an API server: with initial events (WatchList), in
// protobuf, over HTTP/2 and TLS. It forwards all other requests, so the real API server
// handles authorization, leader election, custom resources and dry runs.
//
// Objects are created when they are sent, and not stored. Only those that are changed are
// stored: by the caller, or by a client's JSON patch of a Node.
package fakeapi

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// A Server is a running proxy.
type Server struct {
	Counts

	fleet   *Fleet
	changes *changes
	// patching is held while a Node is patched. It guards patches.
	patching sync.Mutex
	patches  []Patch
	// heartbeats is Fleet.Heartbeats, which SetHeartbeats changes.
	heartbeats atomic.Int64

	upstream *httputil.ReverseProxy
	server   *httptest.Server
	stop     context.CancelFunc
}

// Counts counts the requests so far.
type Counts struct {
	// WatchLists is the number of watches that requested initial events.
	WatchLists atomic.Int64
	// Initial is the number of objects that were sent as initial events, and
	// InitialBytes their size in protobuf.
	Initial, InitialBytes atomic.Int64
	// Writes is the number of requests to change a Node of the fleet. They are rejected if
	// the fleet has no Index.
	Writes atomic.Int64
}

// Start starts a proxy on the loopback interface. It forwards requests to the API server
// of the configuration, with the client's token; client certificates are not forwarded.
func Start(fleet Fleet, real *rest.Config) (*Server, error) {
	target, err := url.Parse(real.Host)
	if err != nil {
		return nil, fmt.Errorf("parsing the address of the API server: %w", err)
	}
	trust, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: real.CAData}})
	if err != nil {
		return nil, fmt.Errorf("parsing the certificate of the API server: %w", err)
	}
	quiet := log.New(io.Discard, "", 0) // clients disconnect at any time
	s := &Server{fleet: &fleet, changes: newChanges(), upstream: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true},
		FlushInterval: -1,
		ErrorLog:      quiet,
	}}
	s.SetHeartbeats(fleet.Heartbeats)
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.server = httptest.NewUnstartedServer(s.routes())
	s.server.EnableHTTP2 = true
	s.server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	s.server.Config.ErrorLog = quiet
	s.server.StartTLS()
	return s, nil
}

// SetHeartbeats sets the number of Nodes that report each second from now on.
func (s *Server) SetHeartbeats(perSecond int) { s.heartbeats.Store(int64(perSecond)) }

// Config returns a copy of the client configuration that connects to the proxy.
func (s *Server) Config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Host = s.server.URL
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	return config
}

// Stop ends all requests and stops the proxy.
func (s *Server) Stop() {
	s.stop()
	s.server.CloseClientConnections()
	s.server.Close()
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/nodes", func(w http.ResponseWriter, r *http.Request) {
		s.collection(w, r, s.nodes())
	})
	mux.HandleFunc("GET /api/v1/namespaces/"+s.fleet.Namespace+"/pods", func(w http.ResponseWriter, r *http.Request) {
		selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
		if err != nil {
			reject(w, apierrors.NewBadRequest(err.Error()))
			return
		}
		s.collection(w, r, s.pods(selector))
	})
	if s.fleet.Index != nil {
		mux.HandleFunc("GET /api/v1/nodes/{name}", s.oneNode)
		mux.HandleFunc("PATCH /api/v1/nodes/{name}", s.oneNode)
	}
	mux.HandleFunc("/api/v1/nodes/{name}", s.rejectNode)
	mux.HandleFunc("/api/v1/nodes/{name}/{subresource}", s.rejectNode)
	mux.Handle("/", s.upstream)
	return mux
}

// rejectNode rejects a request about a single Node.
func (s *Server) rejectNode(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		s.Writes.Add(1)
	}
	reject(w, apierrors.NewForbidden(nodeResource, r.PathValue("name"), errors.New("a simulated fleet can only be watched")))
}

// collection answers a watch, and rejects everything else.
func (s *Server) collection(w http.ResponseWriter, r *http.Request, c collection) {
	if r.URL.Query().Get("watch") == "" || !strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		reject(w, apierrors.NewBadRequest("only watches in protobuf are implemented"))
		return
	}
	s.watch(w, r, c)
}

// reject responds with an error in the API server's format.
func reject(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(&status) // the client may have disconnected
}
