// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/install"
)

// permissionsPatience is how long reviews of permissions may fail, or permissions be missing, at
// start: an API server that restarts refuses connections, and then denies everything until it has
// read the roles. An exit would be final for longer, because the kubelet delays restarts.
const (
	permissionsPatience = 15 * time.Second
	permissionsInterval = time.Second
)

// checkPermissions returns an error with all missing permissions if the controller lacks
// permissions that the manifests grant for permissionsPatience. Without this check, each of them
// would show as a feed that never syncs. The required permissions depend on the installation.
func checkPermissions(ctx context.Context, log logr.Logger, c client.Client, o install.Options) error {
	began := time.Now()
	var first error
	for {
		missing, err := missingPermissions(ctx, c, o)
		if len(missing) > 0 {
			err = errMissing(missing, o)
		}
		waited := time.Since(began)
		if err == nil {
			if first != nil {
				log.Info("the API server has granted all permissions, but not at first", "after", waited.String(), "first", first.Error())
			}
			return nil
		}
		if waited >= permissionsPatience || ctx.Err() != nil || isPermanent(err) {
			return err
		}
		if first == nil {
			first = err
		}
		select {
		case <-ctx.Done():
		case <-time.After(permissionsInterval):
		}
	}
}

// errMissing returns the error for missing permissions.
func errMissing(missing []string, o install.Options) error {
	command := "nodegate manifests"
	if o.WithoutCRD {
		command += " --without-crd"
	}
	return fmt.Errorf("this identity is not permitted to %s: apply the output of '%s', and run as its ServiceAccount",
		strings.Join(missing, ", "), command)
}

// missingPermissions reviews all permissions, and returns those that are missing.
func missingPermissions(ctx context.Context, c client.Client, o install.Options) ([]string, error) {
	var (
		mu      sync.Mutex
		missing []string
	)
	group, ctx := errgroup.WithContext(ctx) // the first failure cancels the others
	group.SetLimit(8)
	reviewAll := func(rules []rbacv1.PolicyRule, namespace string) {
		for _, attributes := range attributesOf(rules, namespace) {
			group.Go(func() error {
				review := &authorizationv1.SelfSubjectAccessReview{
					Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
				}
				if err := createReview(ctx, c, review); err != nil {
					return fmt.Errorf("reviewing permissions: %w", err)
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
	reviewAll(install.ClusterRules(o.WithoutCRD), "")
	if !o.OpenMetrics {
		reviewAll(install.MetricsRules(), "")
	}
	reviewAll(install.NamespaceRules(), o.Namespace)
	reviewAll(install.EventRules(), metav1.NamespaceDefault)
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.Sort(missing)
	return missing, nil
}

// reviewTimeout is the timeout of a single review before the controller runs. It does not
// limit the total time, so that a slow API server is sufficient.
const reviewTimeout = 15 * time.Second

// reviewBackoff specifies the retries of a review. There are dozens of reviews, and an API
// server that fails some requests is sufficient.
var reviewBackoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 7}

// createReview creates a review, and reads the result that the API server returns. It
// retries on errors that may be temporary.
func createReview(ctx context.Context, c client.Client, review client.Object) error {
	return retry.OnError(reviewBackoff, func(err error) bool { return ctx.Err() == nil && !isRefusal(err) }, func() error {
		ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
		return c.Create(ctx, review)
	})
}

// isRefusal reports whether the API server would return the same error again.
func isRefusal(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || isPermanent(err)
}

// isPermanent reports whether the API server would also return the error when it has read the roles.
func isPermanent(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsInvalid(err)
}

// serviceAccountPrefix is the prefix of the user name of a ServiceAccount. The namespace
// follows it.
const serviceAccountPrefix = "system:serviceaccount:"

// checkIdentity returns an error if the controller does not run as a ServiceAccount that the
// guards accept. Permissions are not sufficient: the guards reject even an administrator
// where only nodegate may write.
func checkIdentity(ctx context.Context, c client.Client, namespace string) error {
	var review authenticationv1.SelfSubjectReview
	if err := createReview(ctx, c, &review); err != nil {
		return fmt.Errorf("determining this identity: %w", err)
	}
	if user := review.Status.UserInfo.Username; !strings.HasPrefix(user, serviceAccountPrefix+namespace+":") {
		return fmt.Errorf("this identity is %q, but the guards that 'nodegate manifests' installs accept only nodegate's ServiceAccount: run as %s",
			user, serviceAccountPrefix+namespace+":"+defaultServiceAccount)
	}
	return nil
}

// attributesOf returns the attributes of every combination that the rules allow.
func attributesOf(rules []rbacv1.PolicyRule, namespace string) []authorizationv1.ResourceAttributes {
	var all []authorizationv1.ResourceAttributes
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""} // all objects
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				resource, subresource, _ := strings.Cut(resource, "/")
				for _, verb := range rule.Verbs {
					for _, name := range names {
						all = append(all, authorizationv1.ResourceAttributes{
							Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource, Name: name,
						})
					}
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
	if a.Name != "" {
		what += " named " + a.Name
	}
	return a.Verb + " " + what
}
