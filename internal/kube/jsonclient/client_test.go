// SPDX-License-Identifier: Apache-2.0

package jsonclient

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/transport"
)

// Requests use HTTP/2, and the server must be certified by the authority in a file.
func TestTransport(t *testing.T) {
	var got string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = fmt.Sprint(r.Method, " ", r.URL.Path, " ", r.Proto, " ", r.UserAgent(), " ", r.Header.Get("Content-Type"), " ", r.Header.Get("Authorization"))
	}))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	authority := filepath.Join(t.TempDir(), "ca.crt")
	write(t, authority, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	token := filepath.Join(t.TempDir(), "token")
	write(t, token, "secret\n")
	c, err := New(s.URL, &transport.Config{UserAgent: "test", BearerTokenFile: token, TLS: transport.TLSConfig{CAFile: authority, ReloadCAFiles: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Patch(t.Context(), "/things/a", types.StrategicMergePatchType, []byte("{}")); err != nil {
		t.Error(err)
	}
	if want := "PATCH /things/a HTTP/2.0 test application/strategic-merge-patch+json Bearer secret"; got != want {
		t.Errorf("the request was %q, want %q", got, want)
	}
	if _, err := New(s.URL, &transport.Config{TLS: transport.TLSConfig{CAFile: authority + ".missing"}}); err == nil {
		t.Error("a missing certificate authority is accepted")
	}
	other, err := New(s.URL, &transport.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Patch(t.Context(), "/", types.JSONPatchType, nil); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the certificate authority: %v", err)
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The token is read again from its file, which the kubelet replaces before the token expires.
func TestTokenRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		file := filepath.Join(t.TempDir(), "token")
		write(t, file, "first")
		c, err := New("http://test", &transport.Config{BearerTokenFile: file, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			got = append(got, r.Header.Get("Authorization"))
			return &http.Response{StatusCode: http.StatusOK, Request: r, Body: http.NoBody}, nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		patch := func() {
			t.Helper()
			if err := c.Patch(t.Context(), "/", types.JSONPatchType, nil); err != nil {
				t.Error(err)
			}
		}
		patch()
		write(t, file, "second")
		<-time.After(time.Minute)
		patch()
		if want := []string{"Bearer first", "Bearer second"}; !slices.Equal(got, want) {
			t.Errorf("the tokens were %q, want %q", got, want)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Responses that are no success are errors, with the API server's reason if it gives one.
func TestErrors(t *testing.T) {
	for name, test := range map[string]struct {
		answer answer
		want   string
	}{
		"a Status":    {answer{code: 403, body: `{"kind":"Status","message":"not yours","reason":"Forbidden","code":403}`}, "the API server answered 403 (Forbidden): not yours"},
		"text":        {answer{code: 429, body: "slow down"}, "the API server answered 429 (Too Many Requests): slow down"},
		"another":     {answer{code: 410, body: `{"kind":"Thing","code":200}`}, `the API server answered 410 (Gone): {"kind":"Thing","code":200}`},
		"a large one": {answer{code: 500, body: strings.Repeat("x", 2*maxStatus)}, "the API server answered 500 (Internal Server Error): " + strings.Repeat("x", maxStatus)},
		"success":     {answer{code: 201, body: "{}"}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, err := New("http://test", &transport.Config{Transport: &server{answers: []answer{test.answer}}})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := c.Patch(t.Context(), "/things/a", types.MergePatchType, []byte("{}")); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("%s: %q, want %q", name, got, test.want)
			}
		})
	}
}

// A patch that is not answered ends.
func TestPatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c, err := New("http://test", &transport.Config{Transport: &server{answers: []answer{{open: true}}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Patch(t.Context(), "/things/a", types.MergePatchType, []byte("{}")); err == nil || time.Since(began) != requestTimeout {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// Outside of a pod, there is no configuration. In a pod, its token is used, and only the API
// server of its certificate authority is trusted.
func TestInCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := InCluster("test"); err == nil || !strings.Contains(err.Error(), "KUBERNETES_SERVICE_HOST") {
		t.Errorf("outside of a pod: %v", err)
	}
	var got string
	api := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization") + ", " + r.UserAgent()
	}))
	defer api.Close()
	host, port, err := net.SplitHostPort(api.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", host)
	t.Setenv("KUBERNETES_SERVICE_PORT", port)
	dir := t.TempDir()
	if _, err := inCluster("test", dir); err == nil || !strings.Contains(err.Error(), "ca.crt") {
		t.Errorf("without credentials: %v", err)
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	for name, content := range map[string][]byte{"ca.crt": authority, "token": []byte("secret")} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := inCluster("test", dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Patch(t.Context(), "/things/a", types.MergePatchType, []byte("{}")); err != nil || got != "Bearer secret, test" {
		t.Errorf("the API server received %q, error %v", got, err)
	}
}
