// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/internal/controller"
)

// The allowed keys are listed in the policies and in the controller's flag, and one key is
// missing in the policies. The gate with this key cannot work. The others on the same node
// must.
func TestKeyThatOnlyTheControllerKnows(t *testing.T) {
	const forgotten = ownPrefix + "forgotten"
	e := newEnv(t)
	e.runController(func(p *controller.Process) {
		p.Options.AllowedTaintKeys = append(slices.Clone(installation.AllowedTaintKeys), forgotten)
	})
	e.must(e.admin.Create(t.Context(), newGate("forgotten", forgotten, byLabel("ready"))))
	e.eventually("the gate reports that it is not closed on new nodes", func() error {
		return e.condition("forgotten", "Ready", metav1.ConditionFalse, "BirthNotProved")
	})
	e.declare(newGate("listed", keyA, byLabel("ready"))) // one patch contains both gates
	k := e.kubelet("n1")
	k.register()
	e.must(k.is("listed", isClosed, keyA))
	e.eventually("the gate reports the denial", func() error {
		return e.condition("forgotten", "Ready", metav1.ConditionFalse, "WriteDenied")
	})

	k.label("ready")
	k.becomes("listed", isOpen, keyA)
	k.becomes("forgotten", isOpen, forgotten) // it has never been closed
}

// One annotation is missing in the policies. The gate opens without writing it.
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
		t.Errorf("the controller wrote an annotation that the policy does not allow: %v", annotations)
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
	e.eventually("the API server denies writes of nodes", func() error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: installationUser, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes"},
		}}
		e.must(e.admin.Create(t.Context(), review))
		return errUnless(!review.Status.Allowed, "they are allowed")
	})

	k.label("ready")
	e.eventually("a write of the controller is denied", func() error { return e.refused("n1") })
	e.must(k.is("agent", isClosed, keyA))
	e.must(e.apply(t.Context()))
	k.becomes("agent", isOpen, keyA)
	k.wrote(1)
}

// refused returns nil if the API server has denied a write of the node by the controller.
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
	registerUntil := func(prefix string, closed bool) {
		t.Helper()
		e.eventually(fmt.Sprintf("nodes are created with the taint: %v", closed), func() error {
			k := e.kubelet(fmt.Sprintf("%s-%d", prefix, len(born)))
			born = append(born, k)
			return unless(hasTaint(k.register(), keyA) == closed)
		})
	}
	registerUntil("off", false)
	for _, k := range born {
		k.becomes("agent", isClosed, keyA)
	}
	e.must(e.apply(t.Context()))
	registerUntil("on", true)
	for _, k := range born {
		k.label("ready")
	}
	for _, k := range born {
		k.becomes("agent", isOpen, keyA)
	}
}
