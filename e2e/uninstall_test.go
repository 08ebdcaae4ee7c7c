// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/install"
	"github.com/nodegate/nodegate/internal/uninstall"
	"github.com/nodegate/nodegate/testcluster/await"
)

// deployment returns a Deployment of one pod.
func deployment(namespace, name string, tolerations []corev1.Toleration) *appsv1.Deployment {
	labels := map[string]string{"app.kubernetes.io/name": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Tolerations: tolerations, Containers: []corev1.Container{{Name: "main", Image: "main"}}},
			},
		},
	}
}

// deploy runs nodegate as a Deployment: the controller runs while its pod is bound to a node.
func (w *schedulingEnv) deploy() {
	w.Helper()
	pods, err := w.admin.Watch(w.Context(), &corev1.PodList{}, client.InNamespace(installation.Namespace))
	w.must(err)
	w.must(w.admin.Create(w.Context(), deployment(installation.Namespace, "nodegate", install.Tolerations(installation.AllowedTaintKeys))))
	done := make(chan struct{})
	go func() {
		defer close(done)
		stops := map[string]func(){}
		for event := range pods.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			stop, running := stops[pod.Name]
			switch ending := event.Type == watch.Deleted || pod.DeletionTimestamp != nil; {
			case ending && running:
				stop()
				delete(stops, pod.Name)
			case !ending && !running && pod.Spec.NodeName != "":
				stops[pod.Name] = w.startController(0)
			}
		}
	}()
	w.Cleanup(sync.OnceFunc(func() { pods.Stop(); <-done }))
}

// bound waits until a pod of a Deployment is bound to a node, and returns the node.
func (w *schedulingEnv) bound(namespace, name string) (node string) {
	w.Helper()
	w.eventually("the pod of "+name+" is bound", func() error {
		var pods corev1.PodList
		w.must(w.admin.List(w.Context(), &pods, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": name}))
		for i := range pods.Items {
			if p := &pods.Items[i]; p.DeletionTimestamp == nil && p.Spec.NodeName != "" {
				node = p.Spec.NodeName
				return nil
			}
		}
		return errNotYet
	})
	return node
}

// All nodes of a cluster, including nodegate's node, are replaced at once. Gates are closed
// on the new nodes at creation while nodegate does not run. It starts on one of them, and
// opens the gates. Then it is uninstalled, and again after most of it was removed.
func TestLifeOfAnInstallation(t *testing.T) {
	w := newSchedulingEnv(t)
	w.schedulableNode("first")
	w.deploy()
	w.bound(installation.Namespace, "nodegate")
	w.declare(newGate("agent", keyA, byLabel("fit")))
	w.survivesReplacement()
	t.Log("uninstalling while nodegate runs")
	w.uninstallsWhileRunning()
	t.Log("uninstalling the rest of an installation")
	w.uninstallsRest()
}

// survivesReplacement replaces all nodes. The gate must open on the new nodes.
func (w *schedulingEnv) survivesReplacement() {
	w.Helper()
	w.must(w.admin.Create(w.Context(), deployment(daemonNamespace, "workload", nil)))
	replaced := w.replaceNodes("second-1", "second-2")
	at := w.bound(installation.Namespace, "nodegate")
	for _, k := range replaced {
		if k.name != at {
			k.label("fit")
			k.becomes("agent", isOpen, keyA)
			w.eventually("the workload runs on the node with the open gate", func() error {
				node := w.bound(daemonNamespace, "workload")
				return errUnless(node == k.name, "it is bound to "+node)
			})
		}
	}
}

// uninstallsWhileRunning tries dry runs, interrupts the removal, and completes it.
func (w *schedulingEnv) uninstallsWhileRunning() {
	w.Helper()
	admin := w.cluster.Admin()
	held := w.kubelet("held")
	held.register()
	held.override("agent", isClosed, time.Hour)
	w.tells(w.ask(admin, "uninstall", "--dry-run=client"), 0, "nodegate.nodegate.dev/agent deleted (dry run)", "node/held released from agent",
		"deployment.apps/nodegate deleted (dry run)", "mutatingadmissionpolicy.admissionregistration.k8s.io/nodegate-birth deleted (dry run)", "namespace/nodegate-system deleted if")
	w.must(held.is("agent", isClosed, keyA))
	w.printsLinesOnce(w.ask(admin, "uninstall", "--dry-run=client"))
	w.tells(w.ask(admin, "uninstall", "-n", "elsewhere"), 2, "nodegate is installed in namespace "+installation.Namespace+", not in elsewhere")
	w.tells(w.ask(admin, "uninstall", "--dry-run=server"), 0, "nodegate.nodegate.dev/agent deleted (server dry run)")
	w.must(held.is("agent", isClosed, keyA))
	w.interruptUninstall("nodegate.nodegate.dev/agent deleted")
	w.tells(w.uninstallsSlowly(), 0, "deployment.apps/nodegate deleted", "waiting for nodegate to stop: ", "nodegate is no longer in the cluster")
	w.isUninstalled()
	if born := w.kubelet("later").register(); hasTaint(born, keyA) || len(records(born)) > 0 {
		w.Errorf("a node was created with taints %v and records %v", keys(born), records(born))
	}
	if again := w.ask(admin, "uninstall"); again.out != "nodegate is no longer in the cluster.\n" {
		w.Errorf("the second uninstall prints %q", again.out)
	}
	w.tells(w.ask(admin, "uninstall", "--dry-run=client"), 0, "nodegate is no longer in the cluster.")
}

// uninstallsSlowly uninstalls nodegate, whose pod exists until the command waits for it.
func (w *schedulingEnv) uninstallsSlowly() answer {
	w.Helper()
	var pods corev1.PodList
	w.must(w.admin.List(w.Context(), &pods, client.InNamespace(installation.Namespace)))
	hold := func(finalizers ...string) {
		for i := range pods.Items {
			w.edit(&pods.Items[i], func() { pods.Items[i].Finalizers = finalizers })
		}
	}
	hold("e2e.nodegate.dev/slow")
	release := sync.OnceFunc(func() { hold() })
	return w.askAnd(w.cluster.Admin(), func(text string) {
		if strings.Contains(text, "waiting for nodegate to stop: ") {
			release()
		}
	}, "uninstall")
}

// interruptUninstall interrupts an uninstall after it has printed this text.
func (w *schedulingEnv) interruptUninstall(after string) {
	w.Helper()
	ctx, interrupt := context.WithCancel(w.Context())
	defer interrupt()
	var output bytes.Buffer
	err := uninstall.Run(ctx, w.cluster.Admin(), uninstall.Options{
		Namespace: installation.Namespace, ServiceAccount: installation.ServiceAccount,
		Out: writerFunc(func(p []byte) (int, error) {
			if bytes.Contains(p, []byte(after)) {
				interrupt()
			}
			return output.Write(p)
		}),
	})
	if err == nil || !strings.Contains(err.Error(), "run the command again") || !strings.Contains(output.String(), "mutatingadmissionpolicybinding.admissionregistration.k8s.io/nodegate-birth deleted") {
		w.Errorf("the interrupted uninstall returns error %v, and prints:\n%s", err, output.String())
	}
}

// uninstallsRest uninstalls nodegate after its policies and CRD were deleted.
func (w *schedulingEnv) uninstallsRest() {
	w.Helper()
	admin := w.cluster.Admin()
	w.eventually("the namespace is deleted", func() error {
		err := w.admin.Get(w.Context(), client.ObjectKey{Name: installation.Namespace}, &corev1.Namespace{})
		return errUnless(apierrors.IsNotFound(err), fmt.Sprint(err))
	})
	w.must(w.apply(w.Context()))
	w.must(w.awaitPolicies(w.Context()))
	stop := w.startController(0)
	w.must(w.admin.Create(w.Context(), newGate("agent", keyA, byLabel("fit"))))
	left := []*kubelet{w.kubelet("left-1"), w.kubelet("left-2")}
	for _, k := range left {
		k.register()
		k.becomes("agent", isClosed, keyA) // by the controller if not at birth
	}
	stop()
	w.must(w.admin.DeleteAllOf(w.Context(), &admissionregistrationv1.MutatingAdmissionPolicy{}))
	for _, name := range []string{admission.RecordsPolicy, admission.ConfinementPolicy} { // the other policies remain
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
		w.must(w.admin.Delete(w.Context(), binding))
	}
	w.deleteCRD()
	w.tells(w.ask(admin, "release", "--gate", "agnet"), 0, "No node has anything to release", `warning: no node has anything of this gate: gate "agnet" not found`)
	w.tells(w.ask(admin, "release", "left-1"), 0, "node/left-1 released from agent: taint "+keyA+":NoSchedule removed")
	w.must(left[0].is("agent", isNone, keyA))
	w.must(w.admin.Create(w.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: installation.Namespace, Name: "mine"}}))
	w.tells(w.ask(admin, "uninstall"), 0, "node/left-2 released from agent", "podtemplate/nodegate-birth deleted", "namespace/nodegate-system kept, because it contains configmap/mine")
	w.isUninstalled()
}

// TestUninstallWhileNodesRegister uninstalls nodegate while no controller runs, and
// registers nodes from the deletion of the binding until the end. API servers apply the
// deletion with a delay, so that gates are still closed on some of these nodes.
func TestUninstallWhileNodesRegister(t *testing.T) {
	e := newControllersEnv(t, nil)
	stop := e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("fit")))
	stop()
	if before := e.kubelet("before").register(); !hasTaint(before, keyA) {
		t.Fatal("the gate is not closed on a new node")
	}
	ctx, end := context.WithCancel(e.Context())
	defer end()
	closed := make(chan int, 1)
	register := sync.OnceFunc(func() { go func() { closed <- e.registerUntil(ctx) }() })
	var output bytes.Buffer
	err := uninstall.Run(ctx, e.cluster.Admin(), uninstall.Options{
		Namespace: installation.Namespace, ServiceAccount: installation.ServiceAccount,
		Out: writerFunc(func(p []byte) (int, error) {
			if bytes.Contains(p, []byte("nodegate-birth deleted")) {
				register()
			}
			return output.Write(p)
		}),
	})
	register() // also if the binding was not deleted
	end()
	t.Logf("gates were closed on %d nodes after the deletion; uninstalling printed:\n%s", <-closed, output.String())
	e.must(err)
	e.isUninstalled()
	if err := e.admin.Get(t.Context(), client.ObjectKey{Name: installation.Namespace}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace still exists (%v)", err)
	}
}

// registerUntil registers nodes until ctx ends. It returns the number of nodes on which a
// gate was closed at creation.
func (e *env) registerUntil(ctx context.Context) (closed int) {
	for i := 0; ; i++ {
		node := e.kubelet(fmt.Sprintf("during-%d", i)).newNode()
		if err := e.admin.Create(context.WithoutCancel(ctx), node); err != nil {
			e.Errorf("registering %s: %v", node.Name, err)
			return closed
		}
		if hasTaint(node, keyA) {
			closed++
		}
		if await.Pause(ctx, 20*time.Millisecond) != nil {
			return closed
		}
	}
}

// printsLinesOnce fails the test if a line is printed twice.
func (e *env) printsLinesOnce(a answer) {
	e.Helper()
	printed := map[string]bool{}
	for line := range strings.Lines(a.out) {
		if printed[line] {
			e.Errorf("a line is printed twice: %s", line)
		}
		printed[line] = true
	}
}

// writerFunc is an io.Writer that calls itself.
type writerFunc func([]byte) (int, error)

// Write implements io.Writer.
func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// replaceNodes deletes all nodes with their pods, and registers other nodes.
func (w *schedulingEnv) replaceNodes(names ...string) []*kubelet {
	w.Helper()
	w.must(w.admin.DeleteAllOf(w.Context(), &corev1.Node{}))
	// The pod garbage collector would do this after a minute.
	w.must(w.admin.DeleteAllOf(w.Context(), &corev1.Pod{}, client.InNamespace(installation.Namespace), client.GracePeriodSeconds(0)))
	w.must(w.admin.DeleteAllOf(w.Context(), &corev1.Pod{}, client.InNamespace(daemonNamespace), client.GracePeriodSeconds(0)))
	var all []*kubelet
	for _, name := range names {
		k := w.schedulableNode(name)
		w.must(k.is("agent", isClosed, keyA)) // while nodegate cannot be scheduled
		all = append(all, k)
	}
	w.deleteOrphans()
	return all
}

// deleteOrphans waits until a pod of nodegate is bound to an existing node, and deletes the pods
// that the scheduler bound to deleted ones: it observes nodes and pods by separate watches. Once
// it has bound a pod to a new node, it has observed that the old ones were deleted.
func (w *schedulingEnv) deleteOrphans() {
	w.Helper()
	w.eventually("a pod of nodegate is bound to an existing node", func() error {
		var pods corev1.PodList
		w.must(w.admin.List(w.Context(), &pods))
		bound := false
		for i := range pods.Items {
			p := &pods.Items[i]
			if p.Spec.NodeName == "" {
				continue
			}
			err := w.admin.Get(w.Context(), client.ObjectKey{Name: p.Spec.NodeName}, &corev1.Node{})
			if apierrors.IsNotFound(err) {
				w.must(client.IgnoreNotFound(w.admin.Delete(w.Context(), p, client.GracePeriodSeconds(0))))
				continue
			}
			w.must(err)
			bound = bound || p.Namespace == installation.Namespace
		}
		return unless(bound)
	})
}

// isUninstalled fails the test if any object of nodegate is left, except the namespace.
func (e *env) isUninstalled() {
	e.Helper()
	var nodes corev1.NodeList
	e.must(e.admin.List(e.Context(), &nodes))
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if hasTaint(n, keyA) || len(records(n)) > 0 || strings.Contains(fmt.Sprint(n.Annotations), "nodegate.dev") {
			e.Errorf("node %s has taints %v and annotations %v", n.Name, keys(n), n.Annotations)
		}
	}
	options := installation
	options.EvictPods = true
	for _, birth := range []admission.Birth{admission.ByPolicy, admission.ByWebhook} {
		options.Birth = birth
		objects, err := install.Objects(options)
		e.must(err)
		for _, o := range objects {
			if _, isNamespace := o.(*corev1.Namespace); isNamespace {
				continue
			}
			if err := e.admin.Get(e.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				e.Errorf("%s %s still exists (%v)", o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), err)
			}
		}
	}
	for _, list := range []client.ObjectList{
		&admissionregistrationv1.MutatingAdmissionPolicyList{}, &admissionregistrationv1.MutatingAdmissionPolicyBindingList{},
		&admissionregistrationv1.ValidatingAdmissionPolicyList{}, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{},
		&flowcontrolv1.FlowSchemaList{}, &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{},
		&corev1.PodTemplateList{}, &coordinationv1.LeaseList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &appsv1.DeploymentList{},
	} {
		e.must(e.admin.List(e.Context(), list))
		e.must(meta.EachListItem(list, func(item runtime.Object) error {
			o, ok := item.(client.Object)
			if !ok || strings.HasPrefix(o.GetName(), "nodegate") || o.GetNamespace() == installation.Namespace {
				e.Errorf("%T: %s/%s still exists", list, o.GetNamespace(), o.GetName())
			}
			return nil
		}))
	}
	if err := e.admin.List(e.Context(), &v1alpha1.NodeGateList{}); err == nil {
		e.Error("NodeGates are still served")
	}
}
