// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Names of roles and role bindings may contain control characters, which must not control a
// terminal.
func TestReportIsEscaped(t *testing.T) {
	var out strings.Builder
	u := &uninstaller{Options: Options{Out: &out}}
	u.report("namespace/%s kept, because it contains %s\nwaiting", "here", "role/\x1b[2J")
	if got, want := out.String(), "namespace/here kept, because it contains role/\\x1b[2J\nwaiting\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A rate limit that the caller's configuration sets applies.
func TestRateLimitIsKept(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler()) // without a node, and without nodegate
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	config := &rest.Config{Host: server.URL, QPS: 0.001, Burst: 1}
	err := Run(ctx, config, Options{Namespace: "here", ServiceAccount: "me", Out: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "rate limiter") {
		t.Errorf("error %v, want that of the rate limiter", err)
	}
}
