// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/internal/expression"
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

// Every field of nodeInfo that expressions may use can be stored: all strings except one
// that Kubernetes no longer sets.
func TestNodeInfoFields(t *testing.T) {
	var all corev1.NodeSystemInfo
	v := reflect.ValueOf(&all).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if v.Field(i).Kind() != reflect.String || name == "kubeProxyVersion" {
			continue
		}
		v.Field(i).SetString(name + "!")
		if _, err := expression.Compile("has(nodeInfo." + name + ")"); err != nil {
			t.Error(err)
		}
		if got := infoField(&all, name); got != name+"!" {
			t.Errorf("%s is kept as %q", name, got)
		}
	}
}
