// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"slices"
	"testing"

	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// allocatable returns a node with these resources: name, quantity, name, quantity.
func allocatable(list ...string) *world {
	return aNode(func(w *world) {
		w.facts.Node.Allocatable = make(map[string]apiresource.Quantity)
		for pair := range slices.Chunk(list, 2) {
			w.facts.Node.Allocatable[pair[0]] = apiresource.MustParse(pair[1])
		}
	})
}

func TestResource(t *testing.T) {
	const (
		gpu  = "nvidia.com/gpu"
		less = v1alpha1.ReadingInsufficient
	)
	s := mustCompile(t, v1alpha1.SignalSource{Resource: &v1alpha1.ResourceSignal{Name: gpu}})
	check(t, s, map[string]reads{
		"one":                        {allocatable(gpu, "1"), gate.Holds, matches, "resource nvidia.com/gpu=1"},
		"more":                       {allocatable(gpu, "8"), gate.Holds, matches, "resource nvidia.com/gpu=8"},
		"none":                       {allocatable(gpu, "0"), gate.NotYet, less, "resource nvidia.com/gpu=0"},
		"missing":                    {allocatable(), gate.NotYet, absent, "resource nvidia.com/gpu"},
		"a node without allocatable": {aNode(), gate.NotYet, absent, "resource nvidia.com/gpu"},
		"another":                    {allocatable("nvidia.com/gpu-shared", "8"), gate.NotYet, absent, "resource nvidia.com/gpu"},
		"less than zero":             {allocatable(gpu, "-1"), gate.NotYet, less, "resource nvidia.com/gpu=-1"},
	})
	four := apiresource.MustParse("4Gi")
	pages := mustCompile(t, v1alpha1.SignalSource{Resource: &v1alpha1.ResourceSignal{Name: "hugepages-2Mi", AtLeast: &four}})
	check(t, pages, map[string]reads{
		"as much":                 {allocatable("hugepages-2Mi", "4Gi"), gate.Holds, matches, "resource hugepages-2Mi=4Gi"},
		"as much in another unit": {allocatable("hugepages-2Mi", "4096Mi"), gate.Holds, matches, "resource hugepages-2Mi=4Gi"},
		"a little less":           {allocatable("hugepages-2Mi", "4095Mi"), gate.NotYet, less, "resource hugepages-2Mi=4095Mi"},
		"as many bytes":           {allocatable("hugepages-2Mi", "4"), gate.NotYet, less, "resource hugepages-2Mi=4"},
	})
	if n := s.Needs(nil); !slices.Equal(n.Resources, []string{gpu}) || s.ProvesBoot() {
		t.Errorf("needs = %+v, proves boot: %v", n, s.ProvesBoot())
	}
}
