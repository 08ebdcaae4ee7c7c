// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// ruleServer is an API server that serves one version of DeviceTaintRules, if any.
type ruleServer struct {
	version   atomic.Value // of string
	forbidden atomic.Bool
}

func (s *ruleServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	version, _ := s.version.Load().(string)
	group := "/apis/resource.k8s.io/" + version
	var answer any
	switch {
	case version == "" || !strings.HasPrefix(r.URL.Path, group):
		answer = apierrors.NewNotFound(ruleResource, "").Status()
		w.WriteHeader(http.StatusNotFound)
	case r.URL.Path == group:
		answer = metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "devicetaintrules", Kind: "DeviceTaintRule", Verbs: metav1.Verbs{"get", "list", "watch"}}, {Name: "devicetaintrules/status", Kind: "DeviceTaintRule"}}}
	case s.forbidden.Load():
		answer = apierrors.NewForbidden(ruleResource, "", errors.New("no")).Status()
		w.WriteHeader(http.StatusForbidden)
	default:
		answer = map[string]any{"apiVersion": "resource.k8s.io/" + version, "kind": "DeviceTaintRuleList", "metadata": map[string]any{"resourceVersion": "7"},
			"items": []any{map[string]any{"apiVersion": "resource.k8s.io/" + version, "kind": "DeviceTaintRule", "metadata": map[string]any{"name": "a"}}}}
	}
	_ = json.NewEncoder(w).Encode(answer) // the client notices
}

func newRuleClients(t *testing.T) (*ruleServer, ObjectClients) {
	t.Helper()
	s := &ruleServer{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c, err := NewObjectClients(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// Whichever version the API server serves is read. If it serves none, there are no rules.
func TestDeviceTaintRulesOfAnyVersion(t *testing.T) {
	s, c := newRuleClients(t)
	for version, want := range map[string]int{"": 0, "v1": 1, "v1beta2": 1, "v1alpha3": 1, "v2": 0} {
		s.version.Store(version)
		list, err := c.ListDeviceTaintRules(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Errorf("version %q: %v", version, err)
			continue
		}
		if n := meta.LenList(list); n != want {
			t.Errorf("version %q: %d rules, want %d", version, n, want)
		}
	}
	s.version.Store("v1")
	s.forbidden.Store(true)
	if _, err := c.ListDeviceTaintRules(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "apply the ClusterRole") {
		t.Errorf("forbidden: %v", err)
	}
}

// While rules are not served, a watch stays open. When they are, it must start with a list.
func TestDeviceTaintRulesServedLater(t *testing.T) {
	s, c := newRuleClients(t)
	source := c.DeviceTaintRules()
	list, err := source.ListWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	none := metav1.ListOptions{ResourceVersion: versionOf(t, list)}
	w, err := source.WatchWithContext(t.Context(), none)
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	if _, open := <-w.ResultChan(); open {
		t.Error("the watch delivers something after it was stopped")
	}
	yes := true
	if _, err := source.WatchWithContext(t.Context(), metav1.ListOptions{SendInitialEvents: &yes}); !errors.Is(err, ErrKindNotServed) {
		t.Errorf("streaming a list: %v, want an error so that the list is requested", err)
	}
	s.version.Store("v1")
	if _, err := source.WatchWithContext(t.Context(), none); !apierrors.IsResourceExpired(err) {
		t.Errorf("rules are served now: %v, want that they must be listed", err)
	}
}

func versionOf(t *testing.T, list runtime.Object) string {
	t.Helper()
	m, err := meta.ListAccessor(list)
	if err != nil {
		t.Fatal(err)
	}
	return m.GetResourceVersion()
}

// The watch of no rules sends bookmarks, so that it does not count as silent, and ends, so
// that it is checked again whether rules are served.
func TestIdleWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, last, marks := time.Now(), time.Now(), 0
		for event := range newIdleWatch(t.Context()).ResultChan() {
			marks++
			if event.Type != watch.Bookmark || time.Since(last) > bookmarkEvery {
				t.Errorf("%s after %s", event.Type, time.Since(last))
			}
			last = time.Now()
		}
		if lasted := time.Since(begin); lasted != noRulesFor || marks < int(noRulesFor/bookmarkEvery)-1 {
			t.Errorf("the watch lasted for %s, with %d bookmarks", lasted, marks)
		}
	})
}
