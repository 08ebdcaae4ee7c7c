// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Two controllers that act as leader at the same time cause no errors: every opening and
// closing is written once, and neither reverts the other's writes.
func TestTwoLeadersAtOnce(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.startController(0)
	ng := e.declare(newGate("agent", keyA, byLabel("ready")))
	var fleet []*kubelet
	for i := range 20 {
		fleet = append(fleet, e.kubelet(fmt.Sprintf("n%02d", i)))
	}
	e.each(fleet, func(k *kubelet) { k.register() })
	e.each(fleet, func(k *kubelet) { k.patch(`{"metadata":{"labels":{"ready":""}}}`) })
	for _, k := range fleet {
		k.becomes("agent", isOpen, keyA)
	}
	// They reboot without what makes them fit, and come back with it.
	e.each(fleet, func(k *kubelet) { k.patch(`{"metadata":{"labels":{"ready":null}}}`); k.reboot() })
	for _, k := range fleet {
		k.becomes("agent", isClosed, keyA)
	}
	e.each(fleet, func(k *kubelet) { k.patch(`{"metadata":{"labels":{"ready":""}}}`) })
	for _, k := range fleet {
		k.becomes("agent", isOpen, keyA)
	}
	for _, k := range fleet {
		if writes := e.nodeWrites(k.name); len(writes) != 3 {
			t.Errorf("node %s was written %d times to open, close and open, want 3:\n%v", k.name, len(writes), writes)
		}
	}
	e.eventually("the status counts every node once", func() error {
		e.must(e.admin.Get(t.Context(), client.ObjectKeyFromObject(ng), ng))
		if want := (v1alpha1.NodeCounts{Selected: 20, Open: 20}); ng.Status.Nodes != want {
			return fmt.Errorf("counts: %+v", ng.Status.Nodes)
		}
		return nil
	})
	if closed := e.closedAtBirth(); len(closed) != 1 {
		t.Errorf("new nodes are closed by %v", closed)
	}
}

// A status is not written to a re-created gate with the same name.
func TestGateReplacedUnderItsName(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	first := e.declare(newGate("agent", keyA, byLabel("ready")))
	e.must(e.admin.Delete(t.Context(), first))
	second := e.declare(newGate("agent", keyB, byLabel("ready")))
	if first.UID == second.UID {
		t.Fatal("the gate was not replaced")
	}
	k := e.kubelet("n1")
	if born := k.register(); !hasTaint(born, keyB) || hasTaint(born, keyA) {
		t.Errorf("the Node was born with taints %v, want %s", keys(born), keyB)
	}
	e.eventually("the status is that of the second gate", func() error {
		e.must(e.admin.Get(t.Context(), client.ObjectKeyFromObject(second), second))
		if want := (v1alpha1.NodeCounts{Selected: 1, Closed: 1}); second.Status.Nodes != want {
			return fmt.Errorf("counts: %+v", second.Status.Nodes)
		}
		return nil
	})
	// As the controller writes it: of the first gate, to its name.
	body := `[{"op":"test","path":"/metadata/uid","value":"` + string(first.UID) + `"},{"op":"add","path":"/status","value":{"observedGeneration":99}}]`
	err := e.admin.Status().Patch(t.Context(), second.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(body)))
	if !apierrors.IsInvalid(err) {
		t.Errorf("writing the first gate's status to the second ended with %v, want it refused", err)
	}
}
