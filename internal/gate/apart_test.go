// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
)

func TestApart(t *testing.T) {
	gpu := labels.Set{"pool": "gpu", "topology.kubernetes.io/zone": "a", "kubernetes.io/hostname": "n1"}
	cpu := labels.Set{"pool": "cpu", "type": "m5", "topology.kubernetes.io/zone": "b", "kubernetes.io/hostname": "n2"}
	for _, c := range []struct {
		a, b string
		// contradict is true if no node can match both; apart if no existing node does.
		contradict, apart bool
	}{
		{"", "", false, false},
		{"pool=gpu", "", false, false},
		{"pool=gpu", "pool=cpu", true, true},
		{"pool=gpu", "pool in (cpu,gpu)", false, false},
		{"pool=gpu", "pool notin (gpu)", true, true},
		{"pool=gpu", "!pool", true, true},
		{"pool", "!pool", true, true},
		{"pool", "pool notin (gpu)", false, false},
		{"pool notin (gpu)", "pool notin (cpu)", false, false},
		{"pool notin (gpu)", "!pool", false, false},
		{"pool in (cpu,gpu),pool notin (gpu)", "pool notin (cpu)", true, true},
		{"pool=gpu", "type=m5", false, true},
		{"pool=gpu,type notin (p5)", "type=m5,pool notin (mem)", false, true},
		{"pool=gpu", "type notin (p5),zone notin (a)", false, false},
		{"pool=gpu", "type=p5", false, false}, // none of the second yet
		{"pool=gpu", "pool=cpu,type=p5", true, true},
		{"pool=gpu,topology.kubernetes.io/zone=b", "pool", false, false},
		{"pool", "topology.kubernetes.io/zone=c", false, false},
		{"pool=gpu", "topology.kubernetes.io/zone=b", false, false},
		{"pool=gpu", "kubernetes.io/hostname=n2", false, false},
		{"pool=gpu", "type=m5,topology.kubernetes.io/zone=b", false, true},
		{"kubernetes.io/hostname=n1", "kubernetes.io/hostname=n2", true, true},
	} {
		parse := func(text string) labels.Selector {
			s, err := labels.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		for _, pair := range [][2]labels.Selector{{parse(c.a), parse(c.b)}, {parse(c.b), parse(c.a)}} {
			if got := Apart(pair[0], pair[1], nil); got != c.contradict {
				t.Errorf("%q and %q: apart without nodes is %t, want %t", pair[0], pair[1], got, c.contradict)
			}
			if got := Apart(pair[0], pair[1], slices.Values([]labels.Set{gpu, cpu})); got != c.apart {
				t.Errorf("%q and %q: apart is %t, want %t", pair[0], pair[1], got, c.apart)
			}
		}
	}
	// A property that any pool can have: existing GPU nodes do not have it, future ones may.
	for _, key := range []string{
		"kubernetes.io/arch", "beta.kubernetes.io/arch", "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/region",
		"topology.gke.io/zone", "topology.ebs.csi.aws.com/zone", "karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType",
		"cloud.google.com/gke-spot", "cloud.google.com/gke-provisioning", "kubernetes.azure.com/scalesetpriority",
	} {
		a, b := labels.SelectorFromSet(labels.Set{"pool": "gpu"}), labels.SelectorFromSet(labels.Set{key: "b"})
		nodes := slices.Values([]labels.Set{{"pool": "gpu", key: "a"}, {"pool": "cpu", key: "b"}})
		if Apart(a, b, nodes) || Apart(b, a, nodes) {
			t.Errorf("pool=gpu and %s=b are apart", key)
		}
		both := labels.SelectorFromSet(labels.Set{"pool": "cpu", key: "b"})
		if !Apart(a, both, nodes) {
			t.Errorf("pool=gpu and pool=cpu,%s=b are not apart", key)
		}
	}
	if Apart(nil, labels.Everything(), nil) {
		t.Error("an unknown selector is apart from all others")
	}
}
