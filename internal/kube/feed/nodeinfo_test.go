// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"maps"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

func TestNodeInfoThatBecomesNeeded(t *testing.T) {
	kernel := func(version, image string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion, n.Status.NodeInfo.OSImage = version, image }
	}
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1", kernel("6.1", "Debian")))
	}, func(t *testing.T, f *testFeed) {
		if n := f.facts(t, "a").Node; n.Info != nil {
			t.Errorf("%v before it is needed", n.Info)
		}
		f.SetNeeds(gate.Needs{NodeInfo: []string{"kernelVersion", "machineID"}})
		synctest.Wait()
		if got := f.facts(t, "a").Node.Info; !maps.Equal(got, map[string]string{"kernelVersion": "6.1"}) {
			t.Errorf("kept %v", got)
		}
		f.handler.take()
		f.api.nodes().Put(kubetest.Node("a", "a1", kernel("6.12", "Debian")))
		f.wantChanged(t, "another kernel", "a")
		f.api.nodes().Put(kubetest.Node("a", "a1", kernel("6.12", "Ubuntu")))
		f.wantChanged(t, "field that is not needed")
	})
}
