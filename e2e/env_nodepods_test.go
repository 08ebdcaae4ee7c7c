// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/install"
)

// podOption changes a pod that a test binds to a node.
type podOption func(*corev1.Pod)

// inNamespace sets the pod's namespace. It creates the ServiceAccount that the pod needs,
// because no kube-controller-manager runs.
func (e *env) inNamespace(namespace string) podOption {
	e.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
	if err := e.admin.Create(e.Context(), account); err != nil && !apierrors.IsAlreadyExists(err) {
		e.Fatal(err)
	}
	return func(p *corev1.Pod) { p.Namespace = namespace }
}

// ownedBy gives the pod a controller of this kind.
func ownedBy(kind string) podOption {
	return func(p *corev1.Pod) {
		owner := &metav1.ObjectMeta{Name: "owner", UID: types.UID("owner-of-" + p.Name)}
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind(kind))}
	}
}

// tolerating adds a toleration of a taint key to the pod.
func tolerating(key string) podOption {
	return func(p *corev1.Pod) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
}

func onHostNetwork(p *corev1.Pod) { p.Spec.HostNetwork = true }

// labelled gives the pod the label app.
func labelled(app string) podOption {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": app} }
}

// bind creates a pod that is bound to the node and has been running since the given time.
func (k *kubelet) bind(name string, since time.Time, change ...podOption) *corev1.Pod {
	k.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: k.name, Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	for _, f := range change {
		f(pod)
	}
	k.must(k.admin.Create(k.Context(), pod))
	k.Cleanup(func() {
		_ = k.admin.Delete(context.Background(), pod, client.GracePeriodSeconds(0)) // it may be deleted already
	})
	pod.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", Image: "app", ContainerID: "containerd://" + name, Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}},
		}},
	}
	k.must(k.admin.Status().Update(k.Context(), pod))
	return pod
}

// finish reports that the pod has succeeded.
func (k *kubelet) finish(pod *corev1.Pod) {
	k.Helper()
	pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodSucceeded, nil
	k.must(k.admin.Status().Update(k.Context(), pod))
}

// isTerminating reports whether the pod is being deleted or does not exist.
func (e *env) isTerminating(pod *corev1.Pod) bool {
	e.Helper()
	var now corev1.Pod
	err := e.admin.Get(e.Context(), client.ObjectKeyFromObject(pod), &now)
	if apierrors.IsNotFound(err) {
		return true
	}
	e.must(err)
	return now.DeletionTimestamp != nil
}

// allowEvictions applies the objects that 'nodegate manifests --evict-pods' adds.
func (e *env) allowEvictions() {
	e.Helper()
	e.allow("--evict-pods", func(o *install.Options) { o.EvictPods = true })
}

// allow applies the objects that 'nodegate manifests' adds with a flag that grants a
// permission. It deletes them when the test ends.
func (e *env) allow(flag string, choose func(*install.Options)) {
	e.Helper()
	without, err := install.Objects(installation)
	e.must(err)
	base := make(map[string]bool)
	id := func(o client.Object) string { return fmt.Sprintf("%T %s", o, o.GetName()) }
	for _, o := range without {
		base[id(o)] = true
	}
	more := installation
	choose(&more)
	with, err := install.Objects(more)
	e.must(err)
	added := 0
	for _, o := range with {
		if base[id(o)] {
			continue
		}
		added++
		o.GetObjectKind().SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind(strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.")))
		e.must(e.admin.Create(e.Context(), o))
		e.Cleanup(func() { e.must(client.IgnoreNotFound(e.admin.Delete(context.Background(), o))) })
	}
	if added != 2 {
		e.Fatalf("%s adds %d objects, want a ClusterRole and its binding", flag, added)
	}
}
