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
	e.declare(newGate("agent", keyA, byLabel("ready")))
	fleet := make([]*kubelet, 20)
	for i := range fleet {
		fleet[i] = e.kubelet(fmt.Sprintf("n%02d", i))
	}
	become := func(state string) {
		t.Helper()
		for _, k := range fleet {
			k.becomes("agent", state, keyA)
		}
	}
	e.each(fleet, func(k *kubelet) { k.register() })
	e.each(fleet, func(k *kubelet) { k.label("ready") })
	become(isOpen)
	e.each(fleet, func(k *kubelet) { k.unlabel("ready"); k.reboot() })
	become(isClosed)
	e.each(fleet, func(k *kubelet) { k.label("ready") })
	become(isOpen)
	for _, k := range fleet {
		k.wrote(3) // opened, closed, opened
	}
	e.awaitCounts("agent", v1alpha1.NodeCounts{Selected: 20, Open: 20})
	if closed := e.closedAtBirth(); len(closed) != 1 {
		t.Errorf("the API server closes %v on new nodes, want one gate", closed)
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
		t.Errorf("the Node was created with taints %v, want %s", keys(born), keyB)
	}
	e.awaitCounts("agent", v1alpha1.NodeCounts{Selected: 1, Closed: 1}) // of the second gate
	// The controller's write of the first gate's status.
	body := `[{"op":"test","path":"/metadata/uid","value":"` + string(first.UID) + `"},{"op":"add","path":"/status","value":{"observedGeneration":99}}]`
	err := e.admin.Status().Patch(t.Context(), second.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(body)))
	if !apierrors.IsInvalid(err) {
		t.Errorf("writing the first gate's status to the second: %v, want it rejected", err)
	}
}
