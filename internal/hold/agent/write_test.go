// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/transport"

	"github.com/nodegate/nodegate/internal/hold"
	"github.com/nodegate/nodegate/internal/kube/jsonclient"
)

// A state that cannot be written is written later, and the agent continues to follow shutdowns: it
// could not withdraw the announcement of one that is cancelled, so that the gates would stay closed.
func TestFailedWritesAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		lines, log := make(logLines, 64), ""
		a := writing(t, lines)
		var following atomic.Bool
		a.follow = func(ctx context.Context, _, _ string, _ func(context.Context, bool)) error {
			following.Store(true)
			<-ctx.Done()
			following.Store(false)
			return nil
		}
		expect := func(what string, after time.Duration, errors, recoveries int) {
			t.Helper()
			<-time.After(after)
			synctest.Wait()
			for len(lines) > 0 {
				log += <-lines
			}
			if !following.Load() {
				t.Fatalf("%s: the agent does not follow logind", what)
			}
			if got, again := strings.Count(log, "cannot be written"), strings.Count(log, "written again"); got != errors || again != recoveries {
				t.Errorf("%s: %d errors and %d recoveries are logged, want %d and %d:\n%s", what, got, again, errors, recoveries, log)
			}
			state, err := a.Store.Read()
			if errors == recoveries && (err != nil || len(state.Gates) != 1 || a.Uptime()-state.Uptime > hold.Interval) {
				t.Errorf("%s, after %s: the state is %+v, %v", what, a.Uptime(), state, err)
			}
		}
		obstruct(t, a.Store)
		var running sync.WaitGroup
		running.Go(func() {
			if err := a.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		expect("the disk is full", time.Hour, 1, 0)
		remove(t, a.Store)
		expect("the disk has space", retryAfter, 1, 1)
		expect("an hour later", time.Hour, 1, 1)
		obstruct(t, a.Store)
		expect("the disk is full again", time.Hour, 2, 1)
		remove(t, a.Store)
		expect("the disk has space again", retryAfter, 2, 2)
		if got := strings.Count(log, "gate changed"); got != 1 {
			t.Errorf("a change is logged %d times, want once:\n%s", got, log)
		}
		stop()
		running.Wait()
	})
}

// What a write has left that a power cut interrupted is removed when the agent starts.
func TestInterruptedWritesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := writing(t, io.Discard)
		a.Bus = ""
		if err := os.WriteFile(filepath.Join(a.Store.Dir, "hold.json.1"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
		if files, err := os.ReadDir(a.Store.Dir); err != nil || len(files) != 1 || files[0].Name() != "hold.json" {
			t.Errorf("the directory has %v, %v", files, err)
		}
	})
}

// logLines receives the lines of a log.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// writing returns an agent that writes a state with one gate.
func writing(t *testing.T, log io.Writer) *Agent {
	t.Helper()
	began := time.Now()
	return &Agent{
		Client: clientOf(t, map[string]string{
			nodesPath: `{"metadata":{"name":"mine","annotations":{"` + recordAnnotationPrefix + `g":"{\"state\":\"Open\",\"boot\":\"` + boot + `\"}"}}}`,
			gatesPath: `{"metadata":{"name":"g"},"spec":{"bypassedPods":"Hold","taint":{"key":"g","effect":"NoSchedule"}}}`,
		}),
		Node: "mine", Boot: boot, Uptime: func() time.Duration { return time.Since(began) }, Store: hold.Store{Dir: t.TempDir()}, Bus: "bus",
		Log: slog.New(slog.NewTextHandler(log, nil)),
	}
}

// obstruct makes writes of the state fail until remove: a file does not replace a directory.
func obstruct(t *testing.T, store hold.Store) {
	t.Helper()
	remove(t, store)
	if err := os.MkdirAll(filepath.Join(store.Dir, "hold.json", "file"), 0o700); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, store hold.Store) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(store.Dir, "hold.json")); err != nil {
		t.Fatal(err)
	}
}

// An agent whose directory cannot exist does not start.
func TestDirectoryIsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := &Agent{Client: clientOf(t, nil), Node: "mine", Boot: boot, Store: hold.Store{Dir: file}, Log: slog.New(slog.DiscardHandler)}
	if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("the error is %v", err)
	}
}

// clientOf returns a client of an API server that has these objects, by the path of their resource.
// Watches report nothing.
func clientOf(t *testing.T, objects map[string]string) *jsonclient.Client {
	t.Helper()
	client, err := jsonclient.New("http://test", &transport.Config{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Has("watch") {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		}
		body := fmt.Sprintf(`{"metadata":{"resourceVersion":"1"},"items":[%s]}`, objects[r.URL.Path])
		return &http.Response{
			StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(strings.NewReader(body)),
		}, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	return client
}
