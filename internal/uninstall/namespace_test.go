// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// The command ends when the namespace no longer exists: until then, nodegate cannot be installed
// there again. If the namespace stays, the error says how to find out why.
func TestDeleteNamespaceWaits(t *testing.T) {
	const stays = "namespace/here is still being deleted: find out what it waits for (kubectl describe namespace here), and run the command again"
	for name, c := range map[string]struct {
		// terminating specifies whether another client has deleted the namespace, and ends is the time
		// after which it no longer exists.
		terminating bool
		ends        time.Duration
		took        time.Duration
		want        string
	}{
		"ends immediately":  {false, 0, 0, ""},
		"ends later":        {false, 7 * time.Second, 7 * time.Second, ""},
		"stays":             {false, time.Hour, settleLimit, stays},
		"deleted by others": {true, 7 * time.Second, 7 * time.Second, ""},
		"stays for others":  {true, time.Hour, settleLimit, stays},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, deleted := time.Now(), c.terminating
				answer := func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/api" || r.URL.Path == "/apis" { // no kinds of objects
						w.Header().Set("Content-Type", "application/json")
						_, _ = io.WriteString(w, "{}") // never fails
						return
					}
					if r.URL.Path == "/api/v1/namespaces/here" && (!deleted || time.Since(began) < c.ends) {
						deleted = deleted || r.Method == http.MethodDelete
						deletion := ""
						if deleted {
							deletion = `, "deletionTimestamp": "1999-12-31T00:00:00Z"`
						}
						w.Header().Set("Content-Type", "application/json")
						fmt.Fprintf(w, `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "here"%s}}`, deletion)
						return
					}
					http.NotFound(w, r)
				}
				u := uninstallerOf(answer)
				u.kinds = discovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Transport: kubetest.Transport(answer)})
				var out strings.Builder
				u.Out = &out
				err := u.deleteNamespace(t.Context())
				if took := time.Since(began); took < c.took || took > c.took+time.Second || (err != nil) != (c.want != "") || err != nil && err.Error() != c.want {
					t.Errorf("after %s: %v; want %q after %s", took, err, c.want, c.took)
				}
				if !deleted || strings.Contains(out.String(), "deleted") == c.terminating {
					t.Errorf("deleted %t, output %q", deleted, &out)
				}
			})
		})
	}
}
