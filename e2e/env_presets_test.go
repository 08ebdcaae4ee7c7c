// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/presets"
	"github.com/nodegate/nodegate/presets/upstream"
)

// systemNamespaces are the namespaces of the presets' daemons.
var systemNamespaces = []string{
	"default", "kube-system", "calico-system", "falco", "gpu-operator", "gpu-resources", "istio-system", "kata-system", "linkerd-cni",
	"preflight", "spegel",
}

// prepareSystemNamespaces creates the namespaces of the presets' daemons. It deletes their
// content when the test ends.
func (e *env) prepareSystemNamespaces() {
	e.Helper()
	for _, namespace := range systemNamespaces {
		for _, object := range []client.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}},
		} {
			if err := e.admin.Create(e.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
				e.Fatalf("creating %T in %s: %v", object, namespace, err)
			}
		}
	}
	e.Cleanup(func() {
		ctx := context.Background()
		for _, namespace := range systemNamespaces {
			err := errors.Join(
				e.admin.DeleteAllOf(ctx, &appsv1.DaemonSet{}, client.InNamespace(namespace)),
				e.admin.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), client.GracePeriodSeconds(0)),
			)
			if err != nil {
				e.Errorf("cleaning up namespace %s: %v", namespace, err)
			}
		}
	})
}

// applyPreset creates the gate of a preset's file, unchanged.
func (e *env) applyPreset(name string) *v1alpha1.NodeGate {
	e.Helper()
	text, err := presets.Read(name)
	e.must(err)
	object := &unstructured.Unstructured{}
	e.must(yaml.Unmarshal(text, object))
	strict := client.WithFieldValidation(e.admin, metav1.FieldValidationStrict)
	e.must(strict.Create(e.Context(), object))
	ng := &v1alpha1.NodeGate{}
	e.must(e.admin.Get(e.Context(), client.ObjectKey{Name: name}, ng))
	return ng
}

// presetGate returns the gate of a preset.
func presetGate(t *testing.T, name string) *v1alpha1.NodeGate {
	t.Helper()
	text, err := presets.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	ng := &v1alpha1.NodeGate{}
	if err := yaml.UnmarshalStrict(text, ng); err != nil {
		t.Fatal(err)
	}
	return ng
}

// shippedFor returns what is shipped for a preset.
func (e *env) shippedFor(preset string) *upstream.Objects {
	e.Helper()
	objects, err := upstream.For(preset)
	e.must(err)
	return objects
}

// shippedDaemons creates the DaemonSets that are shipped for presets, and returns them by
// namespace and name. Some are shipped for several.
func (e *env) shippedDaemons(names []string) map[string]*appsv1.DaemonSet {
	e.Helper()
	daemons := make(map[string]*appsv1.DaemonSet)
	for _, name := range names {
		objects := e.shippedFor(name)
		for i := range objects.DaemonSets {
			ds := &objects.DaemonSets[i]
			if key := ds.Namespace + "/" + ds.Name; daemons[key] == nil {
				e.must(e.admin.Create(e.Context(), ds))
				e.rolledOut(ds)
				daemons[key] = ds
			}
		}
	}
	return daemons
}

// rolledOut reports, as the DaemonSet controller, that no rollout is in progress.
func (e *env) rolledOut(ds *appsv1.DaemonSet) {
	e.Helper()
	created := ds.DeepCopy()
	ds.Status.ObservedGeneration = ds.Generation
	e.must(e.admin.Status().Patch(e.Context(), ds, client.MergeFrom(created)))
}

// tolerate adds a toleration to a DaemonSet.
func (e *env) tolerate(ds *appsv1.DaemonSet, key string) {
	e.Helper()
	created := ds.DeepCopy()
	template := &ds.Spec.Template.Spec
	template.Tolerations = append(template.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	e.must(e.admin.Patch(e.Context(), ds, client.MergeFrom(created)))
	e.rolledOut(ds)
}
