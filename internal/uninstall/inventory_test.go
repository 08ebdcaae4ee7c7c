// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"slices"
	"testing"

	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/install"
)

// Whatever was chosen at installation, it goes: rights first, and never the anchor
// before the parameters' guard.
func TestRemaining(t *testing.T) {
	all, err := remaining("here", "me")
	if err != nil {
		t.Fatal(err)
	}
	at := func(kind, name string) int {
		return slices.IndexFunc(all, func(o object) bool { return o.Kind == kind && o.name == name })
	}
	for _, birth := range []admission.Birth{admission.ByPolicy, admission.ByWebhook} {
		for _, evict := range []bool{false, true} {
			objects, err := install.Objects(install.Options{Namespace: "here", ServiceAccount: "me", Birth: birth, EvictPods: evict})
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
	}
	for _, order := range [][2]int{
		{at("ClusterRoleBinding", "nodegate"), at("ValidatingAdmissionPolicyBinding", admission.ConfinementPolicy)},
		{at("ValidatingAdmissionPolicyBinding", admission.ParametersPolicy), at("MutatingAdmissionPolicyBinding", admission.BirthPolicy+"-anchor")},
	} {
		if order[0] < 0 || order[1] < order[0] {
			t.Errorf("number %d goes before number %d", order[1], order[0])
		}
	}
	if at("Namespace", "here") >= 0 {
		t.Error("the namespace goes, whatever is in it")
	}
}

func TestObjectString(t *testing.T) {
	for want, o := range map[string]object{
		"lease.coordination.k8s.io/nodegate":                                   charted[len(charted)-1],
		"service/nodegate-metrics":                                             charted[1],
		"customresourcedefinition.apiextensions.k8s.io/nodegates.nodegate.dev": definition,
	} {
		if got := o.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
