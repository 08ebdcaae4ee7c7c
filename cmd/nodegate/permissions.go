// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/install"
)

// checkPermissions fails, naming them all, if the controller lacks permissions
// that the manifests give it. Without the check they would show one by one, as
// feeds that never sync. What is installed says which it needs.
func checkPermissions(ctx context.Context, c client.Client, o install.Options) error {
	var (
		mu      sync.Mutex
		missing []string
	)
	group, ctx := errgroup.WithContext(ctx) // the first failure spares the others
	group.SetLimit(8)
	askAll := func(rules []rbacv1.PolicyRule, namespace string) {
		for _, attributes := range attributesOf(rules, namespace) {
			group.Go(func() error {
				review := &authorizationv1.SelfSubjectAccessReview{
					Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
				}
				if err := ask(ctx, c, review); err != nil {
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
	askAll(install.ClusterRules(o.WithoutCRD), "")
	askAll(install.NamespaceRules(), o.Namespace)
	askAll(install.EventRules(), metav1.NamespaceDefault)
	if o.Birth == admission.ByWebhook {
		askAll(install.WebhookClusterRules(), "")
		askAll(install.WebhookNamespaceRules(), o.Namespace)
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		command := "nodegate manifests"
		if o.WithoutCRD {
			command += " --without-crd"
		}
		return fmt.Errorf("this identity may not %s: apply the output of '%s', and run as its ServiceAccount",
			strings.Join(missing, ", "), command)
	}
	return nil
}

// answerTimeout is how long the API server may take to answer one question before
// the controller runs. It does not limit all of them together: a server that
// answers slowly answers.
const answerTimeout = 15 * time.Second

// ask creates a review, which the API server fills in.
func ask(ctx context.Context, c client.Client, review client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return c.Create(ctx, review)
}

// serviceAccountPrefix begins what the API server calls a ServiceAccount; its
// namespace follows.
const serviceAccountPrefix = "system:serviceaccount:"

// checkIdentity fails if the controller is nobody that the guards could let
// through, whatever else it may: an administrator may create everything, and is
// refused where only nodegate writes.
func checkIdentity(ctx context.Context, c client.Client, namespace string) error {
	var review authenticationv1.SelfSubjectReview
	if err := ask(ctx, c, &review); err != nil {
		return fmt.Errorf("asking who this is: %w", err)
	}
	if user := review.Status.UserInfo.Username; !strings.HasPrefix(user, serviceAccountPrefix+namespace+":") {
		return fmt.Errorf("this identity is %q, and the guards that 'nodegate manifests' installs let only nodegate's ServiceAccount do its work: run as %s",
			user, serviceAccountPrefix+namespace+":"+defaultServiceAccount)
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
