// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestWhatIsRefusedIsNoAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = w.Write([]byte("answer"))
	}))
	defer server.Close()
	if content, err := Get(t.Context(), server.Client(), server.URL+"/there"); err != nil || string(content) != "answer" {
		t.Errorf("got %q, %v", content, err)
	}
	_, err := Get(t.Context(), server.Client(), server.URL+"/refused")
	if err == nil || !strings.Contains(err.Error(), "403 Forbidden") || strings.Contains(err.Error(), "%!") {
		t.Errorf("got %v", err)
	}
}
