// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A burst of openings must not make the leader lose its Lease: renewals do not wait for
// patches.
func TestLeaseRenewalsHaveALaneOfTheirOwn(t *testing.T) {
	e := newEnv(t)
	config, err := e.cluster.ServiceAccount(t.Context(), installation.Namespace, installation.ServiceAccount)
	e.must(err)
	lane := func(path string) string {
		httpClient, err := rest.HTTPClientFor(config)
		e.must(err)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil)
		e.must(err)
		response, err := httpClient.Do(request)
		e.must(err)
		e.must(response.Body.Close())
		return response.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
	}
	var schema flowcontrolv1.FlowSchema
	e.must(e.admin.Get(t.Context(), client.ObjectKey{Name: "nodegate-leases"}, &schema))

	renewals := "/apis/coordination.k8s.io/v1/namespaces/" + installation.Namespace + "/leases/nodegate"
	e.eventually("renewals take the lane", func() error {
		if lane(renewals) != string(schema.UID) {
			return errNotYet
		}
		return nil
	})
	if lane("/api/v1/nodes") == string(schema.UID) {
		t.Error("reading nodes takes the lane of the lease's renewals")
	}
}
