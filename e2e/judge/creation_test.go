// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// sentWith makes the last request one that created node "a", and sent it with these changes.
func (s *builder) sentWith(change ...func(*corev1.Node)) *builder {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{}, Annotations: map[string]string{}}}
	for _, f := range change {
		f(node)
	}
	s.writes[len(s.writes)-1].Sent = node
	return s
}

func noted(value string) func(*corev1.Node) {
	return func(node *corev1.Node) { node.Annotations["x"] = value }
}

func owned(node *corev1.Node) { node.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }

// creationHistories are histories of what is changed while a Node is being created.
var creationHistories = []history{
	{RuleForeign, "a Node is created with what it was sent with", "", func(s *builder) {
		s.gate().born("a", withTaint("b"), withTaint("c"), labelled, noted("1")).sentWith(withTaint("b"), withTaint("c"), labelled, noted("1"))
	}},
	{RuleForeign, "a Node is created with the gate's taint, with which it was sent", "", func(s *builder) {
		s.gate().born("a").sentWith(withTaint(gateTaint))
	}},
	{RuleForeign, "a Node is created without a taint", "changes spec.taints", func(s *builder) {
		s.gate().born("a", withTaint("c")).sentWith(withTaint("b"), withTaint("c"))
	}},
	{RuleForeign, "a Node is created with taints in another order", "changes spec.taints", func(s *builder) {
		s.gate().born("a", withTaint("c"), withTaint("b")).sentWith(withTaint("b"), withTaint("c"))
	}},
	{RuleForeign, "a Node is created without a label", "changes metadata.labels.fit", func(s *builder) {
		s.gate().born("a").sentWith(labelled)
	}},
	{RuleForeign, "a Node is created with another annotation", "changes metadata.annotations.x", func(s *builder) {
		s.gate().born("a", noted("2")).sentWith(noted("1"))
	}},
	{RuleForeign, "a Node is created without a forged record", "", func(s *builder) {
		s.gate().born("a").sentWith(func(n *corev1.Node) { n.Annotations[v1alpha1.RecordAnnotationPrefix+"other"] = "{}" })
	}},
	{RuleForeign, "a Node is created without its far too many annotations", "", func(s *builder) {
		s.gate().born("a").sentWith(manyAnnotations, manyAnnotationsMore)
	}},
	{RuleForeign, "a Node is created without its many annotations", "changes metadata.annotations.x1", func(s *builder) {
		s.gate().born("a").sentWith(manyAnnotations)
	}},
	{RuleForeign, "a Node is created with a finalizer", "changes metadata.finalizers", func(s *builder) {
		s.gate().born("a", withFinalizer("example.com/x")).sentWith()
	}},
	{RuleForeign, "a Node is created with the finalizer with which it was sent", "", func(s *builder) {
		s.gate().born("a", withFinalizer("example.com/x")).sentWith(withFinalizer("example.com/x"))
	}},
	{RuleForeign, "a Node is sent with empty lists", "", func(s *builder) {
		s.gate().born("a").sentWith(func(n *corev1.Node) { n.Spec.Taints, n.Finalizers = []corev1.Taint{}, []string{} })
	}},
	{RuleForeign, "a Node is created with an owner", "changes metadata.ownerReferences", func(s *builder) {
		s.gate().born("a", owned).sentWith()
	}},
	{RuleForeign, "a Node is created cordoned", "changes spec.unschedulable", func(s *builder) {
		s.gate().born("a", func(n *corev1.Node) { n.Spec.Unschedulable = true }).sentWith()
	}},
}

// manyAnnotationsMore gives a node so many annotations that it is created without them.
func manyAnnotationsMore(node *corev1.Node) {
	for i := range 4097 {
		node.Annotations[fmt.Sprint("y", i)] = ""
	}
}

// The request that created a Node is compared only with the Node's first revision.
func TestCreationIsComparedOnce(t *testing.T) {
	s := newBuilder(t)
	s.gate().born("a", labelled).sentWith(labelled).edit(admin, "a", unlabelled)
	if v := s.judged(); slices.Contains(v.Broken(), RuleForeign) {
		t.Errorf("the verdict is\n%s", text(t, v))
	}
}
