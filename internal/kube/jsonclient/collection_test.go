// SPDX-License-Identifier: Apache-2.0

package jsonclient

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/transport"
)

// thing is an object in these tests.
type thing struct {
	Metadata `json:"metadata"`
	Size     int `json:"size"`
}

// server answers requests one after the other. The last answer is repeated.
type server struct {
	mu       sync.Mutex
	answers  []answer
	requests []string // their queries
	times    []time.Time
}

// answer is a response. The body of a watch does not end before the request does, if open is
// true, and sends later after a delay.
type answer struct {
	code  int
	body  string
	open  bool
	after time.Duration
	later string
	err   error
}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests, s.times = append(s.requests, r.URL.RawQuery), append(s.times, time.Now())
	a := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	if a.err != nil {
		return nil, a.err
	}
	out, in := io.Pipe()
	go func() {
		fmt.Fprint(in, a.body)
		if a.after > 0 {
			select {
			case <-time.After(a.after):
				fmt.Fprint(in, a.later)
			case <-r.Context().Done():
			}
		}
		if a.open {
			<-r.Context().Done()
			in.CloseWithError(r.Context().Err())
		}
		in.Close()
	}()
	return &http.Response{StatusCode: cmp.Or(a.code, http.StatusOK), Body: out, Request: r, Header: http.Header{}}, nil
}

// sent returns the queries of the requests until now.
func (s *server) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

const (
	listQuery  = "fieldSelector=x%3Dy"
	watchQuery = "allowWatchBookmarks=true&fieldSelector=x%3Dy&resourceVersion=%s&watch=true"
)

func watchFrom(version string) string {
	return fmt.Sprintf(strings.ReplaceAll(watchQuery, "%3D", "%%3D"), version)
}

func object(name, version string, size int) string {
	return fmt.Sprintf(`{"kind":"Thing","metadata":{"name":%q,"resourceVersion":%q,"labels":{"a":"b"}},"size":%d}`, name, version, size)
}

func listOf(version string, items ...string) answer {
	return answer{body: fmt.Sprintf(`{"kind":"ThingList","apiVersion":"v1","metadata":{"resourceVersion":%q},"items":[%s]}`, version, strings.Join(items, ","))}
}

func events(all ...string) string { return strings.Join(all, "\n") + "\n" }

func eventOf(kind, object string) string { return fmt.Sprintf(`{"type":%q,"object":%s}`, kind, object) }

// collect runs a collection against a server for some time, and returns it.
func collect(t *testing.T, s *server, d time.Duration) (got string) {
	t.Helper()
	client, err := New("http://test", &transport.Config{Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	c := &Collection[thing, *thing]{Client: client, Path: "/things", FieldSelector: "x=y", Changed: func() {}, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	c.Run(ctx)
	var all []string
	for _, o := range c.All() {
		all = append(all, fmt.Sprintf("%s=%d", o.Name, o.Size))
	}
	slices.Sort(all)
	if !c.Synced() {
		all = append(all, "not synced")
	}
	return strings.Join(all, " ")
}

// What a collection has, and which requests it sends.
func TestCollection(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`
	open := func(body ...string) answer { return answer{body: events(body...), open: true} }
	first := listOf("5", object("a", "1", 1), object("b", "2", 2))
	second := listOf("9", object("a", "8", 8))
	gone := fmt.Sprintf(status, "Expired", 410)
	for name, test := range map[string]struct {
		answers  []answer
		want     string
		requests []string
	}{
		"events are applied": {
			[]answer{first, open(eventOf("MODIFIED", object("a", "6", 6)), eventOf("DELETED", object("b", "7", 2)), eventOf("ADDED", object("c", "8", 3)))},
			"a=6 c=3", []string{listQuery, watchFrom("5")},
		},
		"a watch that ends continues at the last event": {
			[]answer{first, {body: events(eventOf("MODIFIED", object("a", "6", 6)))}, open(eventOf("DELETED", object("b", "7", 2)))},
			"a=6", []string{listQuery, watchFrom("5"), watchFrom("6")},
		},
		"a watch that ends continues at the last bookmark": {
			[]answer{first, {body: events(eventOf("BOOKMARK", `{"metadata":{"resourceVersion":"8"},"spec":{}}`))}, open("")},
			"a=1 b=2", []string{listQuery, watchFrom("5"), watchFrom("8")},
		},
		"a watch that breaks in the middle of an event continues at the one before": {
			[]answer{first, {body: eventOf("DELETED", object("b", "6", 2)) + `{"type":"DELE`}, open("")},
			"a=1", []string{listQuery, watchFrom("5"), watchFrom("6")},
		},
		"a watch that is refused continues": {
			[]answer{first, {code: 429, body: "slow down"}, {code: 500, body: "?"}, {code: 403, body: fmt.Sprintf(status, "Forbidden", 403)}, open(eventOf("DELETED", object("b", "7", 2)))},
			"a=1", []string{listQuery, watchFrom("5"), watchFrom("5"), watchFrom("5"), watchFrom("5")},
		},
		"a connection that fails": {
			[]answer{{err: io.ErrUnexpectedEOF}, first, {err: io.ErrUnexpectedEOF}, open("")},
			"a=1 b=2", []string{listQuery, listQuery, watchFrom("5"), watchFrom("5")},
		},
		"a version that is too old": {
			[]answer{first, {code: 410, body: gone}, second, open("")},
			"a=8", []string{listQuery, watchFrom("5"), listQuery, watchFrom("9")},
		},
		"an event that says so": {
			[]answer{first, open(eventOf("ERROR", gone)), second, open("")},
			"a=8", []string{listQuery, watchFrom("5"), listQuery, watchFrom("9")},
		},
		"an event with another error": {
			[]answer{first, open(eventOf("ERROR", fmt.Sprintf(status, "InternalError", 500))), second, open("")},
			"a=8", []string{listQuery, watchFrom("5"), listQuery, watchFrom("9")},
		},
		"an object that cannot be decoded": {
			[]answer{first, open(eventOf("ADDED", `{"metadata":[]}`)), second, open("")},
			"a=8", []string{listQuery, watchFrom("5"), listQuery, watchFrom("9")},
		},
		"an unknown type of event": {
			[]answer{first, open(eventOf("RENAMED", object("a", "6", 6))), second, open("")},
			"a=8", []string{listQuery, watchFrom("5"), listQuery, watchFrom("9")},
		},
		"a list that ends early": {
			[]answer{{body: strings.TrimSuffix(first.body, "]}")}, {body: strings.TrimSuffix(first.body, "}")}, second, open("")},
			"a=8", []string{listQuery, listQuery, listQuery, watchFrom("9")},
		},
		"lists that are none": {
			[]answer{{body: `[]`}, {body: `{"items":7}`}, {body: `{"items":[]}`}, {body: ``}, second, open("")},
			"a=8", []string{listQuery, listQuery, listQuery, listQuery, listQuery, watchFrom("9")},
		},
		"an empty list": {
			[]answer{{body: `{"metadata":{"resourceVersion":"3"},"items":null}`}, open("")},
			"", []string{listQuery, watchFrom("3")},
		},
		"the list is forbidden": {
			[]answer{{code: 403, body: fmt.Sprintf(status, "Forbidden", 403)}, {code: 401, body: ""}, second, open("")},
			"a=8", []string{listQuery, listQuery, listQuery, watchFrom("9")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{answers: test.answers}
				if got := collect(t, s, time.Minute); got != test.want {
					t.Errorf("it has %q, want %q", got, test.want)
				}
				if got := s.sent(); !slices.Equal(got, test.requests) {
					t.Errorf("the requests were %q, want %q", got, test.requests)
				}
			})
		})
	}
}

// A watch or a list that delivers nothing for silentAfter is given up, and everything is listed
// again. Bookmarks show that a watch is not silent.
func TestSilence(t *testing.T) {
	bookmark := eventOf("BOOKMARK", `{"metadata":{"resourceVersion":"6"}}`)
	for name, test := range map[string]struct {
		answers  []answer
		until    time.Duration
		requests []string
	}{
		"not yet": {
			[]answer{listOf("5"), {open: true}}, silentAfter - time.Second,
			[]string{listQuery, watchFrom("5")},
		},
		"a silent watch": {
			[]answer{listOf("5"), {open: true}, listOf("7"), {open: true}}, silentAfter + retryMax,
			[]string{listQuery, watchFrom("5"), listQuery, watchFrom("7")},
		},
		"a bookmark in time": {
			[]answer{listOf("5"), {after: silentAfter - time.Second, later: bookmark, open: true}}, 2*silentAfter - 2*time.Second,
			[]string{listQuery, watchFrom("5")},
		},
		"silence after a bookmark": {
			[]answer{listOf("5"), {after: silentAfter - time.Second, later: bookmark, open: true}, listOf("7"), {open: true}}, 2*silentAfter + retryMax,
			[]string{listQuery, watchFrom("5"), listQuery, watchFrom("7")},
		},
		"silent watches that end": {
			[]answer{listOf("5"), {after: silentAfter - time.Second}, {open: true}, listOf("7"), {open: true}}, silentAfter + 2*retryMax,
			[]string{listQuery, watchFrom("5"), watchFrom("5"), listQuery, watchFrom("7")},
		},
		"a silent list": {
			[]answer{{body: `{"metadata"`, open: true}, listOf("7"), {open: true}}, silentAfter + retryMax,
			[]string{listQuery, listQuery, watchFrom("7")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{answers: test.answers}
				collect(t, s, test.until)
				if got := s.sent(); !slices.Equal(got, test.requests) {
					t.Errorf("the requests were %q, want %q", got, test.requests)
				}
			})
		})
	}
}

// An API server that is unavailable is asked at growing intervals, up to retryMax and jitter.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []answer{{err: io.ErrUnexpectedEOF}}}
		if got := collect(t, s, time.Hour); got != "not synced" {
			t.Errorf("it has %q", got)
		}
		if first := s.times[1].Sub(s.times[0]); first < retryFirst || first > 2*retryFirst {
			t.Errorf("the first retry was after %s", first)
		}
		last := s.times[len(s.times)-1].Sub(s.times[len(s.times)-2])
		if last < retryMax || last > 2*retryMax {
			t.Errorf("the last retry was after %s", last)
		}
	})
}
