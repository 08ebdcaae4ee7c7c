// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A burst of openings must not make the leader lose its Lease, so renewals of the Lease have
// a FlowSchema of their own and do not queue behind patches.
func TestLeaseRenewalsHaveAFlowSchema(t *testing.T) {
	e := newEnv(t)
	config, err := e.cluster.ServiceAccount(t.Context(), installation.Namespace, installation.ServiceAccount)
	e.must(err)
	flowSchemaOf := func(path string) string {
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
	e.eventually("renewals match FlowSchema nodegate-leases", func() error { return unless(flowSchemaOf(renewals) == string(schema.UID)) })
	if flowSchemaOf("/api/v1/nodes") == string(schema.UID) {
		t.Error("reading nodes matches the FlowSchema of Lease renewals")
	}
}
