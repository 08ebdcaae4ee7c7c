// SPDX-License-Identifier: Apache-2.0

package faultproxy_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
)

// upstream is an API server with one list and a watch whose events the test sends. It
// accepts patches.
type upstream struct {
	*httptest.Server
	events chan watch.Event

	mu      sync.Mutex
	queries []string
	patches int
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{events: make(chan watch.Event, 100)}
	u.Server = httptest.NewTLSServer(u)
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: u.Certificate().Raw})
	return &rest.Config{Host: u.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// ServeHTTP implements http.Handler.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer secret" {
		http.Error(w, "who is this?", http.StatusUnauthorized)
		return
	}
	u.mu.Lock()
	u.queries = append(u.queries, r.URL.RawQuery)
	if r.Method == http.MethodPatch {
		u.patches++
	}
	u.mu.Unlock()
	switch {
	case r.URL.Query().Get("watch") == "true":
		u.watch(w, r)
	case r.Method == http.MethodPatch:
		answer(w, newNode("patched", 9))
	default:
		answer(w, &corev1.NodeList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []corev1.Node{*newNode("listed", 1)},
		})
	}
}

func answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object)
}

func (u *upstream) watch(w http.ResponseWriter, r *http.Request) {
	proto := strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf)
	w.Header().Set("Content-Type", "application/json")
	if proto {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	}
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case event, open := <-u.events:
			if !open {
				return
			}
			_, _ = w.Write(frame(event, proto))
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func frame(event watch.Event, proto bool) []byte {
	if !proto {
		raw, _ := json.Marshal(event.Object)
		line, _ := json.Marshal(metav1.WatchEvent{Type: string(event.Type), Object: runtime.RawExtension{Raw: raw}})
		return append(line, '\n')
	}
	raw, _ := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), event.Object)
	body, _ := (&metav1.WatchEvent{Type: string(event.Type), Object: runtime.RawExtension{Raw: raw}}).Marshal()
	n := len(body)
	return append([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, body...)
}

func newNode(name string, version int) *corev1.Node {
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: fmt.Sprint(version)},
	}
}

// start starts a proxy and returns a client that goes through it.
func start(t *testing.T, u *upstream, contentType string) (*faultproxy.Proxy, kubernetes.Interface) {
	t.Helper()
	proxy, err := faultproxy.New(u.config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	config := proxy.Config()
	config.ContentType, config.AcceptContentTypes = contentType, contentType+",application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return proxy, client
}

// watchNodes opens a watch.
func watchNodes(t *testing.T, client kubernetes.Interface) watch.Interface {
	t.Helper()
	w, err := client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// broken is the reason of client-go's error when a watch breaks.
const broken = "InternalError"

// received returns the names of events until the watch ends or n have arrived.
func received(w watch.Interface, n int) []string {
	var names []string
	for len(names) < n {
		event, open := <-w.ResultChan()
		switch object := event.Object.(type) {
		case *corev1.Node:
			names = append(names, object.Name)
		case *metav1.Status:
			names = append(names, string(object.Reason))
		}
		if !open {
			return append(names, "end")
		}
	}
	return names
}

// A fault is injected into the second of three events.
func TestEvents(t *testing.T) {
	for _, test := range []struct {
		fault faultproxy.EventFault
		want  []string
	}{
		{faultproxy.EventFault{}, []string{"a", "b", "c", "end"}},
		{faultproxy.EventFault{Fault: faultproxy.EventDropped}, []string{"a", "c", "end"}},
		{faultproxy.EventFault{Fault: faultproxy.EventDoubled}, []string{"a", "b", "b", "c", "end"}},
		{faultproxy.EventFault{Fault: faultproxy.EventSwapped}, []string{"a", "c", "b", "end"}},
		// A late event arrives before the end of the watch. The other event has that long to pass.
		{faultproxy.EventFault{Fault: faultproxy.EventLate, Wait: 2 * time.Second}, []string{"a", "c", "b", "end"}},
		{faultproxy.EventFault{Fault: faultproxy.EventLost}, []string{"a", broken, "end"}},
		{faultproxy.EventFault{Fault: faultproxy.EventError}, []string{"a", "Expired", "end"}},
	} {
		for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
			t.Run(string(test.fault.Fault)+" "+contentType, func(t *testing.T) {
				u := newUpstream(t)
				proxy, client := start(t, u, contentType)
				proxy.Follow(faultproxy.Plan{Event: func(e faultproxy.Event) faultproxy.EventFault {
					if e.Name != "b" {
						return faultproxy.EventFault{}
					}
					if e.Resource != "nodes" || e.Type != "ADDED" || e.ResourceVersion != "3" {
						t.Errorf("the event is described as %+v", e)
					}
					return test.fault
				}})
				for i, name := range []string{"a", "b", "c"} {
					u.events <- watch.Event{Type: watch.Added, Object: newNode(name, i+2)}
				}
				close(u.events)
				w := watchNodes(t, client)
				if got := received(w, 9); !slices.Equal(got, test.want) {
					t.Errorf("the client received %v, want %v", got, test.want)
				}
				if n := proxy.Injected()[test.fault.Fault]; test.fault.Fault != faultproxy.None && n != 1 {
					t.Errorf("it is counted %d times", n)
				}
			})
		}
	}
}

// A bookmark does not overtake earlier events, and gets no fault.
func TestBookmarkWaitsForASwappedEvent(t *testing.T) {
	u := newUpstream(t)
	proxy, client := start(t, u, runtime.ContentTypeJSON)
	proxy.Follow(faultproxy.Plan{Event: func(faultproxy.Event) faultproxy.EventFault {
		return faultproxy.EventFault{Fault: faultproxy.EventSwapped}
	}})
	w := watchNodes(t, client)
	u.events <- watch.Event{Type: watch.Added, Object: newNode("a", 2)}
	u.events <- watch.Event{Type: watch.Bookmark, Object: newNode("mark", 2)}
	if got, want := received(w, 2), []string{"a", "mark"}; !slices.Equal(got, want) {
		t.Errorf("the client received %v, want %v", got, want)
	}
}

// The initial events of a streaming list get no fault.
func TestInitialEvents(t *testing.T) {
	u := newUpstream(t)
	proxy, client := start(t, u, runtime.ContentTypeJSON)
	proxy.Follow(faultproxy.Plan{Event: func(faultproxy.Event) faultproxy.EventFault {
		return faultproxy.EventFault{Fault: faultproxy.EventDoubled}
	}})
	w, err := client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{
		SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	u.events <- watch.Event{Type: watch.Added, Object: newNode("a", 2)}
	end := newNode("mark", 2)
	end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	u.events <- watch.Event{Type: watch.Bookmark, Object: end}
	u.events <- watch.Event{Type: watch.Added, Object: newNode("b", 3)}
	if got, want := received(w, 4), []string{"a", "mark", "b", "b"}; !slices.Equal(got, want) {
		t.Errorf("the client received %v, want %v", got, want)
	}
}

// A frozen watch stays open and delivers its events when it is resumed. Other watches
// continue.
func TestFreeze(t *testing.T) {
	u := newUpstream(t)
	proxy, client := start(t, u, runtime.ContentTypeProtobuf)
	w := watchNodes(t, client)
	u.events <- watch.Event{Type: watch.Added, Object: newNode("a", 2)}
	received(w, 1)
	proxy.Freeze(func(r faultproxy.Request) bool { return r.Resource == "nodes" })
	u.events <- watch.Event{Type: watch.Added, Object: newNode("b", 3)}
	if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("listing while watches are frozen: %v", err)
	}
	select {
	case event := <-w.ResultChan():
		t.Errorf("the frozen watch delivered %v", event)
	default:
	}
	if n := proxy.Injected()[faultproxy.Freeze]; n != 1 {
		t.Errorf("%d watches are counted as frozen", n)
	}
	proxy.Heal()
	if got := received(w, 1); !slices.Equal(got, []string{"b"}) {
		t.Errorf("the client received %v", got)
	}
}

// A watch of a lagging server delivers everything late, in order, and its list is old.
func TestLag(t *testing.T) {
	const lag = 300 * time.Millisecond
	u := newUpstream(t)
	proxy, client := start(t, u, runtime.ContentTypeJSON)
	proxy.Follow(faultproxy.Plan{Lag: func(faultproxy.Request) time.Duration { return lag }})
	w := watchNodes(t, client)
	begun := time.Now()
	for i, name := range []string{"a", "b"} {
		u.events <- watch.Event{Type: watch.Added, Object: newNode(name, i+2)}
	}
	if got := received(w, 2); !slices.Equal(got, []string{"a", "b"}) || time.Since(begun) < lag {
		t.Errorf("the client received %v after %s, want a and b after %s or later", got, time.Since(begun), lag)
	}
	// By now version 2 was reached longer ago than the lag.
	if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	u.mu.Lock()
	last := u.queries[len(u.queries)-1]
	u.mu.Unlock()
	if last != "resourceVersion=2&resourceVersionMatch=Exact" && last != "resourceVersion=3&resourceVersionMatch=Exact" {
		t.Errorf("the API server received a list request with %q", last)
	}
	if _, err := client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{SendInitialEvents: new(true)}); !apierrors.IsInvalid(err) {
		t.Errorf("a streaming list of a lagging server ended with %v", err)
	}
	proxy.Heal()
	if got := received(w, 1); !slices.Equal(got, []string{broken}) {
		t.Errorf("after Heal, the lagging watch received %v", got)
	}
}

// Injected statuses look like those of an API server, before or after the request is
// carried out.
func TestStatuses(t *testing.T) {
	for fault, is := range map[faultproxy.Fault]func(error) bool{
		faultproxy.Conflict:        apierrors.IsConflict,
		faultproxy.Gone:            apierrors.IsResourceExpired,
		faultproxy.Invalid:         apierrors.IsInvalid,
		faultproxy.TooManyRequests: apierrors.IsTooManyRequests,
		faultproxy.InternalError:   apierrors.IsInternalError,
		faultproxy.Unavailable:     apierrors.IsServiceUnavailable,
		faultproxy.Reset:           isBroken,
		faultproxy.Timeout:         isBroken,
		faultproxy.Half:            isBroken,
	} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprint(fault, ", after ", after), func(t *testing.T) {
				u := newUpstream(t)
				proxy, client := start(t, u, runtime.ContentTypeJSON)
				proxy.Follow(faultproxy.Plan{Request: func(r faultproxy.Request) faultproxy.RequestFault {
					if want := (faultproxy.Request{Verb: "patch", Resource: "nodes", Name: "n1"}); r != want {
						t.Errorf("the request is described as %+v, want %+v", r, want)
					}
					return faultproxy.RequestFault{Fault: fault, After: after, Wait: time.Millisecond}
				}})
				// No retries: client-go tries again after 429.
				_, err := client.CoreV1().RESTClient().Patch(types.MergePatchType).Resource("nodes").Name("n1").
					Body([]byte(`{}`)).MaxRetries(0).Do(t.Context()).Get()
				if err == nil || !is(err) {
					t.Errorf("the client got %v", err)
				}
				if done := after || fault == faultproxy.Half; done != (u.patches == 1) {
					t.Errorf("the API server received %d patches", u.patches)
				}
				if n := proxy.Injected()[fault]; n != 1 {
					t.Errorf("it is counted %d times", n)
				}
			})
		}
	}
}

func isBroken(err error) bool {
	return !apierrors.IsInvalid(err) && apierrors.ReasonForError(err) == ""
}

// Do is called before or after the API server receives the request.
func TestCall(t *testing.T) {
	for _, after := range []bool{false, true} {
		u := newUpstream(t)
		proxy, client := start(t, u, runtime.ContentTypeJSON)
		patched := -1
		proxy.Follow(faultproxy.Plan{Request: func(faultproxy.Request) faultproxy.RequestFault {
			return faultproxy.RequestFault{Fault: faultproxy.Call, After: after, Do: func() { patched = u.patches }}
		}})
		_, err := client.CoreV1().Nodes().Patch(t.Context(), "n1", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
		if want := map[bool]int{false: 0, true: 1}[after]; err == nil || patched != want {
			t.Errorf("after %v: the request ended with %v; when it was called, %d patches had been made, want %d", after, err, patched, want)
		}
	}
}

// A watch breaks in the middle.
func TestHalfAWatch(t *testing.T) {
	u := newUpstream(t)
	proxy, client := start(t, u, runtime.ContentTypeProtobuf)
	proxy.Follow(faultproxy.Plan{Request: func(faultproxy.Request) faultproxy.RequestFault {
		return faultproxy.RequestFault{Fault: faultproxy.Half}
	}})
	w := watchNodes(t, client)
	u.events <- watch.Event{Type: watch.Added, Object: newNode("a", 2)}
	u.events <- watch.Event{Type: watch.Added, Object: newNode("b", 3)}
	if got := received(w, 3); !slices.Equal(got, []string{"a", broken, "end"}) {
		t.Errorf("the client received %v", got)
	}
}

// Without a plan, the proxy changes nothing.
func TestNothing(t *testing.T) {
	u := newUpstream(t)
	proxy, client := start(t, u, runtime.ContentTypeJSON)
	list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.ResourceVersion != "9" {
		t.Errorf("the list is %v, %v", list, err)
	}
	if n := len(proxy.Injected()); n != 0 {
		t.Errorf("%d kinds of faults are counted", n)
	}
	config := proxy.Config()
	config.BearerToken = "another"
	unauthenticated, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unauthenticated.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a client without a token got %v", err)
	}
}
