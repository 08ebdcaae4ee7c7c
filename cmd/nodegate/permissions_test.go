// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
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

// permissionsGrantedAfter checks permissions with an API server that answers reviews with an error
// for a while. If the error is nil, the permissions are missing until then. It returns the log.
func permissionsGrantedAfter(t *testing.T, until time.Duration, failure error) (lines []string, err error) {
	t.Helper()
	began := time.Now()
	api := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			if time.Since(began) < until {
				return failure
			}
			o.(*authorizationv1.SelfSubjectAccessReview).Status.Allowed = true
			return nil
		},
	}).Build()
	var log controllertest.LogLines
	err = checkPermissions(t.Context(), log.Logger(), api, install.Options{Namespace: "nodegate-system"})
	return log.All(), err
}

// An API server that has just started denies everything until it has read the roles. Permissions are
// reviewed again for a while, and only the last result counts.
func TestPermissionsAreReviewedAgain(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	for name, c := range map[string]struct {
		until  time.Duration // when everything is permitted
		denial error         // of reviews, which otherwise succeed and report a missing permission
		want   string        // in the error
		lines  int
	}{
		"permitted":                 {},
		"missing at first":          {until: 10 * time.Second, lines: 1},
		"reviews denied at first":   {until: 10 * time.Second, denial: forbidden, lines: 1},
		"unauthenticated at first":  {until: 10 * time.Second, denial: apierrors.NewUnauthorized("no"), lines: 1},
		"missing":                   {until: time.Hour, want: "not permitted to create events.events.k8s.io in default, "},
		"reviews denied throughout": {until: time.Hour, denial: forbidden, want: forbidden.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				lines, err := permissionsGrantedAfter(t, c.until, c.denial)
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("after %s: %v, want %q", time.Since(began), err, c.want)
				}
				if waited := time.Since(began); c.until < permissionsPatience && waited > c.until+time.Second || waited > permissionsPatience+time.Second {
					t.Errorf("it took %s", waited)
				}
				if len(lines) != c.lines {
					t.Errorf("%d lines, want %d: %s", len(lines), c.lines, lines)
				}
			})
		})
	}
}

// While an API server restarts, connections to it are refused. An error that would not go away is
// reported immediately.
func TestPermissionsAreReviewedOnceTheAPIServerAnswers(t *testing.T) {
	refused := &url.Error{Op: "Post", URL: "https://api", Err: syscall.ECONNREFUSED}
	notFound := apierrors.NewNotFound(schema.GroupResource{}, "")
	const oneReview = 8 * time.Second // with all retries
	for name, c := range map[string]struct {
		until    time.Duration // when the API server answers
		failure  error
		min, max time.Duration
		line     string
	}{
		"refused at first":   {14 * time.Second, refused, 14 * time.Second, permissionsPatience + oneReview, syscall.ECONNREFUSED.Error()},
		"refused throughout": {time.Hour, refused, permissionsPatience, permissionsPatience + oneReview, ""},
		"not an API server":  {time.Hour, notFound, 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				lines, err := permissionsGrantedAfter(t, c.until, c.failure)
				answered := c.until < permissionsPatience
				if waited := time.Since(began); waited < c.min || waited > c.max || (err == nil) != answered || !answered && !errors.Is(err, c.failure) {
					t.Errorf("after %s: %v; want after %s to %s: %v, unless it answered", waited, err, c.min, c.max, c.failure)
				}
				if answered && (len(lines) != 1 || !strings.Contains(lines[0], c.line)) || !answered && len(lines) > 0 {
					t.Errorf("lines %q, want one with %q if the API server answered", lines, c.line)
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
