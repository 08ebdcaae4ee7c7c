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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
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
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			requestLimits(&containers[i].Resources)
		}
	}
	return pod, nil
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

func requestLimits(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if _, requested := r.Requests[name]; requested {
			continue
		}
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[name] = limit
	}
}

// AllPods returns all pods of a node (see gate.WantPods).
func (r *Reader) AllPods(ctx context.Context, node string) (*gate.PodList, error) {
	at := time.Now()
	pods, err := boundpods.Of(r.core.CoreV1().RESTClient()).List(ctx, node)
	if err != nil {
		return nil, err
	}
	return &gate.PodList{At: at, Pods: pods}, nil
}

// EveryPod returns all pods of all nodes, by node (see gate.WantPods). Nodes without pods
// have no entry.
func (r *Reader) EveryPod(ctx context.Context) (map[string]*gate.PodList, error) {
	at := time.Now()
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
