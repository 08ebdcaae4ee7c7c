// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// createOther creates an object of another project's kind, and first the kind's definition,
// which allows any fields. Both are deleted when the test ends.
func (e *env) createOther(object map[string]any) {
	e.Helper()
	o := &unstructured.Unstructured{Object: object}
	api, definition := e.crdClient(), anyFields(o)
	e.must(api.Create(e.Context(), definition))
	e.Cleanup(func() { e.must(api.Delete(context.Background(), definition)) }) // the test's own context has ended
	e.eventually(o.GetKind()+" is created", func() error { return api.Create(e.Context(), o.DeepCopy()) })
}

// anyFields returns a definition of the object's kind, which is cluster-scoped.
func anyFields(o *unstructured.Unstructured) *apiextensionsv1.CustomResourceDefinition {
	gvk := o.GroupVersionKind()
	singular := strings.ToLower(gvk.Kind)
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: singular + "s." + gvk.Group, Annotations: map[string]string{
			apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, for a test", // required in x-k8s.io
		}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: gvk.Group, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: singular + "s", Singular: singular, Kind: gvk.Kind, ListKind: gvk.Kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: gvk.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true),
				}},
			}},
		},
	}
}
