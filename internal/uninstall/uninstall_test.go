// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// Names of roles and role bindings may contain control characters, which must not control a
// terminal.
func TestReportIsEscaped(t *testing.T) {
	var out strings.Builder
	u := &uninstaller{Options: Options{Out: &out}}
	u.report("namespace/%s kept, because it contains %s\nwaiting", "here", "role/\x1b[2J")
	if got, want := out.String(), "namespace/here kept, because it contains role/\\x1b[2J\nwaiting\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A rate limit that the caller's configuration sets applies.
func TestRateLimitIsKept(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler()) // without a node, and without nodegate
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	config := &rest.Config{Host: server.URL, QPS: 0.001, Burst: 1}
	err := Run(ctx, config, Options{Namespace: "here", ServiceAccount: "me", Out: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "rate limiter") {
		t.Errorf("error %v, want that of the rate limiter", err)
	}
}

// If the permissions are already deleted, such as by 'helm uninstall', nodegate's namespace follows
// from the parameter or the Lease that remains.
func TestCheckNamespace(t *testing.T) {
	const parameters, bindings = "/api/v1/podtemplates", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/nodegate"
	const leases = "/apis/coordination.k8s.io/v1/leases"
	const wrong = "nodegate is installed in namespace there, not in here: use --namespace=there"
	list := func(name string, namespaces ...string) string {
		items := []string{`{"metadata": {"name": "unrelated", "namespace": "a"}}`}
		for _, namespace := range namespaces {
			items = append(items, `{"metadata": {"name": "`+name+`", "namespace": "`+namespace+`"}}`)
		}
		return `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "items": [` + strings.Join(items, ",") + "]}"
	}
	parameter := func(namespaces ...string) string { return list("nodegate-birth", namespaces...) }
	lease := func(namespaces ...string) string { return list("nodegate", namespaces...) }
	binding := func(namespace string) string {
		return `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "subjects": [{"kind": "ServiceAccount", "namespace": "` + namespace + `"}]}`
	}
	for name, c := range map[string]struct {
		objects map[string]string
		want    string
	}{
		"nothing is left":          {map[string]string{parameters: parameter()}, ""},
		"binding":                  {map[string]string{bindings: binding("here"), parameters: parameter("there")}, ""},
		"binding elsewhere":        {map[string]string{bindings: binding("there")}, wrong},
		"parameter":                {map[string]string{parameters: parameter("here")}, ""},
		"parameter elsewhere":      {map[string]string{parameters: parameter("there", "where")}, wrong},
		"parameters in both":       {map[string]string{parameters: parameter("elsewhere", "here")}, ""},
		"parameters are not known": {nil, "determining nodegate's namespace: "},
		"lease":                    {map[string]string{parameters: parameter(), leases: lease("here", "there")}, ""},
		"lease elsewhere":          {map[string]string{parameters: parameter(), leases: lease("there")}, wrong},
		"lease and parameter":      {map[string]string{parameters: parameter("there"), leases: lease("here")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				object, exists := c.objects[r.URL.Path]
				switch {
				case exists:
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, object) // fails only if the client is gone
				case r.URL.Path == parameters:
					http.Error(w, "forbidden", http.StatusForbidden)
				default:
					http.NotFound(w, r)
				}
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			u := &uninstaller{Options: Options{Namespace: "here"}, core: kubernetes.NewForConfigOrDie(config), objects: metadata.NewForConfigOrDie(config)}
			if err := u.checkNamespace(t.Context()); (err != nil) != (c.want != "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// Whether nodegate still runs does not depend on this machine's clock.
func TestStopController(t *testing.T) {
	const held = "nodegate is still running (\"a\" holds the Lease here/nodegate): stop it, and run the command again"
	for name, c := range map[string]struct {
		holder string
		// age is the time since the renewal by this machine's clock, and renewals is the number of
		// reads for which the Lease is renewed.
		age      time.Duration
		renewals int
		want     string
		took     time.Duration
		// lasts is how many seconds the Lease lasts, if not two, and pods is when the last pod ends.
		lasts int
		pods  time.Duration
	}{
		"released":                              {"", time.Second, 0, "", 0, 0, 0},
		"not renewed":                           {"a", time.Second, 0, "", 3 * time.Second, 0, 0},
		"not renewed, clock is behind":          {"a", -time.Hour, 0, "", 3 * time.Second, 0, 0},
		"not renewed, clock is ahead":           {"a", time.Hour, 0, "", 3 * time.Second, 0, 0},
		"not renewed, lasts two minutes":        {"a", time.Second, 0, "", 121 * time.Second, 120, 0},
		"not renewed, lasts five minutes":       {"a", time.Second, 0, "", 301 * time.Second, 300, 0},
		"not renewed after the pods have ended": {"a", time.Second, 0, "", 131 * time.Second, 90, 40 * time.Second},
		"released when the pods end":            {"", time.Second, 0, "", 40 * time.Second, 0, 40 * time.Second},
		"renewed":                               {"a", time.Second, 1000, held, stopLimit, 0, 0},
		"renewed, clock is behind":              {"a", -time.Hour, 1000, held, stopLimit, 0, 0},
		"renewed, clock is ahead":               {"a", time.Hour, 1000, held, stopLimit, 0, 0},
		"renewed for a moment":                  {"a", time.Hour, 2, "", 3500 * time.Millisecond, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads, renewed, began := 0, time.Now(), time.Now()
				u := uninstallerOf(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/api/v1/namespaces/here/pods" && time.Since(began) < c.pods {
						w.Header().Set("Content-Type", "application/json")
						_, _ = io.WriteString(w, `{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "nodegate-1"}}]}`) // never fails
						return
					}
					if r.URL.Path != "/apis/coordination.k8s.io/v1/namespaces/here/leases/nodegate" {
						http.NotFound(w, r)
						return
					}
					if reads++; reads <= c.renewals {
						renewed = time.Now()
					}
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprintf(w, `{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"resourceVersion": "%d"}, "spec": {"holderIdentity": %q, "leaseDurationSeconds": %d, "renewTime": %q}}`,
						min(reads, c.renewals), c.holder, cmp.Or(c.lasts, 2), renewed.Add(-c.age).UTC().Format("2006-01-02T15:04:05.000000Z"))
				})
				out := &lines{began: began}
				u.Out = out
				err := u.stopController(t.Context())
				if took := time.Since(began); took != c.took || (err != nil) != (c.want != "") || err != nil && err.Error() != c.want {
					t.Errorf("after %s: %v; want %q after %s", took, err, c.want, c.took)
				}
				waits := ""
				if c.pods > 0 {
					waits = "0s: waiting for nodegate to stop: pods in namespace here: nodegate-1\n"
				}
				if c.holder != "" {
					waits += fmt.Sprintf("%s: waiting for nodegate to stop: %q holds the Lease here/nodegate, which lasts for %s\n", c.pods, c.holder, time.Duration(cmp.Or(c.lasts, 2))*time.Second)
				}
				if out.String() != waits {
					t.Errorf("output:\n%swant:\n%s", out, waits)
				}
			})
		})
	}
}

// lines records what is written, and when.
type lines struct {
	strings.Builder
	began time.Time
}

func (l *lines) Write(line []byte) (int, error) {
	fmt.Fprintf(&l.Builder, "%s: %s", time.Since(l.began), line)
	return len(line), nil
}

// A pod whose node does not end it may still run, so it is not ignored. The error names what to do.
func TestStopControllerNamesPods(t *testing.T) {
	pod := func(name, node, more string) string {
		return `{"metadata": {"name": "` + name + `"` + more + `}, "spec": {"nodeName": "` + node + `"}}`
	}
	const deleted = `, "deletionTimestamp": "1999-12-31T00:00:00Z", "deletionGracePeriodSeconds": 30`
	for name, c := range map[string]struct {
		pods []string
		want string
	}{
		"running": {[]string{pod("nodegate-1", "n1", ""), pod("nodegate-2", "", "")},
			"nodegate is still running (pods in namespace here: nodegate-1 on node n1, nodegate-2): stop it, and run the command again"},
		"on a dead node": {[]string{pod("nodegate-1", "n1", ""), pod("nodegate-2", "n2", deleted)},
			"nodegate may still be running (pods in namespace here: nodegate-1 on node n1, nodegate-2 on node n2): " +
				"the kubelet does not report the end of pods that are being deleted (nodegate-2). If the machine no longer exists, delete its Node (kubectl delete node n2). " +
				"If the machine is certainly off, delete the pod (kubectl -n here delete pod nodegate-2 --force --grace-period=0). Then run the command again"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := uninstallerOf(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/api/v1/namespaces/here/pods" {
						http.NotFound(w, r)
						return
					}
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"apiVersion": "v1", "kind": "PodList", "items": [`+strings.Join(c.pods, ",")+"]}") // never fails
				})
				var out strings.Builder
				u.Out = &out
				if err := u.stopController(t.Context()); err == nil || err.Error() != c.want {
					t.Errorf("error %v, want %q", err, c.want)
				}
				if got := strings.Count(out.String(), "waiting for nodegate to stop: pods in namespace here: nodegate-1 on node n1, nodegate-2"); got != 1 {
					t.Errorf("%q contains what it waits for %d times, want once", out.String(), got)
				}
			})
		})
	}
}

// Uninstalling is incomplete if the last attempt to release a node has failed. The first attempt may
// fail, such as because of a webhook that is deleted meanwhile.
func TestNodeStaysClosed(t *testing.T) {
	for name, c := range map[string]struct {
		denied, attempts int
		want             error
	}{
		"released":         {0, 2, nil},
		"denied at first":  {1, 2, nil},
		"denied each time": {2, 2, ErrIncomplete},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &nodesAPI{nodes: []corev1.Node{closedNode()}}
				config := &rest.Config{Transport: kubetest.Transport(func(w http.ResponseWriter, r *http.Request) {
					if a.denied = nil; len(a.patches) < c.denied {
						a.denied = []string{"n1"}
					}
					a.answer(w, r)
				})}
				var out strings.Builder
				err := Run(t.Context(), config, Options{Namespace: "here", ServiceAccount: "me", Out: &out})
				if not := strings.Count(out.String(), "node/n1 not released: "); !errors.Is(err, c.want) || not != c.denied || len(a.patches) != c.attempts {
					t.Errorf("error %v, want %v; patches %q; output:\n%s", err, c.want, a.patches, &out)
				}
			})
		})
	}
}

// closedNode returns a Node on which a gate is closed.
func closedNode() corev1.Node {
	return corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid", ResourceVersion: "7", Annotations: map[string]string{
			v1alpha1.RecordAnnotationPrefix + "g": `{"state":"Closed","reason":"Birth","taint":"a/a:NoSchedule","source":"crd"}`,
		}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a/a", Effect: corev1.TaintEffectNoSchedule}}},
	}
}

// uninstallerOf returns an uninstaller that calls a function instead of an API server.
func uninstallerOf(answer kubetest.Transport) *uninstaller {
	config := &rest.Config{Transport: answer, QPS: -1}
	return &uninstaller{
		Options: Options{Namespace: "here", Out: io.Discard}, reported: make(map[object]bool),
		core: kubernetes.NewForConfigOrDie(config), objects: metadata.NewForConfigOrDie(config),
	}
}
