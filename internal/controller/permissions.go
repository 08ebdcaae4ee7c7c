// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Some gates ask for what not every installation allows. Whether it is allowed
// is asked of the API server while a gate needs it, so that a right that is
// missing is told before it is missed.

const (
	// permissionsInterval is how often it is asked whether rights have changed.
	permissionsInterval = 10 * time.Second
	// permissionsDelay is how soon the answer for a gate that has just come is there.
	permissionsDelay   = time.Second
	permissionsTimeout = 5 * time.Second
)

// right is something that RBAC may allow.
type permission struct{ verb, group, resource, subresource string }

var (
	listPods  = permission{verb: "list", resource: "pods"}
	evictPods = permission{verb: "create", resource: "pods", subresource: "eviction"}
)

// need is a right that a gate needs, for what, and how to grant it.
type need struct {
	permission
	message string
}

// needsOf returns the rights that a gate needs beyond what every gate does.
func needsOf(spec *v1alpha1.NodeGateSpec) []need {
	var all []need
	if spec.ExistingNodes == v1alpha1.ExistingCloseIfIdle {
		all = append(all, need{listPods, "existingNodes: CloseIfIdle closes no node, because nodegate may not list pods: " +
			"apply the output of 'nodegate manifests' again"})
	}
	switch spec.BypassedPods {
	case v1alpha1.BypassedReport, v1alpha1.BypassedEvict:
		all = append(all, need{listPods, "bypassedPods: " + string(spec.BypassedPods) + " finds no pods, because nodegate may not list pods: " +
			"apply the output of 'nodegate manifests' again"})
	}
	if spec.BypassedPods == v1alpha1.BypassedEvict {
		all = append(all, need{evictPods, "bypassedPods: Evict evicts no pods, because nodegate may not: " +
			"apply the output of 'nodegate manifests --evict-pods', or choose Report"})
	}
	return all
}

// rights knows which rights are missing. One of which that is not known is not
// missing: it is then found out by trying.
type permissions struct {
	client client.Client
	log    logr.Logger

	mu     sync.Mutex
	denied map[permission]bool
}

func newPermissions(c client.Client, log logr.Logger) *permissions {
	return &permissions{client: c, log: log, denied: make(map[permission]bool)}
}

// lacks tells whether a right is missing.
func (r *permissions) missing(what permission) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.denied[what]
}

// missingFor says what a gate lacks, and how to grant it. Empty if nothing.
func (r *permissions) missingFor(spec *v1alpha1.NodeGateSpec) string {
	for _, n := range needsOf(spec) {
		if r.missing(n.permission) {
			return n.message
		}
	}
	return ""
}

// watchPermissions keeps what is known of rights up to date until the context ends.
func (c *Controller) watchPermissions(ctx context.Context) {
	ticker := c.clock.NewTicker(permissionsDelay)
	defer ticker.Stop()
	reviewed := make(map[permission]time.Time)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		changed := false
		for what := range c.neededPermissions() {
			if now := c.clock.Now(); reviewed[what].IsZero() || now.Sub(reviewed[what]) >= permissionsInterval {
				reviewed[what] = now
				changed = c.permissions.review(ctx, what) || changed
			}
		}
		if changed {
			c.resyncAll()
		}
	}
}

// neededPermissions are those that some gate in force needs.
func (c *Controller) neededPermissions() map[permission]bool {
	all := make(map[permission]bool)
	set := c.set.Load()
	for name, ng := range set.Declared {
		if !set.Accepted(name) {
			continue
		}
		for _, n := range needsOf(&ng.Spec) {
			all[n.permission] = true
		}
	}
	return all
}

// ask asks the API server, and tells whether the answer is another one than
// before. Where there is no answer, what was known stands.
func (r *permissions) review(ctx context.Context, what permission) bool {
	ctx, cancel := context.WithTimeout(ctx, permissionsTimeout)
	defer cancel()
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: what.verb, Group: what.group, Resource: what.resource, Subresource: what.subresource,
		}},
	}
	if err := r.client.Create(ctx, review); err != nil {
		r.log.V(1).Info("cannot ask for rights, retrying", "error", err.Error())
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.denied[what]
	r.denied[what] = !review.Status.Allowed
	return was != r.denied[what]
}
