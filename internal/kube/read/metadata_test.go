// SPDX-License-Identifier: Apache-2.0

package read

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

func newTestReader(t *testing.T, s *kubetest.Server) *Reader {
	t.Helper()
	r, err := NewReader(s.Admin())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// NodeMetadata returns the facts that the metadata of the selected Nodes contain.
func TestNodeMetadata(t *testing.T) {
	s := kubetest.Start(t)
	node := s.Node(t, "listed", func(n *corev1.Node) {
		n.Labels["example.com/roster"] = "x"
		n.Annotations = map[string]string{v1alpha1.RecordAnnotationPrefix + "a": "r", v1alpha1.OverrideAnnotationPrefix + "b": "o", "other": "z"}
	})
	s.Node(t, "unlisted")
	for _, selection := range []NodeSelection{{Name: "listed"}, {Labels: "example.com/roster=x"}, {Name: "listed", Labels: "example.com/roster"}} {
		nodes, err := newTestReader(t, s).NodeMetadata(t.Context(), selection)
		if err != nil || len(nodes) != 1 {
			t.Fatalf("%+v: %d nodes, %v", selection, len(nodes), err)
		}
		n := nodes[0]
		if n.Name != "listed" || n.UID != node.UID || !n.Created.Equal(node.CreationTimestamp.Time) || n.Labels["example.com/roster"] != "x" || n.Records["a"] != "r" || n.Overrides["b"] != "o" || !n.HasAnnotations {
			t.Errorf("%+v: %+v", selection, n)
		}
	}
}
