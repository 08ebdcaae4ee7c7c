// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// proxy is a proxy between nodegate and the API server. It can change the state on
// which a patch of a Node is based just before the patch arrives.
type proxy struct {
	*httptest.Server
	// config is the configuration of a client that goes through the proxy.
	config *rest.Config

	mu sync.Mutex
	// hooks contains the pending hooks, by Node name.
	hooks map[string]hook
}

// hook is a function that is called before the first patch whose body contains a text.
type hook struct {
	body string
	do   func()
}

func newProxy(config *rest.Config) (*proxy, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("parsing the API server's address: %w", err)
	}
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: config.TLSClientConfig})
	if err != nil {
		return nil, fmt.Errorf("creating the proxy's transport: %w", err)
	}
	p := &proxy{hooks: make(map[string]hook)}
	reverse := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, ok := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/"); ok && r.Method == http.MethodPatch {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			p.runHook(name, string(body))
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		reverse.ServeHTTP(w, r)
	}))
	p.EnableHTTP2 = true
	p.StartTLS() // without TLS, clients send no token
	p.config = &rest.Config{Host: p.URL, BearerToken: config.BearerToken, QPS: -1}
	p.config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	return p, nil
}

// before calls do just before the first patch of a Node that contains body arrives.
func (p *proxy) before(node, body string, do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hooks[node] = hook{body, do}
}

func (p *proxy) runHook(node, body string) {
	p.mu.Lock()
	h, found := p.hooks[node]
	if found = found && strings.Contains(body, h.body); found {
		delete(p.hooks, node)
	}
	p.mu.Unlock()
	if found {
		h.do()
	}
}

// Close closes the proxy, including open watches.
func (p *proxy) Close() {
	p.CloseClientConnections()
	p.Server.Close()
}
