// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/presets"
)

// systemNamespaces are the namespaces of the presets' daemons.
var systemNamespaces = []string{"kube-system", "calico-system", "istio-system"}

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
