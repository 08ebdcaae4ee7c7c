// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/admission"
)

// Parts of the guard's messages.
const (
	onlyItsLabel = "the label pod-template-generation marks pods that the DaemonSet controller created"
	onlyItsPods  = "only the DaemonSet controller may create pods that a DaemonSet controls"
)

// guardDaemonPods puts the optional policy into force until the test ends.
func guardDaemonPods(t *testing.T, in *installation) {
	t.Helper()
	guarded := options
	guarded.GuardDaemonPods, guarded.DaemonPodCreators = true, []string{"pod-restorer"}
	policies, err := admission.Policies(guarded)
	if err != nil {
		t.Fatal(err)
	}
	policies = slices.DeleteFunc(policies, func(o client.Object) bool { return o.GetName() != admission.DaemonPodsPolicy })
	if len(policies) != 2 {
		t.Fatalf("there are %d objects", len(policies))
	}
	renamed(t, in, policies, "")
	eventually(t, func() error {
		_, err := in.admin.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), podOf(ofDaemonSet("apps/v1", true)), metav1.CreateOptions{DryRun: dryRun})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("the guard is not in force (%w)", err)
		}
		return nil
	})
}

// podOf returns a pod without owners, changed by the functions.
func podOf(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "plain", Labels: map[string]string{"app": "agent"}},
		Spec:       corev1.PodSpec{NodeName: "elsewhere", Containers: []corev1.Container{{Name: "idle", Image: "idle"}}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func ofDaemonSet(apiVersion string, controller bool) func(*corev1.Pod) {
	return ownedBy(metav1.OwnerReference{APIVersion: apiVersion, Kind: "DaemonSet", Name: "agent", UID: "1", Controller: &controller})
}

func ownedBy(owner metav1.OwnerReference) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.OwnerReferences = append(p.OwnerReferences, owner) }
}

func generation(p *corev1.Pod) { p.Labels["pod-template-generation"] = "1" }

// podUsers are clients of users who may do anything with pods.
func podUsers(t *testing.T, in *installation) map[string]*kubernetes.Clientset {
	t.Helper()
	pods := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "pods/status", "pods/binding", "nodes"}, Verbs: []string{"*"}}
	return map[string]*kubernetes.Clientset{
		"tenant":     newUser(t, in, "pod-tenant", pods),
		"restorer":   newUser(t, in, "pod-restorer", pods),
		"admin":      in.admin,
		"controller": as(t, in.User("system:serviceaccount:kube-system:daemon-set-controller", "system:masters")),
		"manager":    as(t, in.User("system:kube-controller-manager", "system:masters")),
	}
}

// TestDaemonPodsOnCreation tests that only the DaemonSet controller and listed users
// can create pods that count as pods of DaemonSets.
func TestDaemonPodsOnCreation(t *testing.T) {
	in := install(t)
	guardDaemonPods(t, in)
	by := podUsers(t, in)
	kruise := ofDaemonSet("apps.kruise.io/v1alpha1", true)
	replicaSet := ownedBy(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "agent", UID: "1", Controller: new(true)})
	second := func(p *corev1.Pod) {
		ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "2"})(p)
		ofDaemonSet("apps/v1", true)(p)
	}
	for name, test := range map[string]struct {
		by   string
		pod  *corev1.Pod
		want string
	}{
		"no owner":                  {"tenant", podOf(), ""},
		"a ReplicaSet's":            {"tenant", podOf(replicaSet), ""},
		"forged":                    {"tenant", podOf(ofDaemonSet("apps/v1", true)), onlyItsPods},
		"forged, as second owner":   {"tenant", podOf(second), onlyItsPods},
		"forged, of an old version": {"tenant", podOf(ofDaemonSet("apps/v1beta2", true)), onlyItsPods},
		"owned, not controlled":     {"tenant", podOf(ofDaemonSet("apps/v1", false)), ""},
		"labelled, no owner":        {"tenant", podOf(generation), onlyItsLabel},
		"of another kind":           {"tenant", podOf(kruise), ""},
		"of another kind, labelled": {"tenant", podOf(kruise, generation), onlyItsLabel},
		"forged by administrators":  {"admin", podOf(ofDaemonSet("apps/v1", true), generation), onlyItsLabel},
		"a listed user":             {"restorer", podOf(ofDaemonSet("apps/v1", true), generation), ""},
		"a listed user, other kind": {"restorer", podOf(kruise, generation), ""},
		"the DaemonSet controller":  {"controller", podOf(ofDaemonSet("apps/v1", true), generation), ""},
		"the controller manager":    {"manager", podOf(ofDaemonSet("apps/v1", true), generation), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := by[test.by].CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), test.pod, metav1.CreateOptions{DryRun: dryRun})
			checkDenied(t, err, test.want)
		})
	}
}

// TestDaemonPodsOnUpdate tests that no other user can turn an existing pod into one that
// counts as a DaemonSet's, by any subresource. Owners and labels that a pod already has
// may be kept and removed.
func TestDaemonPodsOnUpdate(t *testing.T) {
	in := install(t)
	guardDaemonPods(t, in)
	by := podUsers(t, in)
	pods := in.admin.CoreV1().Pods(metav1.NamespaceDefault)
	restored := by["restorer"].CoreV1().Pods(metav1.NamespaceDefault)
	daemons := func(p *corev1.Pod) { p.Name = "daemons" }
	unbound := func(p *corev1.Pod) { p.Name, p.Spec.NodeName = "unbound", "" }
	for _, p := range []*corev1.Pod{podOf(), podOf(daemons, ofDaemonSet("apps/v1", true), generation), podOf(unbound)} {
		if _, err := restored.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = pods.Delete(context.Background(), p.Name, *metav1.NewDeleteOptions(0)) })
	}
	const (
		owner  = `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"agent","uid":"1","controller":true}]}}`
		other  = `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"other","uid":"2","controller":true}]}}`
		orphan = `{"metadata":{"ownerReferences":null}}`
		label  = `{"metadata":{"labels":{"pod-template-generation":"1"}}}`
		raised = `{"metadata":{"labels":{"pod-template-generation":"2"}}}`
		bare   = `{"metadata":{"labels":{"pod-template-generation":null}}}`
		aside  = `{"metadata":{"labels":{"app":"aside"}}}`
		beat   = `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
	)
	for name, test := range map[string]struct {
		by, pod, patch, subresource string
		want                        string
	}{
		"an owner":                  {"tenant", "plain", owner, "", onlyItsPods},
		"an owner, adopted":         {"controller", "plain", owner, "", ""},
		"a label":                   {"tenant", "plain", label, "", onlyItsLabel},
		"a label by its status":     {"tenant", "plain", label, "status", onlyItsLabel},
		"another label":             {"tenant", "plain", aside, "", ""},
		"its status":                {"tenant", "plain", beat, "status", ""},
		"a daemon's other labels":   {"tenant", "daemons", aside, "", ""},
		"a daemon's status":         {"tenant", "daemons", beat, "status", ""},
		"another owner":             {"tenant", "daemons", other, "", onlyItsPods},
		"another generation":        {"tenant", "daemons", raised, "", onlyItsLabel},
		"the same":                  {"tenant", "daemons", owner, "", ""},
		"no owner":                  {"tenant", "daemons", orphan, "", ""},
		"no label":                  {"tenant", "daemons", bare, "", ""},
		"a label, by a listed user": {"restorer", "plain", label, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			subresources := []string{}
			if test.subresource != "" {
				subresources = append(subresources, test.subresource)
			}
			_, err := by[test.by].CoreV1().Pods(metav1.NamespaceDefault).Patch(t.Context(), test.pod, mergePatch, []byte(test.patch), dryRunPatch, subresources...)
			checkDenied(t, err, test.want)
		})
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "unbound", Labels: map[string]string{"pod-template-generation": "1"}}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}
	err := by["tenant"].CoreV1().Pods(metav1.NamespaceDefault).Bind(t.Context(), binding, metav1.CreateOptions{DryRun: dryRun})
	checkDenied(t, err, onlyItsLabel)
	binding.Labels = map[string]string{corev1.LabelTopologyZone: "a"}
	err = by["tenant"].CoreV1().Pods(metav1.NamespaceDefault).Bind(t.Context(), binding, metav1.CreateOptions{DryRun: dryRun})
	checkDenied(t, err, "")
}

// TestDaemonSetControllerIsFree tests that, with the guard in force, the real DaemonSet
// controller creates pods with the labels that nodegate requires, and adopts the
// orphaned pods of a deleted DaemonSet.
func TestDaemonSetControllerIsFree(t *testing.T) {
	in := install(t)
	guardDaemonPods(t, in)
	labels := label(t)
	ctx, sets, pods := t.Context(), in.admin.AppsV1().DaemonSets(metav1.NamespaceDefault), in.admin.CoreV1().Pods(metav1.NamespaceDefault)
	node, err := in.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "of-daemons", Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteNode(t, in, node.Name) })
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "free"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector: labels, Containers: []corev1.Container{{Name: "daemon", Image: "daemon"}},
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				},
			},
		},
	}
	owned := func(by *appsv1.DaemonSet) (pod corev1.Pod) {
		t.Helper()
		eventually(t, func() error {
			list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(ds.Spec.Selector)})
			if err != nil || len(list.Items) != 1 || !metav1.IsControlledBy(&list.Items[0], by) {
				return fmt.Errorf("%d pods, or a pod with another owner (%w)", len(list.Items), err)
			}
			pod = list.Items[0]
			return nil
		})
		return pod
	}
	first, err := sets.Create(ctx, ds, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made := owned(first)
	if made.Labels["pod-template-generation"] != "1" || made.Labels["controller-revision-hash"] == "" {
		t.Errorf("the DaemonSet controller's pod has the labels %v", made.Labels)
	}
	if err := sets.Delete(ctx, ds.Name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}); err != nil {
		t.Fatal(err)
	}
	var second *appsv1.DaemonSet
	eventually(t, func() (err error) { second, err = sets.Create(ctx, ds, metav1.CreateOptions{}); return err })
	if adopted := owned(second); adopted.UID != made.UID {
		t.Errorf("adopted pod is %s, want %s", adopted.Name, made.Name)
	}
	if err := sets.Delete(ctx, ds.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}
