// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// An author of gates can add a lot of metadata to each of them. Nothing reads it, and
// it is not kept: otherwise, a few hundred gates would use up the memory of every replica.
func TestMetadataOfGatesIsNotKept(t *testing.T) {
	s := kubetest.Start(t)
	s.Define(t)
	t.Cleanup(func() { s.Undefine(t) })
	const gates = 30
	patch := []byte(`{"metadata":{"annotations":{"example.com/a":"` + strings.Repeat("x", 250<<10) + `"}}}`)
	for i := range gates {
		name := fmt.Sprint("large-", i)
		s.Gate(t, name)
		if _, err := s.Dynamic.Resource(v1alpha1.Resource).Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	kept := heapSize(func() any {
		f, _ := observeAs(t, s.Admin())
		kubetest.Eventually(t, "the gates are observed", func() bool { all, _ := f.Gates(); return len(all) == gates })
		return f
	})
	if total := float64(gates * len(patch)); kept > total/4 {
		t.Errorf("%.1f MiB are kept of gates with %.1f MiB of metadata", kept/(1<<20), total/(1<<20))
	}
}
