// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/install"
)

// All objects of any installation are deleted: those that grant permissions first, and
// the parameters' guard before the anchor.
func TestRemaining(t *testing.T) {
	all, err := remaining("here", "me")
	if err != nil {
		t.Fatal(err)
	}
	at := func(kind, name string) int {
		return slices.IndexFunc(all, func(o object) bool { return o.Kind == kind && o.name == name })
	}
	for _, options := range allOptions(t) {
		objects, err := install.Objects(options)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			kind := o.GetObjectKind().GroupVersionKind().Kind
			if i := at(kind, o.GetName()); kind != "Namespace" && (i < 0 || all[i].namespace != o.GetNamespace()) {
				t.Errorf("%s %s stays", kind, o.GetName())
			}
		}
	}
	for _, order := range [][2]int{
		{at("ClusterRoleBinding", "nodegate"), at("ValidatingAdmissionPolicyBinding", admission.ConfinementPolicy)},
		{at("ValidatingAdmissionPolicyBinding", admission.ParametersPolicy), at("MutatingAdmissionPolicyBinding", admission.BirthAnchor)},
	} {
		if order[0] < 0 || order[1] < order[0] {
			t.Errorf("object %d is deleted before object %d", order[1], order[0])
		}
	}
	if at("Namespace", "here") >= 0 {
		t.Error("the namespace is deleted unconditionally")
	}
}

// No permission outlasts the policies, which confine it.
func TestPermissionsAreDeletedFirst(t *testing.T) {
	all, err := remaining("here", "me")
	if err != nil {
		t.Fatal(err)
	}
	kinds := make(map[string]int)
	for i := range all {
		kind := all[i].Kind
		kinds[kind]++
		if grants := kind == "ClusterRoleBinding" || kind == "RoleBinding"; grants && slices.ContainsFunc(all[:i], confines) {
			t.Errorf("%s is deleted after a policy: its permissions are no longer confined", &all[i])
		}
	}
	for _, kind := range []string{"ClusterRoleBinding", "RoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s is deleted", kind)
		}
	}
}

// confines reports whether an object belongs to a policy that confines permissions.
func confines(o object) bool { return strings.HasPrefix(o.Kind, "ValidatingAdmissionPolicy") }

// allOptions returns options of installations. Each option is set in one of them, so that
// an object that depends on a new option is not missed.
func allOptions(t *testing.T) []install.Options {
	t.Helper()
	var all []install.Options
	for _, birth := range []admission.Birth{admission.ByPolicy, admission.ByWebhook} {
		plain := install.Options{Namespace: "here", ServiceAccount: "me", Birth: birth}
		all = append(all, plain)
		for field := range reflect.TypeFor[install.Options]().Fields() {
			options := plain
			switch value := reflect.ValueOf(&options).Elem().FieldByIndex(field.Index); {
			case !value.IsZero():
				continue
			case field.Type.Kind() == reflect.Bool:
				value.SetBool(true)
			case field.Name == "Observe":
				options.Observe = []schema.GroupResource{{Group: "cilium.io", Resource: "ciliumnodes"}}
			case field.Type == reflect.TypeFor[[]string](): // contents of the policies
				continue
			default:
				if field.Name != "Birth" {
					t.Errorf("set the option %s here", field.Name)
				}
				continue
			}
			all = append(all, options)
		}
	}
	return all
}

func TestObjectString(t *testing.T) {
	for want, o := range map[string]object{
		"lease.coordination.k8s.io/nodegate":                                   chartObjects[len(chartObjects)-1],
		"service/nodegate-metrics":                                             chartObjects[1],
		"customresourcedefinition.apiextensions.k8s.io/nodegates.nodegate.dev": definition,
	} {
		if got := o.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
