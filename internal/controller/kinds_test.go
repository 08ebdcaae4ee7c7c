// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/readinessrules"
)

// Each kind has a resource with the right scope, and, except for the rules of another
// project, a type.
func TestKinds(t *testing.T) {
	scheme, err := sharedScheme()
	if err != nil {
		t.Fatal(err)
	}
	mapper := newMapper()
	for scope, scoped := range kinds {
		for _, kind := range scoped {
			mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
			if err != nil || mapping.Scope.Name() != scope.Name() {
				t.Errorf("%s: %+v, %v; want scope %s", kind, mapping, err, scope.Name())
			}
			if kind != readinessrules.Kind && !scheme.Recognizes(kind) {
				t.Errorf("%s has no type", kind)
			}
		}
	}
	gates, err := mapper.RESTMapping(v1alpha1.GroupVersion.WithKind("NodeGate").GroupKind(), v1alpha1.GroupVersion.Version)
	if err != nil || gates.Resource != v1alpha1.Resource || gates.Scope != meta.RESTScopeRoot {
		t.Errorf("NodeGates are %+v, %v", gates, err)
	}
}
