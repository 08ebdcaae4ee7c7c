// SPDX-License-Identifier: Apache-2.0

package write

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/gate"
)

// A Node is gone if the API server answers that it does not exist, and not because of another answer
// with the same code, such as that of a proxy: the write is retried.
func TestNotFoundByAProxy(t *testing.T) {
	const node = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"nodes \"n\" not found","reason":"NotFound","details":{"name":"n","kind":"nodes"},"code":404}`
	for body, want := range map[string]bool{node: true, "404 page not found": false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if want {
				w.Header().Set("Content-Type", "application/json")
			}
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, body)
		}))
		defer server.Close()
		w, err := NewWriter(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		decision := gate.Decision{Changes: true, Taints: []corev1.Taint{{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule}}}
		_, err = w.Apply(t.Context(), &gate.Node{Name: "n", UID: "u"}, &decision)
		if errors.Is(err, ErrGone) != want || err == nil {
			t.Errorf("%s: error %v, want ErrGone: %t", body, err, want)
		}
	}
}
