// SPDX-License-Identifier: Apache-2.0

package read

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/boundpods"
)

// Pod returns a pod.
func (r *Reader) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, err := r.core.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading pod: %w", err)
	}
	return pod, nil
}

// PodOfDeployment returns a pod as a Deployment creates it. As the API server does for pods, but
// not for templates, it sets requests that are missing to the limits.
func (r *Reader) PodOfDeployment(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	deployment, err := r.core.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading deployment: %w", err)
	}
	pod := &corev1.Pod{ObjectMeta: deployment.Spec.Template.ObjectMeta, Spec: deployment.Spec.Template.Spec}
	setMissingRequests(&pod.Spec)
	return pod, nil
}

// setMissingRequests sets the requests of containers to their limits. Those of the pod are set to
// the sum of its containers' requests, except for huge pages, and otherwise to its limits.
func setMissingRequests(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			addMissing(&containers[i].Resources.Requests, containers[i].Resources.Limits)
		}
	}
	if spec.Resources == nil {
		return
	}
	sum := resourcehelper.AggregateContainerRequests(&corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{})
	maps.DeleteFunc(sum, func(name corev1.ResourceName, _ resource.Quantity) bool {
		return name != corev1.ResourceCPU && name != corev1.ResourceMemory // others cannot be overcommitted, or not be requested by pods
	})
	addMissing(&spec.Resources.Requests, sum)
	addMissing(&spec.Resources.Requests, spec.Resources.Limits)
}

// AddRuntimeClass adds to a pod that has not been created what its RuntimeClass requires, as the API
// server does when the pod is created. If the API server would reject the pod, rejected is the reason.
// If the pod is rejected, or the RuntimeClass cannot be read, the pod stays as it is.
func (r *Reader) AddRuntimeClass(ctx context.Context, pod *corev1.Pod) (rejected string, err error) {
	name := ptr.Deref(pod.Spec.RuntimeClassName, "")
	if name == "" {
		if len(pod.Spec.Overhead) > 0 {
			return "the pod has an overhead, but no RuntimeClass", nil
		}
		return "", nil
	}
	class, err := r.core.NodeV1().RuntimeClasses().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("RuntimeClass %s does not exist", name), nil
	case err != nil:
		return "", fmt.Errorf("reading RuntimeClass %s: %w", name, err)
	}
	if rejected = contradiction(class, &pod.Spec); rejected != "" {
		return rejected, nil
	}
	if class.Scheduling != nil {
		if selector := maps.Clone(class.Scheduling.NodeSelector); len(selector) > 0 {
			maps.Copy(selector, pod.Spec.NodeSelector)
			pod.Spec.NodeSelector = selector
		}
		pod.Spec.Tolerations = append(slices.Clone(pod.Spec.Tolerations), class.Scheduling.Tolerations...)
	}
	if class.Overhead != nil {
		pod.Spec.Overhead = class.Overhead.PodFixed
	}
	return "", nil
}

// contradiction returns the reason why the API server rejects a pod with this RuntimeClass, or "".
func contradiction(class *nodev1.RuntimeClass, pod *corev1.PodSpec) string {
	if class.Scheduling != nil {
		for _, key := range slices.Sorted(maps.Keys(pod.NodeSelector)) {
			if other, both := class.Scheduling.NodeSelector[key]; both && other != pod.NodeSelector[key] {
				return fmt.Sprintf("RuntimeClass %s requires nodes with label %s=%s, and the pod %s=%s", class.Name, key, other, key, pod.NodeSelector[key])
			}
		}
	}
	switch {
	case len(pod.Overhead) == 0:
		return ""
	case class.Overhead == nil:
		return fmt.Sprintf("the pod has an overhead, and RuntimeClass %s has none", class.Name)
	case !equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Overhead):
		return fmt.Sprintf("the pod's overhead differs from that of RuntimeClass %s", class.Name)
	}
	return ""
}

// addMissing adds resources that a list does not contain.
func addMissing(to *corev1.ResourceList, from corev1.ResourceList) {
	for name, quantity := range from {
		if _, exists := (*to)[name]; exists {
			continue
		}
		if *to == nil {
			*to = corev1.ResourceList{}
		}
		(*to)[name] = quantity
	}
}

// AllPods returns all pods of a node (see gate.WantPods).
func (r *Reader) AllPods(ctx context.Context, node string) (*gate.PodList, error) {
	at := r.Now()
	pods, err := boundpods.Of(r.core.CoreV1().RESTClient()).List(ctx, node)
	if err != nil {
		return nil, err
	}
	return &gate.PodList{At: at, Pods: pods}, nil
}

// EveryPod returns all pods of all nodes, by node (see gate.WantPods). Nodes without pods
// have no entry.
func (r *Reader) EveryPod(ctx context.Context) (map[string]*gate.PodList, error) {
	at := r.Now()
	all := make(map[string]*gate.PodList)
	err := r.EachWorkload(ctx, func(o *corev1.Pod) { AddPod(all, at, o) })
	if err != nil {
		return nil, err
	}
	return all, nil
}

// AddPod adds a bound pod to the list of its node. at is the time at which reading began.
func AddPod(lists map[string]*gate.PodList, at time.Time, o *corev1.Pod) {
	list := lists[o.Spec.NodeName]
	if list == nil {
		list = &gate.PodList{At: at}
		lists[o.Spec.NodeName] = list
	}
	list.Pods = append(list.Pods, boundpods.BoundPod(o))
}

// EachWorkload calls each for every pod that is bound to a node. The pods contain only what
// wire.Options.Workloads selects.
func (r *Reader) EachWorkload(ctx context.Context, each func(*corev1.Pod)) error {
	return r.workloads.each(ctx, each)
}

// EachBoundPod is like EachWorkload with whole pods, which takes several times as much CPU.
func (r *Reader) EachBoundPod(ctx context.Context, each func(*corev1.Pod)) error {
	all := podReader{client: r.workloads.client, decoder: scheme.Codecs.UniversalDeserializer(), page: podPageSize}
	return all.each(ctx, each)
}
