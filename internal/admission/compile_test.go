// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/crd/crdtest"
)

// minimal are options that include all policies and allow no key.
var minimal = admission.Options{Namespace: "elsewhere", ServiceAccount: "nodegate", GuardDaemonPods: true}

// TestAllPolicies tests that the minimal options include all embedded policies, so that the
// tests below omit none.
func TestAllPolicies(t *testing.T) {
	objects, err := admission.Policies(minimal)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.yaml") // which are embedded
	if err != nil {
		t.Fatal(err)
	}
	embedded := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		embedded += len(regexp.MustCompile(`(?m)^kind: \w+$`).FindAll(text, -1))
	}
	if len(objects) != embedded || embedded == 0 {
		t.Errorf("the options include %d objects, and %d are embedded", len(objects), embedded)
	}
}

// TestPoliciesCompile tests that the API server accepts the policies without warnings,
// even if no key is allowed.
func TestPoliciesCompile(t *testing.T) {
	in := install(t)
	policies, err := policiesOf(minimal)
	if err != nil {
		t.Fatal(err)
	}
	config := in.Admin()
	var warnings warningRecorder
	config.WarningHandler = &warnings
	writer, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range policies {
		object.SetName(object.GetName() + "-dry")
		if err := writer.Create(t.Context(), object, client.DryRunAll); err != nil {
			t.Errorf("%T %s: %v", object, object.GetName(), err)
		}
	}
	if len(warnings) > 0 {
		t.Errorf("warnings: %v", warnings)
	}
}

// mistyped is an expression with a type error.
const mistyped = `object.metadata.name == 7`

// TestPoliciesHaveNoTypeErrors tests that the controller manager finds no type errors in the guards.
// It checks only validations, and no MutatingAdmissionPolicies.
func TestPoliciesHaveNoTypeErrors(t *testing.T) {
	in := install(t)
	crdtest.Install(t, in.Admin())
	eventually(t, func() error { // a kind without a schema is not checked
		paths, err := in.admin.Discovery().OpenAPIV3().Paths()
		if path := "apis/" + v1alpha1.GroupVersion.String(); err == nil && paths[path] == nil {
			return fmt.Errorf("the API server has no schema for %s yet", path)
		}
		return err
	})
	full := options
	full.GuardDaemonPods = true
	for suffix, o := range map[string]admission.Options{"-typed": full, "-typed-minimal": minimal} {
		policies := typed(t, o)
		renamed(t, in, policies, suffix)
		for _, policy := range policies {
			in.checkTypes(t, policy.GetName())
		}
	}
}

// typed returns the ValidatingAdmissionPolicies such that their types are checked: for one version of
// each kind, because those for all versions are not. The last validation is mistyped. Without
// bindings, they affect no requests.
func typed(t *testing.T, o admission.Options) []client.Object {
	t.Helper()
	objects, err := policiesOf(o)
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{"": "v1", v1alpha1.GroupName: v1alpha1.GroupVersion.Version}
	var policies []client.Object
	for _, object := range objects {
		policy, is := object.(*admissionregistrationv1.ValidatingAdmissionPolicy)
		if !is {
			continue
		}
		for i := range policy.Spec.MatchConstraints.ResourceRules {
			rule := &policy.Spec.MatchConstraints.ResourceRules[i]
			rule.APIVersions = []string{versions[rule.APIGroups[0]]}
		}
		policy.Spec.Validations = append(policy.Spec.Validations, admissionregistrationv1.Validation{Expression: mistyped})
		policies = append(policies, policy)
	}
	return policies
}

// checkTypes fails the test if the controller manager finds a type error in a typed policy, except
// in the validation that is mistyped, or if it does not find that one.
func (in *installation) checkTypes(t *testing.T, name string) {
	t.Helper()
	eventually(t, func() error {
		policy, err := in.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if policy.Status.TypeChecking == nil {
			return fmt.Errorf("the controller manager has not checked the types of %s yet", name)
		}
		last := fmt.Sprintf("spec.validations[%d].expression", len(policy.Spec.Validations)-1)
		isLast := func(w admissionregistrationv1.ExpressionWarning) bool { return w.FieldRef == last }
		warnings := policy.Status.TypeChecking.ExpressionWarnings
		if !slices.ContainsFunc(warnings, isLast) {
			t.Errorf("%s: no type error was found in %s; types are not checked", name, mistyped)
		}
		for _, warning := range slices.DeleteFunc(warnings, isLast) {
			t.Errorf("%s: %s: %s", name, warning.FieldRef, warning.Warning)
		}
		return nil
	})
}
