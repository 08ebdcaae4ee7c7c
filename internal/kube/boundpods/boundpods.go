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
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/clients"
	"github.com/nodegate/nodegate/internal/kube/restconfig"
	"github.com/nodegate/nodegate/internal/kube/wire"
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

type client struct {
	core rest.Interface
	pods *wire.PodReader
}

var _ Client = client{}

// New returns a Client of an API server.
func New(config *rest.Config) (Client, error) {
	core, err := corev1client.NewForConfig(restconfig.Core(config))
	if err != nil {
		return nil, fmt.Errorf("creating a client for pods: %w", err)
	}
	return Of(core.RESTClient()), nil
}

// Of returns a Client that uses a client of the core group.
func Of(core rest.Interface) Client {
	return client{core, wire.NewPodReader(scheme.Codecs.UniversalDeserializer(), wire.Options{Workloads: true, Rejections: true})}
}

// List implements Client. Without a resource version the API server answers
// from its index of pods by node, after that has caught up: nothing that was
// bound before the call is missing. It would not use the index for further pages.
// Instead, pods are decoded one by one while they are received, and only in part:
// users can create any number of large pods for a node.
func (c client) List(ctx context.Context, node string) ([]gate.BoundPod, error) {
	o := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
	body, err := c.core.Get().Resource("pods").VersionedParams(&o, scheme.ParameterCodec).Stream(ctx)
	pods, kept := []gate.BoundPod{}, 0
	if err == nil {
		defer body.Close()
		err = c.pods.Each(body, func(o *corev1.Pod) {
			p := BoundPod(o)
			if len(p.Tolerations) > min(maxTolerations, maxAllTolerations-kept) {
				p.Tolerations, p.ManyTolerations = nil, true
			}
			kept += len(p.Tolerations)
			pods = append(pods, p)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	return pods, nil
}

// Evict implements Client. It does not use the client's EvictV1, which retries for as
// long as a PodDisruptionBudget blocks the eviction.
func (c client) Evict(ctx context.Context, p *gate.BoundPod) (Eviction, error) {
	eviction := &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
			UID: new(p.UID), ResourceVersion: new(p.ResourceVersion),
		}},
	}
	err := c.core.Post().Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("eviction").
		Body(eviction).MaxRetries(0).Do(ctx).Error()
	if err == nil || clients.DoesNotExist(err) && !clients.DeniedByAdmission(err) {
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

// Limits of what is kept of a pod. Users can create any number of pods for a node, and a pod may
// have more than a hundred thousand tolerations or, according to its kubelet, containers.
const (
	maxTolerations = 64
	maxStarts      = 256
	maxReason      = 512
	// maxAllTolerations is the limit for all pods of a node, which is many times what nodes have.
	maxAllTolerations = 1 << 16
)

// starts returns the last starts of containers.
func starts(statuses []corev1.ContainerStatus, init bool) (all []gate.Start) {
	for i := range min(len(statuses), maxStarts) {
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
