// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/transport"

	"github.com/nodegate/nodegate/internal/kube/jsonclient"
)

// An announced shutdown waits until all gates are closed, but no longer than 2 s: nodegate may be down,
// and logind waits for 5 s by default.
func TestShutdownWaitsForGates(t *testing.T) {
	const never, limit = time.Hour, 2 * time.Second
	for name, test := range map[string]struct {
		closes []time.Duration // when each of the node's gates closes; 0 means that it is closed
		want   time.Duration
	}{
		"no gates":                {nil, 0},
		"a closed gate":           {[]time.Duration{0}, 0},
		"a gate closes":           {[]time.Duration{701 * time.Millisecond}, 701 * time.Millisecond},
		"two gates close":         {[]time.Duration{1501 * time.Millisecond, 301 * time.Millisecond}, 1501 * time.Millisecond},
		"a gate closes late":      {[]time.Duration{1999 * time.Millisecond}, 1999 * time.Millisecond},
		"a gate closes too late":  {[]time.Duration{limit + time.Millisecond}, limit},
		"a gate never closes":     {[]time.Duration{never}, limit},
		"one of two never closes": {[]time.Duration{301 * time.Millisecond, never}, limit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, patches := observing(t, test.closes)
				began := time.Now()
				a.announce(t.Context(), true)
				took, most := time.Since(began), min(test.want+closeInterval, limit)
				if test.want == 0 {
					most = 0
				}
				if took < test.want || took > most {
					t.Errorf("the shutdown may continue after %s, want from %s to %s", took, test.want, most)
				}
				if want := shutdownMessagePrefix + boot; len(*patches) != 1 || !strings.Contains((*patches)[0], want) {
					t.Errorf("the patches are %q, want one with %q", *patches, want)
				}
			})
		})
	}
}

// A shutdown waits for no gate that shutdowns do not close. The agent does not know gates from files,
// and waits for them.
func TestShutdownWaitsOnlyForGatesThatClose(t *testing.T) {
	const (
		open = `{"state":"Open","boot":"boot-2"}`
		none = 0
	)
	for name, test := range map[string]struct {
		gate string
		want time.Duration
	}{
		"closes again":                {`"name":"g"},"spec":{"reclosePolicy":"OnReboot"}`, closeLimit},
		"by default":                  {`"name":"g"},"spec":{}`, closeLimit},
		"never closes again":          {`"name":"g"},"spec":{"reclosePolicy":"Never"}`, none},
		"paused":                      {`"name":"g"},"spec":{"mode":"Paused"}`, none},
		"unreadable":                  {`"name":"g"},"spec":{"reclosePolicy":"Never","holdSeconds":"x"}`, closeLimit},
		"another gate never does":     {`"name":"other"},"spec":{"reclosePolicy":"Never"}`, closeLimit},
		"the API server has no gates": {"", closeLimit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gates := ""
				if test.gate != "" {
					gates = `{"metadata":{` + test.gate + `}`
				}
				annotations, err := json.Marshal(map[string]string{recordAnnotationPrefix + "g": open})
				if err != nil {
					t.Fatal(err)
				}
				a := &Agent{Node: "mine", Boot: boot, Log: slog.New(slog.DiscardHandler), Client: clientOf(t, map[string]string{
					nodesPath: `{"metadata":{"name":"mine","annotations":` + string(annotations) + `}}`, gatesPath: gates,
				})}
				a.prepare()
				for _, run := range []func(context.Context){a.nodes.Run, a.gates.Run} {
					go run(t.Context())
				}
				synctest.Wait()
				began := time.Now()
				a.announce(t.Context(), true)
				if took := time.Since(began); took != test.want {
					t.Errorf("the shutdown may continue after %s, want %s", took, test.want)
				}
			})
		})
	}
}

// A shutdown that another writer has announced waits, too, and its condition stays as it is.
func TestShutdownOfAnotherWriterWaitsForGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const closes = 701 * time.Millisecond
		foreign := condition{Type: shutdownCondition, Status: conditionTrue, Message: "another writer's"}
		a, patches := observing(t, []time.Duration{closes}, foreign)
		began := time.Now()
		a.announce(t.Context(), true)
		if took := time.Since(began); took < closes || took > closes+closeInterval {
			t.Errorf("the shutdown may continue after %s, want %s", took, closes)
		}
		if len(*patches) > 0 {
			t.Errorf("the patches are %q, want none", *patches)
		}
	})
}

// observing returns an agent that observes its Node, which has these conditions and whose gates close
// after these times, and the patches that it sends. All of them succeed.
func observing(t *testing.T, closes []time.Duration, conditions ...condition) (a *Agent, patches *[]string) {
	t.Helper()
	began := time.Now()
	node := func() string { return nodeWithGates(closes, time.Since(began), conditions) }
	patches = new([]string)
	client, err := jsonclient.New("http://test", &transport.Config{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		body := io.NopCloser(strings.NewReader(`{"metadata":{"resourceVersion":"1"},"items":[` + node() + `]}`))
		switch {
		case r.Method == http.MethodPatch:
			patch, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			*patches = append(*patches, string(patch))
		case r.URL.Query().Has("watch"):
			body = watching(r.Context(), node, closes)
		}
		return &http.Response{StatusCode: http.StatusOK, Request: r, Body: body}, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	a = &Agent{Client: client, Node: "mine", Boot: boot, Log: slog.New(slog.DiscardHandler)}
	a.prepare()
	go a.nodes.Run(t.Context())
	synctest.Wait()
	return a, patches
}

// nodeWithGates returns a Node with these conditions, whose gates close after these times, as JSON, at
// a time.
func nodeWithGates(closes []time.Duration, now time.Duration, conditions []condition) string {
	annotations := make(map[string]string)
	for i, after := range closes {
		state := stateOpen
		if now >= after {
			state = stateClosed
		}
		annotations[fmt.Sprint(recordAnnotationPrefix, "gate-", i)] = `{"state":"` + state + `"}`
	}
	object, _ := json.Marshal(map[string]any{
		"metadata": map[string]any{"name": "mine", "resourceVersion": "1", "annotations": annotations},
		"status":   map[string]any{"conditions": conditions},
	})
	return string(object)
}

// watching returns the body of a watch that delivers the current object after each of these times.
func watching(ctx context.Context, object func() string, after []time.Duration) io.ReadCloser {
	body, events := io.Pipe()
	for _, d := range after {
		if d > 0 {
			changed := time.AfterFunc(d, func() { _, _ = fmt.Fprintf(events, `{"type":"MODIFIED","object":%s}`, object()) })
			context.AfterFunc(ctx, func() { changed.Stop() })
		}
	}
	context.AfterFunc(ctx, func() { _ = events.CloseWithError(context.Cause(ctx)) })
	return body
}
