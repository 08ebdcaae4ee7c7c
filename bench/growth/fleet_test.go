// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/bench/steady"
	"github.com/nodegate/nodegate/internal/gate"
)

// The records of a node that joins contain its boot, as those that the API server writes do.
// Otherwise nodegate would add it, with one more patch.
func TestRecordsOfJoiningNodes(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
	node.Status.NodeInfo.BootID = "boot"
	closeAll(node)
	for _, name := range steady.GateNames {
		record, err := gate.ParseRecord(node.Annotations[v1alpha1.RecordAnnotationPrefix+name])
		if err != nil || record.Boot != "boot" || record.State != v1alpha1.StateClosed {
			t.Errorf("%s: %+v, %v; want a closed gate with the node's boot", name, record, err)
		}
	}
}

// An edit has an effect when the gate's status is of its generation.
func TestEditsAreObserved(t *testing.T) {
	g := &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: "g", Generation: 2}}
	g.Status.ObservedGeneration = 2
	for want, before := range map[bool]int64{true: 1, false: 2} {
		if err := observedEdit(g, before); (err == nil) != want {
			t.Errorf("generation %d before: %v", before, err)
		}
	}
	g.Status.ObservedGeneration = 1
	if err := observedEdit(g, 1); err == nil {
		t.Error("an edit that nodegate has not observed is accepted")
	}
}
