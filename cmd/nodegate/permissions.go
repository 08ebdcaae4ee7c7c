// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/install"
)

// checkPermissions fails, naming them all, if the controller lacks permissions
// that the manifests give it. Without the check they would show one by one, as
// feeds that never sync.
func checkPermissions(ctx context.Context, c client.Client, namespace string) error {
	var (
		mu      sync.Mutex
		missing []string
		group   errgroup.Group
	)
	group.SetLimit(8)
	ask := func(rules []rbacv1.PolicyRule, namespace string) {
		for _, attributes := range attributesOf(rules, namespace) {
			group.Go(func() error {
				review := &authorizationv1.SelfSubjectAccessReview{
					Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
				}
				if err := c.Create(ctx, review); err != nil {
					return fmt.Errorf("asking for permissions: %w", err)
				}
				if !review.Status.Allowed {
					mu.Lock()
					defer mu.Unlock()
					missing = append(missing, describe(attributes))
				}
				return nil
			})
		}
	}
	ask(install.ClusterRules(), "")
	ask(install.NamespaceRules(), namespace)
	if err := group.Wait(); err != nil {
		return err
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("this identity may not %s: apply the output of 'nodegate manifests', and run as its ServiceAccount",
			strings.Join(missing, ", "))
	}
	return nil
}

// attributesOf lists every single thing that the rules allow.
func attributesOf(rules []rbacv1.PolicyRule, namespace string) []authorizationv1.ResourceAttributes {
	var all []authorizationv1.ResourceAttributes
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				resource, subresource, _ := strings.Cut(resource, "/")
				for _, verb := range rule.Verbs {
					a := authorizationv1.ResourceAttributes{
						Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource,
					}
					if len(rule.ResourceNames) > 0 {
						a.Name = rule.ResourceNames[0]
					}
					all = append(all, a)
				}
			}
		}
	}
	return all
}

func describe(a authorizationv1.ResourceAttributes) string {
	what := a.Resource
	if a.Subresource != "" {
		what += "/" + a.Subresource
	}
	if a.Group != "" {
		what += "." + a.Group
	}
	if a.Namespace != "" {
		what += " in " + a.Namespace
	}
	return a.Verb + " " + what
}
