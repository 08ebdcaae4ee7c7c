// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// A tenant with permission only to create pods in the daemon's namespace creates a pod on a
// node before the daemon's pod. The DaemonSet controller adopts it and creates none. The
// kubelet reports that the pod is ready.
func TestForgedDaemonPodOpensNothing(t *testing.T) {
	w := newSchedulingEnv(t)
	w.startController(0)
	ds := w.daemonSet("agent")
	before := ds.DeepCopy()
	ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType} // no rollout replaces the pod
	w.must(w.admin.Patch(t.Context(), ds, client.MergeFrom(before)))
	w.declare(newGate("agent", keyA, byDaemonSet("agent")))
	tenant := w.tenant("forger", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create"}})
	w.setReady(true)
	owner := *metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
	owner.BlockOwnerDeletion = nil
	// The DaemonSet controller observes pods and nodes by separate watches. If it observed a node
	// first, it would create a pod there. The pod to be adopted is the last one, so that the
	// controller has observed both when it has adopted that one.
	names := []string{"forged-owner", "to-be-adopted"}
	for i, owners := range [][]metav1.OwnerReference{{owner}, nil} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: names[i], Labels: ds.Spec.Template.Labels, OwnerReferences: owners},
			Spec:       corev1.PodSpec{NodeName: names[i], Containers: []corev1.Container{{Name: "idle", Image: "idle"}}},
		}
		w.must(tenant.Create(t.Context(), pod))
		w.eventually("the DaemonSet owns the pod, which runs", func() error {
			if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
				return err
			}
			owner := metav1.GetControllerOf(pod)
			return unless(owner != nil && owner.UID == ds.UID && pod.Status.Phase == corev1.PodRunning)
		})
	}
	for _, k := range []*kubelet{w.schedulableNode(names[0]), w.schedulableNode(names[1])} {
		w.waitsFor("agent", k.name, v1alpha1.ReadingPodNotByDaemonSet)
		w.must(k.is("agent", isClosed, keyA))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: k.name}}
		w.must(w.admin.Delete(t.Context(), pod)) // as the message recommends
		k.becomes("agent", isOpen, keyA)
	}
}

// tenant returns a client of a user with these permissions in the daemons' namespace.
func (e *env) tenant(name string, rules ...rbacv1.PolicyRule) client.Client {
	e.Helper()
	meta := metav1.ObjectMeta{Namespace: daemonNamespace, Name: name}
	e.must(e.admin.Create(e.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}))
	e.must(e.admin.Create(e.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}))
	api, err := client.New(e.cluster.User(name), client.Options{Scheme: e.admin.Scheme()})
	e.must(err)
	e.eventually("the tenant has the permissions", func() error {
		err := api.Create(e.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: "probe"}}, client.DryRunAll)
		if apierrors.IsForbidden(err) {
			return err
		}
		return nil // an allowed request fails because the pod is empty
	})
	return api
}
