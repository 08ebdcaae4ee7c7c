// SPDX-License-Identifier: Apache-2.0

// Package boundpods lists and evicts all pods that are bound to one node. The
// controller watches only the pods that signals select, so it needs the others rarely:
// to find out whether a node is idle, and to evict pods that bypassed a taint.
package boundpods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/clients"
	"github.com/nodegate/nodegate/internal/kube/restconfig"
)

// Client lists and evicts the pods of nodes. It has no rate limit of its own.
type Client interface {
	// List returns all pods that are bound to a node, read from the API server.
	List(ctx context.Context, node string) ([]gate.BoundPod, error)
	// Evict requests the eviction of a pod if it has not changed since it was listed.
	Evict(ctx context.Context, p *gate.BoundPod) (Eviction, error)
}

// Eviction is the outcome of a request to evict a pod.
type Eviction string

const (
	// Evicted means that the pod is being deleted, or is gone.
	Evicted Eviction = "evicted"
	// EvictionBlocked means that a PodDisruptionBudget does not allow it now.
	EvictionBlocked Eviction = "blocked"
	// EvictionOutdated means that the pod has changed since it was listed.
	EvictionOutdated Eviction = "outdated"
	// EvictionDenied means that the API server denied the request.
	EvictionDenied Eviction = "denied"
	// EvictionFailed means that the request failed for another reason.
	EvictionFailed Eviction = "failed"
)

type client struct{ kubernetes.Interface }

var _ Client = client{}

// New returns a Client of an API server.
func New(config *rest.Config) (Client, error) {
	kube, err := kubernetes.NewForConfig(restconfig.Core(config))
	if err != nil {
		return nil, fmt.Errorf("creating a client for pods: %w", err)
	}
	return Of(kube), nil
}

// Of returns a Client that uses kube.
func Of(kube kubernetes.Interface) Client { return client{kube} }

// List implements Client. Without a resource version the API server answers
// from its index of pods by node, after that has caught up: nothing that was
// bound before the call is missing.
func (c client) List(ctx context.Context, node string) ([]gate.BoundPod, error) {
	list, err := c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	pods := make([]gate.BoundPod, 0, len(list.Items))
	for i := range list.Items {
		pods = append(pods, BoundPod(&list.Items[i]))
	}
	return pods, nil
}

// Evict implements Client. It does not use the client's EvictV1, which retries for as
// long as a PodDisruptionBudget blocks the eviction.
func (c client) Evict(ctx context.Context, p *gate.BoundPod) (Eviction, error) {
	eviction := &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
			UID: ptr.To(p.UID), ResourceVersion: ptr.To(p.ResourceVersion),
		}},
	}
	err := c.CoreV1().RESTClient().Post().Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("eviction").
		Body(eviction).MaxRetries(0).Do(ctx).Error()
	if err == nil || apierrors.IsNotFound(err) && !clients.DeniedByAdmission(err) {
		return Evicted, nil
	}
	return evictionOf(err), fmt.Errorf("evicting pod %s/%s: %w", p.Namespace, p.Name, err)
}

// evictionOf returns the meaning of an eviction's error. The API server responds with
// TooManyRequests if a PodDisruptionBudget blocks the eviction. The code of a denial may be
// any, such as that of a conflict.
func evictionOf(err error) Eviction {
	switch {
	case apierrors.IsTooManyRequests(err):
		return EvictionBlocked
	case clients.DeniedByAdmission(err), apierrors.IsForbidden(err):
		return EvictionDenied
	case apierrors.IsConflict(err):
		return EvictionOutdated
	}
	return EvictionFailed
}

// BoundPod returns the facts about a Pod.
func BoundPod(o *corev1.Pod) gate.BoundPod {
	p := gate.BoundPod{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
		HostNetwork: o.Spec.HostNetwork,
		Finished:    o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed,
		Terminating: o.DeletionTimestamp != nil,
		Tolerations: o.Spec.Tolerations,
		Created:     clients.Instant(o.CreationTimestamp),
	}
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		p.Owned, p.Daemon = true, owner.Kind == "DaemonSet"
	}
	_, p.Mirror = o.Annotations[corev1.MirrorPodAnnotationKey]
	for i := range o.Status.Conditions {
		if c := &o.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			p.Bound = clients.Instant(c.LastTransitionTime)
		}
	}
	p.Rejection = rejection(o)
	p.Starts = append(starts(o.Status.InitContainerStatuses, true), starts(o.Status.ContainerStatuses, false)...)
	return p
}

// starts returns the last starts of containers.
func starts(statuses []corev1.ContainerStatus, init bool) (all []gate.Start) {
	for i := range statuses {
		if start := started(&statuses[i]); !start.At.IsZero() {
			start.Init = init
			all = append(all, start)
		}
	}
	return all
}

// started returns the last start of a container. A container that waits for a restart
// counts with its previous start.
func started(c *corev1.ContainerStatus) gate.Start {
	state := c.State
	if state.Waiting != nil {
		state = c.LastTerminationState
	}
	switch {
	case state.Running != nil:
		return gate.Start{At: clients.Instant(state.Running.StartedAt), Running: true}
	case state.Terminated != nil:
		return gate.Start{At: clients.Instant(state.Terminated.StartedAt)}
	}
	return gate.Start{}
}
