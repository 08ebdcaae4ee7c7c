// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/internal/controller"
)

// The administrator's list of keys exists in the policies and in the controller's flag, and
// one key is missing in the policies. The gate with this key cannot work; the others on the
// same node must.
func TestKeyThatOnlyTheControllerKnows(t *testing.T) {
	const forgotten = ownPrefix + "forgotten"
	e := newEnv(t)
	e.runController(func(p *controller.Process) {
		p.Options.AllowedTaintKeys = append(slices.Clone(installation.AllowedTaintKeys), forgotten)
	})
	e.must(e.admin.Create(t.Context(), newGate("forgotten", forgotten, byLabel("ready"))))
	e.eventually("the gate says that new nodes are not closed", func() error {
		return e.condition("forgotten", "Ready", metav1.ConditionFalse, "BirthNotProved")
	})
	e.declare(newGate("listed", keyA, byLabel("ready"))) // both are written at once
	k := e.kubelet("n1")
	k.register()
	e.must(k.is("listed", isClosed, keyA))
	e.eventually("the gate reports the denial", func() error {
		return e.condition("forgotten", "Ready", metav1.ConditionFalse, "WriteDenied")
	})

	k.label("ready")
	k.becomes("listed", isOpen, keyA)
	k.becomes("forgotten", isOpen, forgotten) // it never was closed
}

// The same for the list of annotations: a gate opens without writing its annotation.
func TestStampThatOnlyTheControllerKnows(t *testing.T) {
	const forgotten = "example.com/forgotten-at"
	e := newEnv(t)
	e.runController(func(p *controller.Process) {
		p.Options.AllowedStampAnnotations = append(slices.Clone(installation.AllowedStampAnnotations), forgotten)
	})
	stamped := newGate("stamped", keyA, byLabel("ready"))
	stamped.Spec.OpenedAtAnnotation = forgotten
	e.declare(stamped)
	k := e.kubelet("n1")
	k.register()
	e.must(k.is("stamped", isClosed, keyA))
	k.label("ready")
	k.becomes("stamped", isOpen, keyA)
	if annotations := k.node().Annotations; annotations[forgotten] != "" {
		t.Errorf("the policy let the node be stamped: %v", annotations)
	}
}

// The controller's permissions are revoked, and granted again later.
func TestRightsAreTakenAwayForAWhile(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	k.register()
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "nodegate"}}
	e.must(e.admin.Delete(t.Context(), binding))
	t.Cleanup(func() { e.must(e.apply(context.Background())) }) // the test's own context has ended

	k.label("ready")
	e.eventually("the controller is refused", func() error { return e.refused("n1") })
	e.must(k.is("agent", isClosed, keyA))
	e.must(e.apply(t.Context()))
	k.becomes("agent", isOpen, keyA)
	k.wrote(1)
}

// refused returns nil after a node write of the controller was rejected.
func (e *env) refused(node string) error {
	for _, event := range e.audit() {
		if ref := event.ObjectRef; ref.Resource == "nodes" && ref.Name == node && event.Verb == "patch" &&
			event.User.Username == installationUser && event.ResponseStatus.Code == 403 {
			return nil
		}
	}
	return errNotYet
}

// Closing at creation is disabled as described in the runbook, and enabled again. The
// controller closes the nodes that are created in between.
func TestBirthIsSwitchedOffAndOn(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "nodegate-birth"}}
	e.must(e.admin.Delete(t.Context(), binding))
	t.Cleanup(func() { e.must(e.apply(context.Background())) })
	var born []*kubelet
	e.eventually("nodes are born open", func() error {
		k := e.kubelet(fmt.Sprintf("off-%d", len(born)))
		born = append(born, k)
		if hasTaint(k.register(), keyA) {
			return errNotYet
		}
		return nil
	})
	for _, k := range born {
		k.becomes("agent", isClosed, keyA)
	}
	e.must(e.apply(t.Context()))
	e.eventually("nodes are born closed again", func() error {
		k := e.kubelet(fmt.Sprintf("on-%d", len(born)))
		born = append(born, k)
		if !hasTaint(k.register(), keyA) {
			return errNotYet
		}
		return nil
	})
	for _, k := range born {
		k.label("ready")
	}
	for _, k := range born {
		k.becomes("agent", isOpen, keyA)
	}
}
