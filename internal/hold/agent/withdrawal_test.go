// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/transport"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/jsonclient"
)

// The announcement of a cancelled shutdown is withdrawn even if the API server is unavailable for
// longer than an announcement would be repeated, because the gates stay closed until then.
func TestWithdrawalIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outage = 10 * announceLimit
		began, requests := time.Now(), 0
		config := &transport.Config{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			requests++
			if time.Since(began) < outage {
				return nil, errors.New("unavailable")
			}
			return &http.Response{
				StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}},
				Body: io.NopCloser(strings.NewReader(`{"kind":"Node","apiVersion":"v1"}`)),
			}, nil
		})}
		client, err := jsonclient.New("http://test", config)
		if err != nil {
			t.Fatal(err)
		}
		a := &Agent{Client: client, Node: "mine", Boot: boot, Log: slog.New(slog.DiscardHandler), announced: true}
		a.prepare()
		a.announce(t.Context(), false)
		if took := time.Since(began); took < outage || a.announced {
			t.Errorf("gave up after %s, announced: %v", took, a.announced)
		}
		if most := 10 + int(outage/retries.Cap); requests > most {
			t.Errorf("%d requests in %s, want at most %d", requests, outage, most)
		}
	})
}

// An announcement that the API server does not accept ends when logind no longer waits. Otherwise,
// the agent could announce a shutdown after it was cancelled.
func TestAnnouncementEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := agentOf(t.Context(), t, func() string { return "{}" }, func() int { return http.StatusServiceUnavailable })
		began := time.Now()
		a.handle(t.Context(), true)
		if took := time.Since(began); took != announceLimit {
			t.Errorf("announcing ended after %s, want %s", took, announceLimit)
		}
	})
}

// An announcement and a withdrawal end when the API server reports that the Node does not exist, but
// not for another answer with the same code, such as that of a proxy.
func TestPatchEndsWithTheNode(t *testing.T) {
	const gone, proxy = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"nodes \"mine\" not found","reason":"NotFound","code":404}`, "404 page not found"
	for _, shutdown := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			answers := []string{proxy, proxy, gone}
			requests := 0
			config := &transport.Config{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				body := answers[min(requests, len(answers)-1)]
				requests++
				return &http.Response{StatusCode: http.StatusNotFound, Request: r, Body: io.NopCloser(strings.NewReader(body))}, nil
			})}
			client, err := jsonclient.New("http://test", config)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Hour)
			defer stop()
			a := &Agent{Client: client, Node: "mine", Boot: boot, Log: slog.New(slog.DiscardHandler), announced: !shutdown}
			a.prepare()
			a.announce(ctx, shutdown)
			if requests != len(answers) || ctx.Err() != nil {
				t.Errorf("shutdown %t: %d requests, want %d (%v)", shutdown, requests, len(answers), ctx.Err())
			}
		})
	}
}

// agentOf returns an agent that reads its Node from an API server that serves the status that list
// returns, and answers patches with the code that patch returns. Watches report nothing until
// they count as silent, and everything is listed again.
func agentOf(ctx context.Context, t *testing.T, list func() string, patch func() int) *Agent {
	t.Helper()
	config := &transport.Config{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		answer := &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}}
		body := `{"kind":"Node","apiVersion":"v1"}`
		switch {
		case r.Method == http.MethodPatch:
			answer.StatusCode = patch()
		case r.URL.Query().Has("watch"):
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		default:
			body = `{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"mine"},"status":` + list() + `}]}`
		}
		answer.Body = io.NopCloser(strings.NewReader(body))
		return answer, nil
	})}
	client, err := jsonclient.New("http://test", config)
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{Client: client, Node: "mine", Boot: boot, Log: slog.New(slog.DiscardHandler)}
	a.prepare()
	go a.nodes.Run(ctx)
	synctest.Wait()
	return a
}

// The withdrawal ends when another writer has taken over the condition, which the policy then
// rejects. The agent may observe that later than the API server.
func TestWithdrawalEndsWithAnotherWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		lists, patches := 0, 0
		a := agentOf(ctx, t, func() string {
			condition := announcement
			if lists++; lists > 1 {
				condition = strings.Replace(announcement, v1alpha1.ShutdownMessagePrefix, "another writer's ", 1)
			}
			return `{"conditions":[` + condition + `]}`
		}, func() int { patches++; return http.StatusUnprocessableEntity })
		a.announced = true
		a.announce(ctx, false)
		if ctx.Err() != nil || lists != 2 || patches == 0 || a.announced {
			t.Errorf("after %d lists and %d patches: %v, announced: %v", lists, patches, ctx.Err(), a.announced)
		}
		patches = 0
		for _, shutdown := range []bool{true, false} {
			a.announced = true // before it observed the other writer's
			a.announce(ctx, shutdown)
		}
		if patches > 0 {
			t.Errorf("%d patches of what another writer has announced", patches)
		}
	})
}

// The announcement of the former boot is withdrawn only when the Node shows the new one: until
// then, what it reports is that of the former boot, and would count if nothing announced the end
// of that boot.
func TestWithdrawalAwaitsTheBoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		const former = "former"
		lists, early, patches := 0, 0, 0
		a := agentOf(ctx, t, func() string {
			shown := boot
			if lists++; lists < 3 {
				shown = former
			}
			return `{"nodeInfo":{"bootID":"` + shown + `"},"conditions":[` + strings.Replace(announcement, boot, former, 1) + `]}`
		}, func() int {
			patches++
			if lists < 3 {
				early++
			}
			return http.StatusOK
		})
		a.announce(ctx, false)
		if ctx.Err() != nil || patches != 1 || early > 0 {
			t.Errorf("after %d lists: %d patches, %d of them before the Node showed the boot: %v", lists, patches, early, ctx.Err())
		}
	})
}
