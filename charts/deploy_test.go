// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/install"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/presets"
)

// built returns the output of 'kubectl kustomize' for a directory.
func built(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	must(t, err)
	text, err := resources.AsYaml()
	must(t, err)
	objects, err := testbed.ParseObjects(text)
	must(t, err)
	return objects
}

// unlabelled removes the labels that only the chart sets.
func unlabelled(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	for _, o := range objects {
		labels := o.GetLabels()
		if labels["app.kubernetes.io/managed-by"] == "Helm" {
			delete(labels, "app.kubernetes.io/managed-by")
		}
		delete(labels, "helm.sh/chart")
		o.SetLabels(labels)
	}
	return objects
}

// The manifests for kustomize and for 'kubectl apply' equal those of 'nodegate manifests'
// and those of the chart.
func TestManifestsWithoutHelm(t *testing.T) {
	files, _ := dist(t)
	for dir, test := range map[string]struct {
		file  string
		birth admission.Birth
	}{"../deploy": {"install.yaml", admission.ByPolicy}, "../deploy/before-1.36": {"install-before-1.36.yaml", admission.ByWebhook}} {
		text, err := os.ReadFile(filepath.Join(files, test.file))
		must(t, err)
		plain, err := testbed.ParseObjects(text)
		must(t, err)
		options := install.Options{Namespace: namespace, ServiceAccount: "nodegate", AllowedTaintKeys: presets.TaintKeys(), Birth: test.birth}
		others := append([]string{"Namespace nodegate-system", "CustomResourceDefinition nodegates.nodegate.dev"}, always...)
		differ(t, plain, manifests(t, options), others)

		ofChart := unlabelled(rendered(t, object{
			"birth": string(test.birth), "defaultGate": object{"enabled": false}, "webhook": object{"certificate": "existing"},
		}))
		differ(t, plain, ofChart, others[:2])
		differ(t, built(t, dir), plain, nil)
		if key(plain[0]) != others[0] || key(plain[1]) != others[1] {
			t.Errorf("%s begins with %s and %s", test.file, key(plain[0]), key(plain[1]))
		}
	}
}

// An overlay can change values that occur in one place. Values that occur in several
// places, such as the allowed keys, require the chart.
func TestOverlay(t *testing.T) {
	here, err := os.Getwd()
	must(t, err)
	dir := t.TempDir()
	base, err := filepath.Rel(dir, filepath.Join(here, "..", "deploy"))
	must(t, err)
	write(t, filepath.Join(dir, "kustomization.yaml"), []byte(strings.ReplaceAll(`
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [BASE]
images: [{name: ghcr.io/nodegate/nodegate, newName: registry.example.com/nodegate, newTag: v1}]
replicas: [{name: nodegate, count: 3}]
`, "BASE", base)))
	d := deployment(t, built(t, dir))
	if image := d.Spec.Template.Spec.Containers[0].Image; image != "registry.example.com/nodegate:v1" || *d.Spec.Replicas != 3 {
		t.Errorf("image %s, %d replicas", image, *d.Spec.Replicas)
	}
}
