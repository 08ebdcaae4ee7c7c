// SPDX-License-Identifier: Apache-2.0

package cluster

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
)

// NodePods is what may be done with all pods of one node. It does not pace
// itself.
type NodePods interface {
	// List reads all pods of a node, as they are now.
	List(ctx context.Context, node string) ([]gate.BoundPod, error)
	// Evict asks for the eviction of a pod that is still as it was listed.
	Evict(ctx context.Context, p *gate.BoundPod) (Eviction, error)
}

// Eviction is what became of a request to evict a pod.
type Eviction string

const (
	// Evicted means that the pod is being deleted, or is gone.
	Evicted Eviction = "evicted"
	// EvictionBlocked means that a PodDisruptionBudget does not allow it now.
	EvictionBlocked Eviction = "blocked"
	// EvictionOutdated means that the pod has changed since it was listed.
	EvictionOutdated Eviction = "outdated"
	// EvictionDenied means that the API server does not let us.
	EvictionDenied Eviction = "denied"
	// EvictionFailed means anything else.
	EvictionFailed Eviction = "failed"
)

// podClient does it for an API server.
type podClient struct{ kubernetes.Interface }

// NewNodePods returns access to the pods of an API server's nodes.
func NewNodePods(config *rest.Config) (NodePods, error) {
	client, err := kubernetes.NewForConfig(coreConfig(config))
	if err != nil {
		return nil, fmt.Errorf("creating a client for pods: %w", err)
	}
	return podClient{client}, nil
}

// List implements NodePods. Without a resource version the API server answers
// from its index of pods by node, after that has caught up: nothing that was
// bound before the call is missing.
func (c podClient) List(ctx context.Context, node string) ([]gate.BoundPod, error) {
	list, err := c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	pods := make([]gate.BoundPod, 0, len(list.Items))
	for i := range list.Items {
		pods = append(pods, boundPod(&list.Items[i]))
	}
	return pods, nil
}

// Evict implements NodePods. The client's own EvictV1 would try again by itself,
// for as long as a PodDisruptionBudget is in the way.
func (c podClient) Evict(ctx context.Context, p *gate.BoundPod) (Eviction, error) {
	eviction := &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
			UID: ptr.To(p.UID), ResourceVersion: ptr.To(p.ResourceVersion),
		}},
	}
	err := c.CoreV1().RESTClient().Post().Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("eviction").
		Body(eviction).MaxRetries(0).Do(ctx).Error()
	if err == nil || apierrors.IsNotFound(err) {
		return Evicted, nil
	}
	return evictionOf(err), fmt.Errorf("evicting pod %s/%s: %w", p.Namespace, p.Name, err)
}

// evictionOf tells what an error of an eviction means. Many Requests is how the
// API says that a PodDisruptionBudget is in the way.
func evictionOf(err error) Eviction {
	switch {
	case apierrors.IsTooManyRequests(err):
		return EvictionBlocked
	case apierrors.IsConflict(err):
		return EvictionOutdated
	case deniedByAdmission(err), apierrors.IsForbidden(err):
		return EvictionDenied
	}
	return EvictionFailed
}

// boundPod makes a Pod into what is to be known of it.
func boundPod(o *corev1.Pod) gate.BoundPod {
	p := gate.BoundPod{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
		HostNetwork: o.Spec.HostNetwork,
		Finished:    o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed,
		Terminating: o.DeletionTimestamp != nil,
		Tolerations: o.Spec.Tolerations,
		Created:     instant(o.CreationTimestamp),
	}
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		p.Owned, p.Daemon = true, owner.Kind == "DaemonSet"
	}
	_, p.Mirror = o.Annotations[corev1.MirrorPodAnnotationKey]
	for i := range o.Status.Conditions {
		if c := &o.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			p.Bound = instant(c.LastTransitionTime)
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{o.Status.InitContainerStatuses, o.Status.ContainerStatuses} {
		for i := range statuses {
			if start := started(&statuses[i]); !start.At.IsZero() {
				p.Starts = append(p.Starts, start)
			}
		}
	}
	return p
}

// started is when a container was started last. One that waits to be started
// again is what it was before.
func started(c *corev1.ContainerStatus) gate.Start {
	state := c.State
	if state.Waiting != nil {
		state = c.LastTerminationState
	}
	switch {
	case state.Running != nil:
		return gate.Start{At: instant(state.Running.StartedAt), Running: true}
	case state.Terminated != nil:
		return gate.Start{At: instant(state.Terminated.StartedAt)}
	}
	return gate.Start{}
}
