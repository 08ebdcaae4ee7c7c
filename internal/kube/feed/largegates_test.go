// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"fmt"
	"runtime"
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
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	total, before := float64(gates*len(patch)), heap()
	f, _ := observeAs(t, s.Admin())
	kubetest.Eventually(t, "the gates are observed", func() bool { all, _ := f.Gates(); return len(all) == gates })
	// The last page may still be referenced when its gates are observed.
	kubetest.Eventually(t, fmt.Sprintf("less than a quarter of %.1f MiB of metadata is kept", total/(1<<20)), func() bool { return heap()-before < total/4 })
	runtime.KeepAlive(f)
}
