// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// leastNode is the minimum size of a Node in bytes, in JSON. Those of clouds are as large.
const leastNode = 13_000

// BenchmarkHandler measures the webhook's work for one new Node: reading the request, and the
// patch that closes the gates that select the Node. Connections are not included.
func BenchmarkHandler(b *testing.B) {
	node := kubetest.CloudNode(0)
	for key := range node.Annotations {
		if strings.HasPrefix(key, "gate.nodegate.dev/") { // a kubelet sends no records
			delete(node.Annotations, key)
		}
	}
	node.Status.Images = append(node.Status.Images, node.Status.Images[:20]...)
	object, err := json.Marshal(node)
	if err != nil {
		b.Fatal(err)
	}
	if len(object) < leastNode {
		b.Fatalf("the Node has %d bytes, less than a real one", len(object))
	}
	body := review(string(object))
	for _, selecting := range []int{0, 2, 20} {
		gates := make([]gate.Gate, 20)
		for i := range gates {
			selector := gpuOnly
			if i < selecting {
				selector = "kubernetes.io/hostname"
			}
			gates[i] = newGate(fmt.Sprintf("gate-%02d", i), fmt.Sprintf("example.com/gate-%02d", i), selector)
		}
		b.Run(fmt.Sprintf("selecting=%d/gates=%d", selecting, len(gates)), func(b *testing.B) {
			h := &Handler{Gates: known(gates...), Log: logr.Discard()}
			if got := strings.Count(string(answered(b, ask(b, h, body)).Patch), `"effect":"NoSchedule"`); got != selecting {
				b.Fatalf("%d gates are closed, want %d", got, selecting)
			}
			b.ReportAllocs()
			for b.Loop() {
				ask(b, h, body)
			}
		})
	}
}
