// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/install"
)

// Failed reviews are retried, and rejected ones are not.
func TestCreateReview(t *testing.T) {
	busy := apierrors.NewInternalError(errors.New("etcd"))
	for name, c := range map[string]struct {
		failure  error
		times    int
		requests int
		want     error
	}{
		"succeeds":              {nil, 0, 1, nil},
		"fails at first":        {busy, 3, 4, nil},
		"the connection breaks": {errors.New("reset by peer"), 3, 4, nil},
		"always fails":          {busy, 100, reviewBackoff.Steps, busy},
		"unauthorized":          {apierrors.NewUnauthorized("no"), 100, 1, apierrors.NewUnauthorized("no")},
		"forbidden":             {apierrors.NewForbidden(schema.GroupResource{}, "", nil), 100, 1, apierrors.NewForbidden(schema.GroupResource{}, "", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				requests := 0
				api := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
					Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
						if requests++; requests <= c.times {
							return c.failure
						}
						return nil
					},
				}).Build()
				err := createReview(t.Context(), api, &authorizationv1.SelfSubjectAccessReview{})
				if (err == nil) != (c.want == nil) || err != nil && err.Error() != c.want.Error() || requests != c.requests {
					t.Errorf("%d requests: %v; want %d: %v", requests, err, c.requests, c.want)
				}
			})
		})
	}
}

// A permission is reviewed for each object that a rule names, and an error lists each of them.
func TestAttributesOf(t *testing.T) {
	var got []string
	for _, attributes := range attributesOf([]rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"podtemplates"}, ResourceNames: []string{"a", "b"}, Verbs: []string{"get", "update"}},
		{APIGroups: []string{"apps"}, Resources: []string{"daemonsets", "daemonsets/status"}, Verbs: []string{"list"}},
	}, "here") {
		got = append(got, describe(attributes))
	}
	want := []string{
		"get podtemplates in here named a", "get podtemplates in here named b", "update podtemplates in here named a", "update podtemplates in here named b",
		"list daemonsets.apps in here", "list daemonsets/status.apps in here",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The manifests permit nodegate to change the parameters of both policies, so both are reviewed.
func TestBothParametersAreReviewed(t *testing.T) {
	reviewed := attributesOf(install.NamespaceRules(), "here")
	for _, name := range []string{v1alpha1.BirthParameter, v1alpha1.TolerationsParameter} {
		for _, verb := range []string{"get", "update"} {
			want := authorizationv1.ResourceAttributes{Namespace: "here", Verb: verb, Resource: "podtemplates", Name: name}
			if !slices.Contains(reviewed, want) {
				t.Errorf("%s is not reviewed", describe(want))
			}
		}
	}
}
