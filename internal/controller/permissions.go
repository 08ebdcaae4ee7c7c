// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Some gates require permissions that not every installation grants. The controller
// reviews them while a gate requires them, so that the gate's status reports a missing
// permission before it is needed.

const (
	// permissionsInterval is the period of reviews of one permission.
	permissionsInterval = 10 * time.Second
	// permissionsDelay is the period of checks for permissions that new gates require.
	permissionsDelay   = time.Second
	permissionsTimeout = 5 * time.Second
)

// permission is a permission that RBAC may grant.
type permission struct{ verb, resource, subresource string }

var (
	listPods  = permission{verb: "list", resource: "pods"}
	evictPods = permission{verb: "create", resource: "pods", subresource: "eviction"}
	// patchNodeStatus is required to write conditions of Nodes.
	patchNodeStatus = permission{verb: "patch", resource: "nodes", subresource: "status"}
)

// need is a permission that a gate requires. message describes the effect if it is
// missing, and how to grant it.
type need struct {
	permission
	message string
}

// needsOf returns the permissions that a gate requires in addition to those of every gate.
func needsOf(spec *v1alpha1.NodeGateSpec) []need {
	var all []need
	if spec.ExistingNodes == v1alpha1.ExistingCloseIfIdle {
		all = append(all, need{listPods, "existingNodes: CloseIfIdle closes no node, because nodegate may not list pods: " +
			"apply the output of 'nodegate manifests' again"})
	}
	if spec.BypassedPods.Searched() {
		all = append(all, need{listPods, "bypassedPods: " + string(spec.BypassedPods) + " finds no pods, because nodegate may not list pods: " +
			"apply the output of 'nodegate manifests' again"})
	}
	if spec.BypassedPods == v1alpha1.BypassedEvict {
		all = append(all, need{evictPods, "bypassedPods: Evict evicts no pods, because nodegate may not evict pods: " +
			"apply the output of 'nodegate manifests --evict-pods' (chart value evictPods), or use Report"})
	}
	if spec.Deadline.Publishes() {
		all = append(all, need{patchNodeStatus, "deadline.condition: Publish publishes and removes no condition, because nodegate may not patch nodes/status: " +
			"apply the output of 'nodegate manifests --node-conditions' (chart value nodeConditions), or use None"})
	}
	return all
}

// permissions has the permissions that are known to be missing. One that has not been
// reviewed is not considered missing: the request will show.
type permissions struct {
	client client.Client
	log    logr.Logger

	mu sync.Mutex
	// denied contains the last result for each permission that was reviewed successfully.
	denied map[permission]bool
	// required contains permissions that are reviewed even if no gate requires them.
	required map[permission]bool

	// reviewed is closed by noteReviewed when all permissions have been reviewed successfully.
	reviewed     chan struct{}
	noteReviewed func()
}

func newPermissions(c client.Client, log logr.Logger) *permissions {
	r := &permissions{
		client: c, log: log, denied: make(map[permission]bool), required: make(map[permission]bool),
		reviewed: make(chan struct{}),
	}
	r.noteReviewed = sync.OnceFunc(func() { close(r.reviewed) })
	return r
}

// require adds a permission that is reviewed even if no gate requires it.
func (r *permissions) require(what permission) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.required[what] = true
}

// missing reports whether a permission is known to be missing.
func (r *permissions) missing(what permission) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.denied[what]
}

// areKnown reports whether all these permissions have been reviewed successfully.
func (r *permissions) areKnown(needed map[permission]bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for what := range needed {
		if _, known := r.denied[what]; !known {
			return false
		}
	}
	return true
}

// missingFor returns the message about the first missing permission of a gate, or "".
func (r *permissions) missingFor(spec *v1alpha1.NodeGateSpec) string {
	for _, n := range needsOf(spec) {
		if r.missing(n.permission) {
			return n.message
		}
	}
	return ""
}

// watchPermissions reviews the needed permissions until the context ends. It enqueues all
// nodes when one has changed.
func (c *Controller) watchPermissions(ctx context.Context) {
	ticker := c.clock.NewTicker(permissionsDelay)
	defer ticker.Stop()
	reviewed := make(map[permission]time.Time)
	for {
		changed, needed := false, c.neededPermissions()
		for what := range needed {
			if now := c.clock.Now(); reviewed[what].IsZero() || now.Sub(reviewed[what]) >= permissionsInterval {
				reviewed[what] = now
				changed = c.permissions.review(ctx, what) || changed
			}
		}
		if changed {
			c.resyncAll()
		}
		if c.permissions.areKnown(needed) {
			c.permissions.noteReviewed()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// neededPermissions returns the permissions that accepted gates require, and those that
// were required otherwise.
func (c *Controller) neededPermissions() map[permission]bool {
	c.permissions.mu.Lock()
	all := maps.Clone(c.permissions.required)
	c.permissions.mu.Unlock()
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

// review reviews a permission, and reports whether the result has changed. If the review
// fails, the previous result remains.
func (r *permissions) review(ctx context.Context, what permission) bool {
	ctx, cancel := context.WithTimeout(ctx, permissionsTimeout)
	defer cancel()
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: what.verb, Resource: what.resource, Subresource: what.subresource,
		}},
	}
	if err := r.client.Create(ctx, review); err != nil {
		r.log.V(1).Info("cannot review permission, retrying", "error", err.Error())
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.denied[what]
	r.denied[what] = !review.Status.Allowed
	return was != r.denied[what]
}
