// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// Only the API server knows that a Node does not exist. Another answer with the same code, such as that
// of a proxy, is an error: a node that is dropped returns only when it changes.
func TestRefreshThroughAProxy(t *testing.T) {
	runFeed(t, func(api *fakeAPI) { api.nodes().Put(kubetest.Node("a", "a1")) }, func(t *testing.T, f *testFeed) {
		f.handler.take()
		f.sources.node = func(_ context.Context, name string) (*corev1.Node, error) {
			return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "get", corev1.Resource("nodes"), name, "404 page not found", 0, true)
		}
		if err := f.Refresh(t.Context(), "a"); err == nil {
			t.Error("refreshing succeeded, want an error")
		}
		f.wantChanged(t, "the answer of a proxy")
		f.facts(t, "a")
	})
}
