// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// CatchUpNodes reads the nodes of a small fleet. In a larger one, it waits until the watch has delivered
// all changes, or a bookmark or a change that comes after them, but not forever.
func TestCatchUpNodes(t *testing.T) {
	boot := func(id string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.NodeInfo.BootID = id }
	}
	change := func(nodes *fakeKind) { // of the last node
		name := fmt.Sprintf("n%03d", len(nodes.objects)-1)
		nodes.Put(kubetest.Node(name, types.UID(name), boot("changed")))
	}
	later := func(at time.Duration, do func(*fakeKind)) func(*fakeKind) {
		return func(nodes *fakeKind) { time.AfterFunc(at, func() { do(nodes) }) }
	}
	resume := func(nodes *fakeKind) {
		nodes.api.set(func() { nodes.muted = false })
		nodes.hangUp()
	}
	for name, c := range map[string]struct {
		nodes int
		late  bool            // the watch delivers nothing
		since func(*fakeKind) // what happens since the nodes were read
		took  time.Duration
		want  string // the error
		boot  string // of the last node
	}{
		"a small fleet":                  {nodes: 3, since: change, boot: "changed"},
		"a small fleet, late":            {nodes: 3, late: true, since: change, boot: "changed"},
		"a large fleet":                  {nodes: smallFleet + 1, since: change, boot: "changed"},
		"a large fleet, late for a time": {nodes: smallFleet + 1, late: true, since: func(k *fakeKind) { change(k); later(5*time.Second, resume)(k) }, took: 5 * time.Second, boot: "changed"},
		"a large fleet, late for long":   {nodes: smallFleet + 1, late: true, since: change, took: reflector.CatchUpTimeout, want: "have not been observed", boot: "boot"},
		"a large fleet without a change": {nodes: smallFleet + 1, boot: "boot"},
		"something else has changed": {
			nodes: smallFleet + 1, boot: "boot", took: 3 * time.Second,
			since: func(nodes *fakeKind) {
				nodes.api.gates().Put(kubetest.Gate("a"))
				later(3*time.Second, func(nodes *fakeKind) { nodes.Put(kubetest.Node("n001", "n001", boot("boot"))) })(nodes)
			},
		},
		"not permitted": {nodes: 3, since: func(nodes *fakeKind) {
			nodes.err = apierrors.NewForbidden(corev1.Resource("nodes"), "", errors.New("denied"))
		}, want: "listing Nodes", boot: "boot"},
	} {
		t.Run(name, func(t *testing.T) {
			runFeed(t, func(api *fakeAPI) {
				api.nodes().streamErr = errors.New("not supported") // a fake watch has a small buffer
				for i := range c.nodes {
					name := fmt.Sprintf("n%03d", i)
					api.nodes().Put(kubetest.Node(name, types.UID(name), boot("boot")))
				}
			}, func(t *testing.T, f *testFeed) {
				nodes := f.api.nodes()
				f.api.set(func() { nodes.muted = c.late })
				if c.since != nil {
					c.since(nodes)
				}
				began := time.Now()
				err := f.CatchUpNodes(t.Context())
				if took := time.Since(began).Round(time.Second); took != c.took {
					t.Errorf("waited for %s, want %s", took, c.took)
				}
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("error %v, want %q", err, c.want)
				}
				synctest.Wait()
				if boot := f.facts(t, fmt.Sprintf("n%03d", c.nodes-1)).Node.BootID; boot != c.boot {
					t.Errorf("the boot is %q, want %q", boot, c.boot)
				}
			})
		})
	}
}
