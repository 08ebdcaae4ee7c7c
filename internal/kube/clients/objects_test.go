// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"github.com/nodegate/nodegate/internal/gate"
)

// verbs is a discovery client. Each of its kinds supports the verbs in its name.
type verbs struct {
	discovery.ServerResourcesInterfaceWithContext
	kinds []string
}

func (v verbs) ServerResourcesForGroupVersionWithContext(_ context.Context, version string) (*metav1.APIResourceList, error) {
	list := &metav1.APIResourceList{GroupVersion: version}
	// Another resource of the last kind, which only creates objects.
	list.APIResources = append(list.APIResources, metav1.APIResource{Name: "processed", Kind: v.kinds[len(v.kinds)-1], Verbs: []string{"create"}})
	for _, kind := range v.kinds {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: strings.ToLower(kind) + "s", Kind: kind, Verbs: strings.Split(kind, "-")})
	}
	return list, nil
}

// A kind that cannot be watched, such as NodeMetrics, is refused before it is listed. Each list
// would be followed by a watch that fails.
func TestKindsThatCannotBeWatched(t *testing.T) {
	kinds := []string{"get-list", "get-watch", "get-list-watch"}
	c := ObjectClients{discovery: verbs{kinds: kinds}}
	for _, kind := range kinds {
		resource, err := c.resource(t.Context(), gate.ObjectSource{Group: "metrics.k8s.io", Version: "v1beta1", Kind: kind})
		want := kind != "get-list-watch"
		if !want && resource.Resource != kind+"s" {
			t.Errorf("%s: resource %q", kind, resource.Resource)
		}
		if got := err != nil && strings.HasSuffix(err.Error(), "cannot be watched; use another kind"); got != want || (err != nil) != want {
			t.Errorf("%s: %v, want that it cannot be watched: %t", kind, err, want)
		}
	}
}
