// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// A gate is changed although others write, create or delete it in the meantime.
func TestPutGateBesideOtherWriters(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	resource := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "nodegates"}
	for name, c := range map[string]struct {
		exists bool
		err    error
	}{
		"written": {true, apierrors.NewConflict(resource, "twin", nil)},
		"created": {false, apierrors.NewAlreadyExists(resource, "twin")},
		"deleted": {true, apierrors.NewNotFound(resource, "twin")},
	} {
		t.Run(name, func(t *testing.T) {
			ng := &v1alpha1.NodeGate{}
			ng.Name = "twin"
			builder := fake.NewClientBuilder().WithScheme(scheme)
			if c.exists {
				builder.WithObjects(ng.DeepCopy())
			}
			next := c.err
			fails := func() error { // once
				err := next
				next = nil
				return err
			}
			f := &fleet{site: &site{}}
			f.admin = interceptor.NewClient(builder.Build(), interceptor.Funcs{
				Create: func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.CreateOption) error {
					if err := fails(); err != nil {
						return err
					}
					return api.Create(ctx, o, options...)
				},
				Update: func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.UpdateOption) error {
					if err := fails(); err != nil {
						return err
					}
					return api.Update(ctx, o, options...)
				},
			})
			if err := f.putGate(t.Context(), ng, func(s *v1alpha1.NodeGateSpec) { s.Mode = v1alpha1.ModePaused }); err != nil {
				t.Fatal(err)
			}
			got := &v1alpha1.NodeGate{}
			if err := f.admin.Get(t.Context(), client.ObjectKeyFromObject(ng), got); err != nil || got.Spec.Mode != v1alpha1.ModePaused {
				t.Errorf("the gate has mode %q, %v", got.Spec.Mode, err)
			}
		})
	}
}
