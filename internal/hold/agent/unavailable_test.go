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

	"k8s.io/client-go/transport"

	"github.com/nodegate/nodegate/internal/hold"
	"github.com/nodegate/nodegate/internal/kube/jsonclient"
)

// An agent delays shutdowns as soon as it runs, also while the API server is unavailable. When it has read
// the Node, it first withdraws what it has announced in a former boot, and then announces the shutdown.
func TestShutdownBeforeTheNodeIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outage = 3 * time.Second
		began := time.Now()
		var following, announced time.Duration
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		a, patches := unavailableUntil(t, began.Add(outage))
		a.follow = func(ctx context.Context, _, _ string, handle func(context.Context, bool)) error {
			following = time.Since(began)
			handle(ctx, false)
			handle(ctx, true)
			announced = time.Since(began)
			<-ctx.Done()
			return nil
		}
		if err := a.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if following != 0 || announced < outage || announced > outage+retryMost {
			t.Errorf("the agent followed logind after %s, and had announced the shutdown after %s", following, announced)
		}
		if len(*patches) != 2 || !strings.Contains((*patches)[0], `"delete"`) || !strings.Contains((*patches)[1], shutdownMessagePrefix+boot) {
			t.Errorf("the patches are %q, want a withdrawal and an announcement", *patches)
		}
	})
}

// A shutdown that cannot be announced, because the Node cannot be read, is not announced later: it may have
// been cancelled.
func TestUnreadNodeEndsTheAnnouncement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		a, patches := unavailableUntil(t, began.Add(time.Hour))
		a.prepare()
		a.handle(t.Context(), true)
		if took := time.Since(began); took != announceLimit || len(*patches) > 0 {
			t.Errorf("announcing ended after %s, want %s, and the patches are %q", took, announceLimit, *patches)
		}
	})
}

// retryMost is the longest time until the Node is read after the API server has become available.
const retryMost = 6 * time.Second

// unavailableUntil returns an agent whose API server is unavailable until a time, and what it patches. The
// Node still has the announcement of a former boot.
func unavailableUntil(t *testing.T, available time.Time) (a *Agent, patches *[]string) {
	t.Helper()
	patches = new([]string)
	condition := strings.Replace(announcement, boot, "boot-1", 1)
	items := map[string]string{nodesPath: `{"metadata":{"name":"mine"},"status":{"nodeInfo":{"bootID":"` + boot + `"},"conditions":[` + condition + `]}}`}
	client, err := jsonclient.New("http://test", &transport.Config{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		switch {
		case time.Now().Before(available):
			return nil, errors.New("unavailable")
		case r.Method == http.MethodPatch:
			patch, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			*patches = append(*patches, string(patch))
		}
		return listed(r, items)
	})})
	if err != nil {
		t.Fatal(err)
	}
	return &Agent{
		Client: client, Node: "mine", Boot: boot, Uptime: func() time.Duration { return time.Hour },
		Store: hold.Store{Dir: t.TempDir()}, Bus: "bus", Log: slog.New(slog.DiscardHandler),
	}, patches
}
