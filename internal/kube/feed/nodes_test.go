// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"

	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// A watch that has fallen too far behind may have missed any event: there are no facts
// until everything has been read again.
func TestUnknownWhileRelisting(t *testing.T) {
	for name, streams := range map[string]bool{"streamed": true, "listed": false} {
		t.Run(name, func(t *testing.T) {
			clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, streams)
			runFeed(t, func(api *fakeAPI) { api.nodes().Put(kubetest.Node("a", "1")) }, func(t *testing.T, f *testFeed) {
				nodes := f.api.nodes()
				reads, known := 0, 0
				f.api.set(func() {
					nodes.onRead = func() {
						reads++
						if f.NodesSynced() {
							known++
						}
					}
				})
				kubetest.Pass(2 * time.Second)
				nodes.expire()
				kubetest.Pass(time.Minute)
				synctest.Wait()
				if reads == 0 || known > 0 {
					t.Errorf("read again %d times, and %d times NodesSynced was true meanwhile", reads, known)
				}
				f.facts(t, "a")
			})
		})
	}
}

// Nodes that are containers on the same host have the same boot ID.
func TestNodesWithTheSameBoot(t *testing.T) {
	booted := func(name, boot string) *corev1.Node {
		return kubetest.Node(name, types.UID(name), func(n *corev1.Node) { n.Status.NodeInfo.BootID = boot })
	}
	runFeed(t, func(api *fakeAPI) {
		for _, n := range []*corev1.Node{booted("a", "host"), booted("b", "own"), booted("c", "host"), booted("d", ""), booted("e", "")} {
			api.nodes().Put(n)
		}
	}, func(t *testing.T, f *testFeed) {
		same := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if got := slices.Sorted(slices.Values(f.SameBoot())); !slices.Equal(got, want) {
				t.Errorf("SameBoot = %v, want %v", got, want)
			}
		}
		same("a", "c")
		f.api.nodes().Put(booted("b", "host"))
		same("a", "b", "c")
		f.api.nodes().remove("a")
		f.api.nodes().Put(booted("b", "own"))
		same()
	})
}
