// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// A missing or expired Lease proves that nodegate is not running only if it is in nodegate's
// namespace.
func TestSurveyFindsTheInstallation(t *testing.T) {
	const bindingPath = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/nodegate"
	const leasePath = "/apis/coordination.k8s.io/v1/namespaces/nodegate-system/leases/nodegate"
	const forbidden = "forbidden"
	binding := func(namespace string) string {
		return `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "subjects": [{"kind": "ServiceAccount", "namespace": "` + namespace + `"}]}`
	}
	lease := func(holder string, age time.Duration, version int) string {
		return `{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"resourceVersion": "` + strconv.Itoa(version) + `"}, "spec": {"holderIdentity": "` + holder +
			`", "leaseDurationSeconds": 2, "renewTime": "` + time.Now().Add(-age).UTC().Format("2006-01-02T15:04:05.000000Z") + `"}}`
	}
	// Leases as of each read. The first read has number 1.
	stale := func(int) string { return lease("a", time.Hour, 1) }
	fresh := func(int) string { return lease("a", 0, 1) }
	renewedBy := func(age time.Duration) func(int) string { // by this machine's clock
		return func(read int) string { return lease("a", age, read) }
	}
	always := map[string]string{
		"/apis/nodegate.dev/v1alpha1/nodegates": `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "items": [{"metadata": {"name": "g"}}]}`,
	}
	const elsewhere = "nodegate is installed in namespace platform, not in nodegate-system"
	const refused = elsewhere + ", and may be running there: use --namespace=platform, or --force to release the nodes anyway"
	for name, c := range map[string]struct {
		objects map[string]string
		lease   func(read int) string
		force   bool
		// refusal is the expected error, without what follows "…", and remark a part of the remarks.
		refusal, remark string
	}{
		"not installed":                    {remark: "nodegate is not running"},
		"without a Lease":                  {objects: map[string]string{bindingPath: binding("nodegate-system")}, remark: "nodegate is not running"},
		"elsewhere":                        {objects: map[string]string{bindingPath: binding("platform")}, refusal: refused},
		"elsewhere, forced":                {objects: map[string]string{bindingPath: binding("platform")}, force: true, remark: "it is unknown whether nodegate is running (" + elsewhere},
		"elsewhere, and a Lease was left":  {objects: map[string]string{bindingPath: binding("platform")}, lease: stale, refusal: refused},
		"Lease expired, forced":            {objects: map[string]string{bindingPath: binding("nodegate-system")}, lease: stale, force: true, remark: "it is unknown whether nodegate is running (by this machine's clock, the Lease nodegate-system/nodegate is not renewed). If it is, "},
		"Lease in the future, forced":      {objects: map[string]string{bindingPath: binding("nodegate-system")}, lease: func(int) string { return lease("a", -time.Hour, 1) }, force: true, remark: "it is unknown whether nodegate is running (by this machine's clock, "},
		"Lease held, forced":               {objects: map[string]string{bindingPath: binding("nodegate-system")}, lease: fresh, force: true, remark: "nodegate is running. "},
		"Lease released, forced":           {objects: map[string]string{bindingPath: binding("nodegate-system")}, lease: func(int) string { return lease("", 0, 1) }, force: true, remark: "nodegate is not running"},
		"elsewhere, Lease expired, forced": {objects: map[string]string{bindingPath: binding("platform")}, lease: stale, force: true, remark: "it is unknown whether nodegate is running (" + elsewhere},
		"binding forbidden":                {objects: map[string]string{bindingPath: forbidden}, refusal: "it is unknown whether gates would close on these nodes again: determining nodegate's namespace: …"},
		"binding forbidden, Lease expired": {objects: map[string]string{bindingPath: forbidden}, lease: stale, remark: "nodegate is not running"},
		"binding forbidden, Lease held":    {objects: map[string]string{bindingPath: forbidden}, lease: fresh, refusal: "nodegate is running and …"},
		"the clock is ahead":               {objects: map[string]string{bindingPath: binding("nodegate-system")}, lease: renewedBy(20 * time.Second), refusal: "nodegate is running and …"},
		"the clock is far ahead":           {objects: map[string]string{bindingPath: binding("nodegate-system")}, lease: renewedBy(time.Hour), refusal: "nodegate is running and …"},
		"the clock is ahead, and the Lease is renewed when it has almost expired": {objects: map[string]string{bindingPath: binding("nodegate-system")},
			lease: func(read int) string { return lease("a", 20*time.Second, 1+read/6) }, refusal: "nodegate is running and …"},
		"the clock is behind":                                 {objects: map[string]string{bindingPath: binding("nodegate-system")}, lease: renewedBy(-time.Hour), refusal: "nodegate is running and …"},
		"the clock is behind, and the Lease is not renewed":   {objects: map[string]string{bindingPath: binding("nodegate-system")}, lease: func(int) string { return lease("a", -time.Hour, 1) }, remark: "nodegate is not running"},
		"the clock is ahead, and the Lease has been released": {objects: map[string]string{bindingPath: binding("nodegate-system")}, lease: func(read int) string { return lease("a"[min(read-1, 1):], time.Hour, read) }, remark: "nodegate is not running"},
		"the Lease becomes forbidden": {objects: map[string]string{bindingPath: binding("nodegate-system")}, lease: func(read int) string {
			if read > 1 {
				return forbidden
			}
			return stale(read)
		}, refusal: "it is unknown whether gates would close on these nodes again: reading the Lease …"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads := 0
				config := &rest.Config{Transport: kubetest.Transport(func(w http.ResponseWriter, r *http.Request) {
					object := cmp.Or(c.objects[r.URL.Path], always[r.URL.Path])
					if r.URL.Path == leasePath && c.lease != nil {
						reads++
						object = c.lease(reads)
					}
					switch object {
					case "":
						http.NotFound(w, r)
					case forbidden:
						http.Error(w, forbidden, http.StatusForbidden)
					default:
						w.Header().Set("Content-Type", "application/json")
						_, _ = io.WriteString(w, object) // never fails
					}
				})}
				options := Options{Namespace: "nodegate-system", Force: c.force}
				s, err := survey(t.Context(), config, metadata.NewForConfigOrDie(config), &options)
				if err != nil {
					t.Fatal(err)
				}
				remarks, refusal := s.judge([]*gate.Node{closedNode("n1")}, &options)
				text := strings.Join(remarks, "\n")
				got := ""
				if refusal != nil {
					got = refusal.Error()
				}
				beginning, more := strings.CutSuffix(c.refusal, "…")
				if got != c.refusal && (!more || !strings.HasPrefix(got, beginning)) || !strings.Contains(text, c.remark) {
					t.Errorf("error: %v; remarks: %s", refusal, text)
				}
			})
		})
	}
}

// A Lease that has expired by this machine's clock is observed for as long as it lasts, and no longer
// if the command is interrupted. The reason is reported before.
func TestSurveyWaits(t *testing.T) {
	const stale = "waiting for 3s to find out whether nodegate is running: \"a\\x1b\" holds the Lease nodegate-system/nodegate, but last renewed it at 1999-01-01T00:00:00Z, " +
		"and it is 2000-01-01T00:00:00Z by this machine's clock; --force does not wait"
	future := strings.Replace(stale, "1999-", "2001-", 1)
	for name, c := range map[string]struct {
		limit, want time.Duration
		force       bool
		renewed     string
		reason      string
	}{
		"until it has expired":      {time.Hour, 3 * time.Second, false, "1999", stale},
		"renewed in the future":     {time.Hour, 3 * time.Second, false, "2001", future},
		"interrupted":               {time.Second, time.Second, false, "1999", stale},
		"forced":                    {time.Hour, 0, true, "1999", ""},
		"renewed, so nothing waits": {time.Hour, 0, false, "2000", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := &rest.Config{Transport: kubetest.Transport(func(w http.ResponseWriter, r *http.Request) {
					if !strings.HasSuffix(r.URL.Path, "/leases/nodegate") {
						http.NotFound(w, r)
						return
					}
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "a\u001b", "leaseDurationSeconds": 2, "renewTime": "`+c.renewed+`-01-01T00:00:00.000000Z"}}`)
				})}
				ctx, cancel := context.WithTimeout(t.Context(), c.limit)
				defer cancel()
				began := time.Now()
				reason := ""
				_, err := survey(ctx, config, metadata.NewForConfigOrDie(config), &Options{
					Namespace: "nodegate-system", Force: c.force, Waiting: func(why string) { reason = why },
				})
				if took := time.Since(began); took != c.want || (err != nil) != (c.limit == c.want) || reason != c.reason {
					t.Errorf("it took %s, want %s; error: %v; reason: %s", took, c.want, err, reason)
				}
			})
		})
	}
}
