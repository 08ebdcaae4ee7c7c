// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/install"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// tokenOf returns a token of a ServiceAccount, with the given ClusterRole if any. The
// namespace must exist.
func tokenOf(t *testing.T, name, clusterRole string) string {
	t.Helper()
	c := clustertest.Shared(t)
	api, err := client.New(c.Admin(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: defaultNamespace}}}
	if clusterRole != "" {
		objects = append(objects, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: defaultNamespace, Name: name}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole},
		})
	}
	for _, o := range objects {
		if err := client.IgnoreAlreadyExists(api.Create(t.Context(), o)); err != nil {
			t.Fatal(err)
		}
	}
	config, err := c.ServiceAccount(t.Context(), defaultNamespace, name)
	if err != nil {
		t.Fatal(err)
	}
	return config.BearerToken
}

// fetch reads a URL, with a token if it is not empty.
func fetch(ctx context.Context, c *http.Client, url, token string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// unverified trusts any server, like a Prometheus server that does not have the replica's
// self-signed certificate.
var unverified = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

// served returns the content at a path of the metrics server, for an authorized client.
func (r *replica) served(path string) (string, error) {
	status, body, err := fetch(r.t.Context(), unverified, "https://"+r.metrics+path, r.reader)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", status, body)
	}
	return body, err
}

// installed returns the kubeconfig of installedCluster only.
func installed(t *testing.T) string {
	t.Helper()
	_, kubeconfig := installedCluster(t)
	return kubeconfig
}

func TestWhoMayReadMetrics(t *testing.T) {
	kubeconfig := installed(t)
	r := startReplica(t, kubeconfig, "--leader-elect-lease-duration=60s") // leads also if the API server is slow
	eventually(t, "the replica leads", func() error {
		status, body, err := fetch(t.Context(), unverified, "https://"+r.metrics+"/nodes/none", r.reader)
		if err == nil && status != http.StatusNotFound {
			err = fmt.Errorf("status %d: %s", status, body)
		}
		return err
	})
	for _, test := range []struct {
		who, token    string
		metrics, node int
	}{
		{"without a token", "", http.StatusUnauthorized, http.StatusUnauthorized},
		{"with an invalid token", "made-up", http.StatusUnauthorized, http.StatusUnauthorized},
		{"with a token without the right", tokenOf(t, "no-reader", ""), http.StatusForbidden, http.StatusForbidden},
		{"with nodegate's own token", tokenOf(t, defaultServiceAccount, ""), http.StatusForbidden, http.StatusForbidden},
		{"with the reader role", r.reader, http.StatusOK, http.StatusNotFound}, // the node does not exist
	} {
		t.Run(test.who, func(t *testing.T) {
			for path, want := range map[string]int{"/metrics": test.metrics, "/nodes/none": test.node} {
				status, body, err := fetch(t.Context(), unverified, "https://"+r.metrics+path, test.token)
				if err != nil || status != want {
					t.Errorf("%s: status %d (%v), want %d", path, status, err, want)
				}
				if served := strings.Contains(body, "nodegate_build_info"); served != (want == http.StatusOK) {
					t.Errorf("%s: contains metrics: %t", path, served)
				}
			}
		})
	}
	if _, err := read("http://" + r.metrics + "/metrics"); err == nil {
		t.Error("metrics are served with plain HTTP")
	}
	if err := errors.Join(r.healthy("/healthz"), r.healthy("/readyz")); err != nil {
		t.Errorf("probes without a token: %v", err)
	}
	r.terminate()
	for line := range strings.Lines(r.log.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("the log has a line that is not JSON: %s", line)
		}
	}
}

func TestMetricsForEveryone(t *testing.T) {
	r := startReplica(t, installed(t), "--metrics-secure=false")
	eventually(t, "metrics are served by plain HTTP", func() error {
		served, err := read("http://" + r.metrics + "/metrics")
		if err == nil && !strings.Contains(served, "nodegate_build_info") {
			err = errors.New("they are not")
		}
		return err
	})
	r.terminate()
	_, stderr, _ := run(t, "controller", "--metrics-secure=false", "--metrics-certificate-dir", t.TempDir(), "--allowed-taint-keys", "example.com/key")
	oneClearLine(t, stderr, "--metrics-certificate-dir", "--metrics-secure=false", "omit one of them")
}

// A mounted certificate lets clients verify the replica.
func TestMetricsCertificateIsMounted(t *testing.T) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("nodegate-metrics.nodegate-system.svc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	mounted := t.TempDir()
	for name, content := range map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key} {
		if err := os.WriteFile(filepath.Join(mounted, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := startReplica(t, installed(t), "--metrics-certificate-dir", mounted)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	verifying := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "nodegate-metrics.nodegate-system.svc"}}}
	eventually(t, "metrics are served with the certificate", func() error {
		status, body, err := fetch(t.Context(), verifying, "https://"+r.metrics+"/metrics", r.reader)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d: %s", status, body)
		}
		return err
	})
	r.terminate()
	_, stderr, _ := run(t, "controller", "--kubeconfig", installed(t), "--metrics-certificate-dir", t.TempDir(), "--allowed-taint-keys", "example.com/key")
	oneClearLine(t, stderr, "reading the certificate of the metrics port", corev1.TLSCertKey)
}

// Without metrics, or with metrics for every client, the permissions to authorize readers
// are neither required nor rendered.
func TestRightsForMetrics(t *testing.T) {
	c := clustertest.Shared(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := testcluster.WriteKubeconfig(path, c.User("nobody")); err != nil {
		t.Fatal(err)
	}
	t.Parallel() // each nodegate waits for permissions
	for _, test := range []struct {
		flags []string
		want  bool
	}{
		{[]string{"--metrics-bind-address=127.0.0.1:0"}, true},
		{[]string{"--metrics-bind-address=0"}, false},
		{[]string{"--metrics-bind-address=127.0.0.1:0", "--metrics-secure=false"}, false},
	} {
		t.Run(strings.Join(test.flags, " "), func(t *testing.T) {
			t.Parallel()
			_, stderr, _ := run(t, append([]string{"controller", "--kubeconfig", path, "--allowed-taint-keys", "example.com/key", "--health-probe-bind-address=0"}, test.flags...)...)
			for _, right := range []string{"create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io"} {
				if got := strings.Contains(stderr, right); got != test.want {
					t.Errorf("requires permission to %s: %t, want %t", right, got, test.want)
				}
			}
		})
	}
	open, stderr, _ := run(t, "manifests", "--metrics-secure=false")
	secure, _, _ := run(t, "manifests")
	for _, part := range []string{"tokenreviews", install.MetricsReader} {
		if strings.Contains(open, part) || !strings.Contains(secure, part) {
			t.Errorf("%s is only needed with --metrics-secure: %s", part, stderr)
		}
	}
}

// A client without a token cannot fill the memory of a replica through a port that everyone on
// the pod network can reach, neither with long headers nor with many connections.
func TestFloodOfConnections(t *testing.T) {
	r := startReplica(t, installed(t))
	eventually(t, "the replica is alive", func() error { return r.healthy("/healthz") })
	for port, test := range map[string]struct {
		dial    func() (net.Conn, error)
		request string
		want    int
	}{
		"metrics": {
			func() (net.Conn, error) { return tls.Dial("tcp", r.metrics, &tls.Config{InsecureSkipVerify: true}) },
			"GET /metrics HTTP/1.1\r\nHost: x\r\n", http.StatusUnauthorized,
		},
		"health": {
			func() (net.Conn, error) { return net.Dial("tcp", r.health) },
			"GET /healthz HTTP/1.1\r\nHost: x\r\n", http.StatusOK,
		},
	} {
		t.Run(port, func(t *testing.T) {
			connect := func() net.Conn {
				c, err := test.dial()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				return c
			}
			answered := func(c net.Conn) {
				t.Helper()
				if status, err := ask(c, test.request+"\r\n"); err != nil || status != test.want {
					t.Fatalf("status %d (%v), want %d", status, err, test.want)
				}
			}
			// The server closes the connection, so the answer may get lost.
			if status, err := ask(connect(), test.request+"X: "+strings.Repeat("x", 64<<10)+"\r\n\r\n"); err == nil && status != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("a request with a long header: status %d", status)
			}
			first := connect()
			answered(first)
			for range 300 {
				answered(connect())
			}
			if status, err := ask(first, test.request+"\r\n"); err == nil {
				t.Errorf("300 connections later, the first one is still open (status %d)", status)
			}
		})
	}
	r.terminate()
}

// ask sends a request, and returns the status of the answer.
func ask(c net.Conn, request string) (status int, err error) {
	go func() { _, _ = io.WriteString(c, request) }() // the server may answer before it has read everything
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}
