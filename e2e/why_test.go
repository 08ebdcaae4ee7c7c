// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli"
	"github.com/nodegate/nodegate/internal/explain"
	"github.com/nodegate/nodegate/testcluster"
)

// answer is the exit status and the output of 'kubectl gate'.
type answer struct {
	status   int
	out, err string
}

// ask runs 'kubectl gate' as a user.
func (e *env) ask(user *rest.Config, args ...string) answer {
	e.Helper()
	return e.askAnd(user, func(string) {}, args...)
}

// askAnd is like ask, and calls a function with each text that the command prints.
func (e *env) askAnd(user *rest.Config, printed func(string), args ...string) answer {
	e.Helper()
	kubeconfig := filepath.Join(e.TempDir(), "kubeconfig")
	e.must(testcluster.WriteKubeconfig(kubeconfig, user))
	var out, err bytes.Buffer
	also := func(b *bytes.Buffer) io.Writer {
		return writerFunc(func(p []byte) (int, error) { printed(string(p)); return b.Write(p) })
	}
	status := cli.Execute(e.Context(), genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: also(&out), ErrOut: also(&err)}, append(args, "--kubeconfig", kubeconfig))
	before, _, _ := strings.Cut(err.String(), "To run the printed kubectl commands on this cluster, add: --kubeconfig "+kubeconfig+"\n")
	return answer{status, out.String(), before}
}

// tells fails the test unless the command had this exit status and printed all texts.
func (e *env) tells(a answer, status int, texts ...string) {
	e.Helper()
	for _, w := range texts {
		if !strings.Contains(a.out+a.err, w) {
			e.Errorf("the command does not print %q:\n%s%s", w, a.out, a.err)
		}
	}
	if a.status != status {
		e.Errorf("the exit status is %d, want %d:\n%s%s", a.status, status, a.out, a.err)
	}
	if a.status == 2 && (a.out != "" || strings.Count(a.err, "\n") != 1) {
		e.Errorf("an error must be one line on standard error, got\n%s%s", a.out, a.err)
	}
}

// The command reads an existing node's pods if a gate in dry run depends on whether the node
// is idle.
func TestWhyOfAnIdleNode(t *testing.T) {
	e := newEnv(t)
	k := e.kubelet("n1")
	k.register()
	k.report(corev1.ConditionTrue, "")
	ng := newGate("tried", keyA, byLabel("ready"))
	ng.Spec.Mode = v1alpha1.ModeDryRun
	ng.Spec.ExistingNodes = v1alpha1.ExistingCloseIfIdle
	e.waitNextSecond() // the gate must be younger than the node
	e.must(e.admin.Create(t.Context(), ng))
	e.tells(e.ask(e.cluster.Admin(), "why", "n1"), 0, "tried: would not be a member (dry run)", "budget.maxReclosed")
	ds := e.daemonSet("workload")
	pod := k.daemonPod(ds, func(p *corev1.Pod) { p.OwnerReferences = nil })
	e.tells(e.ask(e.cluster.Admin(), "why", "n1"), 0, "the node is not idle")
	e.must(client.IgnoreNotFound(e.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0))))
	podless := e.may("podless", reads("", "nodes"), reads(v1alpha1.GroupName, "nodegates"))
	e.tells(e.ask(podless, "why", "n1"), 0, "all of its pods must be checked first", `cannot list resource "pods"`)
}

// may grants a user permission to read these resources, and returns the user's identity.
func (e *env) may(user string, rules ...rbacv1.PolicyRule) *rest.Config {
	e.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	for _, o := range []client.Object{role, binding} {
		e.must(e.admin.Create(e.Context(), o))
		e.Cleanup(func() { _ = e.admin.Delete(context.Background(), o) }) // the test's own context has ended
	}
	// The API server observes permissions by a watch.
	e.eventually("the permissions of "+user, func() error {
		for _, rule := range rules {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Group: rule.APIGroups[0], Resource: rule.Resources[0], Verb: rule.Verbs[0],
					Name: append(rule.ResourceNames, "")[0]}}}
			if err := e.admin.Create(e.Context(), review); err != nil || !review.Status.Allowed {
				return fmt.Errorf("%s %s is not allowed (%v)", rule.Verbs[0], rule.Resources[0], err)
			}
		}
		return nil
	})
	return e.cluster.User(user)
}

// reads returns a rule that allows reading a resource.
func reads(group, resource string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"get", "list"}}
}

// A gate is closed when a node is created, and opens when its signals hold. The exit status
// shows the state. The command makes few requests, each once.
func TestWhyANodeIsHeld(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	k := e.kubelet("n1")
	k.register()
	a := e.ask(e.cluster.Admin(), "why", "n1")
	e.tells(a, 1, "held by 1 of 1 gates", "agent: closed for", "the node is new (Birth)", keyA+":NoSchedule",
		"daemons/agent has no pod on this node (PodMissing)", "find out why the node has no such pod")
	pod := k.daemonPod(ds)
	k.run(pod, false)
	e.tells(e.ask(e.cluster.Admin(), "why", "n1"), 1, pod.Name+" is not ready (PodNotReady)")
	k.run(pod, true)
	k.becomes("agent", isOpen, keyA)
	e.tells(e.ask(e.cluster.Admin(), "why", "node/n1"), 0, "No gate holds node n1", "agent: open for")
}

// While no controller runs, the command reports its pending changes. The gate counts as
// closed while the node has the taint.
func TestWhyWithoutAController(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	stop()
	k := e.kubelet("n1")
	k.register()
	e.must(k.is("agent", isClosed, keyA))
	k.label("ready")
	e.tells(e.ask(e.cluster.Admin(), "why", "n1"), 1, "closed for", "about to open", "check whether the controller is running")
}

// The command reports the decisions of a gate in DryRun, which does not count as closed.
func TestWhyOfADryRun(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := newGate("tried", keyA, byLabel("ready"))
	ng.Spec.Mode = v1alpha1.ModeDryRun
	e.declare(ng)
	k := e.kubelet("n1")
	k.register()
	e.tells(e.ask(e.cluster.Admin(), "why", "n1"), 0, "No gate holds", "tried: would be closed (dry run)", "the node has no label ready")
	k.label("ready")
	e.tells(e.ask(e.cluster.Admin(), "why", "n1"), 0, "tried: would be open (dry run)")
}

// The command reports an override, its user, and the state of the gate without it.
func TestWhyOfAnOverride(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	k.register()
	k.override("agent", isOpen, time.Hour)
	k.becomesOverridden("agent", isClosed, isOpen)
	e.tells(e.ask(e.cluster.Admin(), "why", "n1"), 0, "override  open until", `"ticket \"7\""`, "without the override it would be closed")
	k.label("ready")
	k.becomesOverridden("agent", isOpen, "")
	k.override("agent", isClosed, time.Hour)
	k.becomesOverridden("agent", isOpen, isClosed)
	e.tells(e.ask(e.cluster.Admin(), "why", "n1"), 1, "override  closed until", "without the override it would be open", "kubectl gate reset n1 --gate agent")
}

// The output is also available in a machine-readable format.
func TestWhyForPrograms(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.agent()
	e.kubelet("n1").register()
	a := e.ask(e.cluster.Admin(), "why", "n1", "-o", "json")
	e.tells(a, 1)
	var got explain.Explanation
	e.must(json.Unmarshal([]byte(a.out), &got))
	if !got.Held || len(got.Gates) != 1 || got.Gates[0].State != isClosed || got.Gates[0].Signals[0].Reason != v1alpha1.ReadingPodMissing {
		t.Errorf("got %+v", got)
	}
	e.tells(e.ask(e.cluster.Admin(), "why", "n1", "-o", "yaml"), 1, "held: true\n")
}

// The command requires only permission to read the objects on which gates depend. Facts that
// the user may not read are unknown, with the missing permission. Without the first two
// permissions, the command fails.
func TestWhyWithFewRights(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	k := e.kubelet("n1")
	k.register()
	k.run(k.daemonPod(ds), false)

	node, gates, sets, pods := reads("", "nodes"), reads(v1alpha1.GroupName, "nodegates"), reads("apps", "daemonsets"), reads("", "pods")
	e.tells(e.ask(e.may("reader", node, gates, sets, pods), "why", "n1"), 1, "is not ready (PodNotReady)")
	a := e.ask(e.may("podless", node, gates, sets), "why", "n1")
	e.tells(a, 1, "? signal", `cannot list resource "pods"`, "get permission to read it")
	e.tells(e.ask(e.may("setless", node, gates, pods), "why", "n1"), 1, "? signal", `cannot list resource "daemonsets"`)
	e.tells(e.ask(e.may("gateless", node), "why", "n1"), 2, `cannot list resource "nodegates"`)
	e.tells(e.ask(e.may("nothing"), "why", "n1"), 2, `cannot get resource "nodes"`)
}

// The command explains which gates keep a pod off which nodes, or the pods of a Deployment. The
// exit status shows whether gates keep it off a node that would fit.
func TestWhyOfAPod(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	k.register(func(n *corev1.Node) {
		n.Labels["pool"] = "web"
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10"), corev1.ResourceCPU: resource.MustParse("4")}
		n.Status.Capacity = n.Status.Allocatable
	})
	e.must(e.editTaints(t.Context(), "n1", "node-lifecycle", func(taints []corev1.Taint) []corev1.Taint {
		return without(taints, corev1.TaintNodeNotReady)
	}))
	e.kubelet("n2").register()
	spec := corev1.PodSpec{NodeSelector: map[string]string{"pool": "web"}, Containers: []corev1.Container{{Name: "c", Image: "none"}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: "web"}, Spec: spec}
	e.must(e.admin.Create(t.Context(), pod))
	e.Cleanup(func() { _ = e.admin.Delete(context.Background(), pod, client.GracePeriodSeconds(0)) })
	labels := map[string]string{"app": "web"}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: "web"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
	}}
	e.must(e.admin.Create(t.Context(), deployment))
	e.Cleanup(func() { _ = e.admin.Delete(context.Background(), deployment) })

	big := deployment.DeepCopy()
	big.Name, big.ResourceVersion = "big", ""
	big.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")}
	e.must(e.admin.Create(t.Context(), big))
	e.Cleanup(func() { _ = e.admin.Delete(context.Background(), big) })

	admin := e.cluster.Admin()
	e.tells(e.ask(admin, "why", "deploy/"+daemonNamespace+"/big"), 0, "it could run on none of these", "1 node  insufficient cpu")
	for _, object := range []string{"pod/" + daemonNamespace + "/web", "deploy/" + daemonNamespace + "/web"} {
		e.tells(e.ask(admin, "why", object), 1, "off 2 of 2 nodes", "it could run on 1 of these", "signal: the node has no label ready (Missing)",
			"kubectl gate why n1", "1 node  the pod's node selector or affinity does not match")
	}
	e.tells(e.ask(admin, "why", "pod/"+daemonNamespace+"/web", "-o", "json"), 1, `"wouldFit": 1`)
	k.label("ready")
	k.becomes("agent", isOpen, keyA)
	e.tells(e.ask(admin, "why", "pod/"+daemonNamespace+"/web"), 0, "It could run on 1 node now, as far as this command checks: n1")
	e.must(e.admin.SubResource("binding").Create(t.Context(), pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}))
	e.tells(e.ask(admin, "why", "pod/"+daemonNamespace+"/web"), 0, "is bound to node n1")
	e.must(e.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError", Message: "no devices"}
	e.must(e.admin.Status().Update(t.Context(), pod))
	e.tells(e.ask(admin, "why", "pod/"+daemonNamespace+"/web"), 0, "whose kubelet rejected it", "UnexpectedAdmissionError", "by no controller")

	e.tells(e.ask(admin, "why", "pod/web"), 2, `"pod/web" is not a valid pod: use pod/NAMESPACE/NAME`)
	e.tells(e.ask(admin, "why", "deploy/x/web"), 2, "deployment x/web not found")
	// Gates on open nodes may be about to close, as for a node.
	a := e.ask(e.may("podless", reads("", "nodes"), reads(v1alpha1.GroupName, "nodegates"), reads("apps", "deployments")), "why", "deploy/"+daemonNamespace+"/web")
	if a.status != 2 || !strings.Contains(a.out, "It could run on 1 node now") || !strings.Contains(a.out, "Incomplete: listing all pods") ||
		!strings.HasPrefix(a.err, "error: no gate is known to keep the pod off") || strings.Count(a.err, "\n") != 1 {
		t.Errorf("without permission to list pods, the answer is %+v", a)
	}
}

// An error is reported in one line.
func TestWhyOfWhatIsNot(t *testing.T) {
	e := newEnv(t)
	e.kubelet("worker-17").register()
	admin := e.cluster.Admin()
	e.tells(e.ask(admin, "why", "worker-71"), 2, `node "worker-71" not found`, "did you mean worker-17?")
	blind := e.may("blind", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}})
	e.tells(e.ask(blind, "why", "worker-71"), 2, `node "worker-71" not found`+"\n")
	e.tells(e.ask(admin, "why", "worker-17"), 0, "No gate applies to node worker-17")
	e.tells(e.ask(admin, "why"), 2, "takes exactly one node name")
	e.tells(e.ask(admin, "why", "worker-17", "-o", "xml"), 2, "use json or yaml")
	e.tells(e.ask(admin, "whi", "worker-17"), 2, `unknown command "whi"`)
	away := rest.CopyConfig(admin)
	away.Host = "https://127.0.0.1:1"
	e.tells(e.ask(away, "why", "worker-17"), 2, "cannot reach the API server", "connection refused")
}
