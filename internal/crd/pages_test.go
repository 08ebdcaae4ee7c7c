// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd/crdtest"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
	"github.com/nodegate/nodegate/testcluster/components"
)

// Users can apply every object that they copy from a page: the API server accepts each
// of them in a dry run with strict field validation.
func TestPagesShowValidObjects(t *testing.T) {
	admin := rest.CopyConfig(clustertest.Shared(t).Admin())
	crdtest.Install(t, admin)
	client := dynamic.NewForConfigOrDie(admin)
	resources, err := restmapper.GetAPIGroupResources(discovery.NewDiscoveryClientForConfigOrDie(admin))
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(resources)
	pages := 0
	for page, objects := range objectsOnPages(t) {
		pages++
		for _, object := range objects {
			kind := object.GroupVersionKind()
			if elsewhere[kind.Group] || isTooNew(object) ||
				kind.GroupKind().String() == "Config" { // a kubeconfig
				continue
			}
			mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
			if err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			if err := createNamespace(t, client, object.GetNamespace()); err != nil {
				t.Fatal(err)
			}
			_, err = client.Resource(mapping.Resource).Namespace(object.GetNamespace()).Patch(t.Context(), object.GetName(),
				types.ApplyPatchType, asJSON(t, object), metav1.PatchOptions{
					FieldManager: "pages", FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				t.Errorf("%s: %s %s: %v", page, kind.Kind, object.GetName(), err)
			}
		}
	}
	if pages < 10 {
		t.Errorf("objects were found on only %d pages", pages)
	}
}

// Gates for nodes of GKE and AKS do not use a key that their Cluster Autoscalers, whose flags
// cannot be changed, treat as permanent.
func TestPagesShowKeysThatManagedAutoscalersKnow(t *testing.T) {
	managed := 0
	for page, objects := range objectsOnPages(t) {
		for _, object := range objects {
			var g v1alpha1.NodeGate
			if object.GetKind() != "NodeGate" || runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &g) != nil {
				continue // TestPagesShowValidObjects reports invalid ones
			}
			if !selectsManaged(&g) {
				continue
			}
			managed++
			for _, taint := range g.Spec.Taints() {
				if strings.HasPrefix(taint.Key, "readiness.k8s.io/") {
					t.Errorf("%s: gate %s uses the key %s", page, g.Name, taint.Key)
				}
			}
		}
	}
	if managed == 0 {
		t.Error("no page has a gate for nodes of GKE or AKS")
	}
}

// selectsManaged reports whether a gate selects nodes by labels of GKE or AKS.
func selectsManaged(g *v1alpha1.NodeGate) bool {
	selector, err := g.Spec.NodeSelector.AsSelector()
	if err != nil {
		return false
	}
	requirements, _ := selector.Requirements()
	return slices.ContainsFunc(requirements, func(r labels.Requirement) bool {
		return strings.HasPrefix(r.Key(), "cloud.google.com/") || strings.HasPrefix(r.Key(), "kubernetes.azure.com/")
	})
}

// isTooNew reports whether an object needs a newer version of Kubernetes, as the pages say.
func isTooNew(object *unstructured.Unstructured) bool {
	first := since[object.GroupVersionKind()]
	if _, has, _ := unstructured.NestedBool(object.Object, "spec", "preventPodSchedulingIfMissing"); has {
		first = "1.36" // alpha
	}
	return first != "" && components.Before(testcluster.DefaultVersion(), first)
}

// since contains kinds that not all supported versions of Kubernetes serve, with the first version
// that does.
var since = map[schema.GroupVersionKind]string{
	{Group: "resource.k8s.io", Version: "v1", Kind: "DeviceTaintRule"}: "1.37",
}

// elsewhere contains the API groups of tools that may not be installed, and of the API
// server's own configuration.
var elsewhere = map[string]bool{
	"apiserver.config.k8s.io":              true,
	"descheduler":                          true, // a file's; e2e/neighbours runs with it
	"kustomize.config.k8s.io":              true,
	"helm.toolkit.fluxcd.io":               true,
	"karpenter.sh":                         true,
	"cluster.x-k8s.io":                     true,
	"remediation.medik8s.io":               true,
	"monitoring.coreos.com":                true,
	"krew.googlecontainertools.github.com": true,
}

// createNamespace creates a namespace if it does not exist. Without it, the API server
// does not validate the objects in it.
func createNamespace(t *testing.T, client dynamic.Interface, name string) error {
	t.Helper()
	if name == "" {
		return nil
	}
	namespace := &unstructured.Unstructured{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	namespace.SetName(name)
	_, err := client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).
		Apply(t.Context(), name, namespace, metav1.ApplyOptions{FieldManager: "pages"})
	return err
}

// objectsOnPages returns the complete objects on each page. They include the output of
// programs, such as lists and several objects in one block.
func objectsOnPages(t *testing.T) map[string][]*unstructured.Unstructured {
	t.Helper()
	found := make(map[string][]*unstructured.Unstructured)
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, block := range yamlBlocks(string(text)) {
			if !strings.Contains("\n"+block, "\napiVersion:") {
				continue // a part of an object
			}
			found[path] = append(found[path], objectsIn(t, path, block)...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// objectsIn returns the objects in a block, including the items of lists.
func objectsIn(t *testing.T, path, block string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(block), 4096); ; {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return objects
		case err != nil:
			t.Errorf("%s: %v\n%s", path, err, block)
			return objects
		case object.IsList():
			if err := object.EachListItem(func(item runtime.Object) error {
				objects = append(objects, item.(*unstructured.Unstructured))
				return nil
			}); err != nil {
				t.Errorf("%s: %v\n%s", path, err, block)
			}
		case len(object.Object) > 0:
			objects = append(objects, object)
		}
	}
}

// yamlBlocks returns the fenced YAML blocks of a page, without the indentation of a
// list that they are part of.
func yamlBlocks(page string) []string {
	var blocks []string
	var block []string
	indent := -1
	for line := range strings.Lines(page) {
		trimmed := strings.TrimLeft(line, " ")
		switch {
		case indent < 0 && strings.TrimSpace(line) == "```yaml":
			indent = len(line) - len(trimmed)
			block = nil
		case indent >= 0 && strings.TrimSpace(line) == "```":
			blocks = append(blocks, strings.Join(block, ""))
			indent = -1
		case indent >= 0:
			block = append(block, line[min(indent, len(line)-len(trimmed)):])
		}
	}
	return blocks
}
