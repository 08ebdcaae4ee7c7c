// SPDX-License-Identifier: Apache-2.0

// Package crdtest installs the CustomResourceDefinition of NodeGate in a test's API
// server, and walks its schema.
package crdtest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd"
	"github.com/nodegate/nodegate/testcluster/await/awaittest"
)

// Install creates the definition unless it exists. It returns when the API server
// serves NodeGates and lists them in discovery, which happens a moment later.
func Install(t testing.TB, config *rest.Config) {
	t.Helper()
	definition, err := crd.Definition()
	if err != nil {
		t.Fatal(err)
	}
	definitions := clientset.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	if _, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("creating the CustomResourceDefinition: %v", err)
	}
	gates := dynamic.NewForConfigOrDie(config).Resource(v1alpha1.Resource)
	awaittest.Until(t, "NodeGates to be served", func(ctx context.Context) error {
		_, err := gates.List(ctx, metav1.ListOptions{})
		return err
	})
	served := discovery.NewDiscoveryClientForConfigOrDie(config)
	awaittest.Until(t, "NodeGates to be in discovery", func(context.Context) error {
		_, resources, err := served.ServerGroupsAndResources()
		if err != nil {
			return err
		}
		for _, list := range resources {
			if list.GroupVersion == v1alpha1.GroupVersion.String() {
				return nil
			}
		}
		return errors.New("discovery does not list them")
	})
}

// Walk calls visit for every schema of the definition. The path of a field begins with a
// dot, and the names of lists and maps are followed by [].
func Walk(t testing.TB, visit func(path string, schema *apiextensionsv1.JSONSchemaProps)) {
	t.Helper()
	definition, err := crd.Definition()
	if err != nil {
		t.Fatal(err)
	}
	var descend func(path string, schema *apiextensionsv1.JSONSchemaProps)
	descend = func(path string, schema *apiextensionsv1.JSONSchemaProps) {
		visit(path, schema)
		for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
			property := schema.Properties[name]
			descend(path+"."+name, &property)
		}
		if schema.Items != nil {
			descend(path+"[]", schema.Items.Schema)
		}
		if schema.AdditionalProperties != nil {
			descend(path+"[]", schema.AdditionalProperties.Schema)
		}
	}
	descend("", definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
}
