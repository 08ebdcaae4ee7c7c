// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller"
	"github.com/nodegate/nodegate/internal/release"
)

// Without a running nodegate, the release command removes exactly what gates have left on
// nodes.
func TestRelease(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	first, second := e.declare(newGate("first", keyA, byLabel("never"))), e.declare(newGate("second", keyA, byLabel("never")))
	held, other := e.kubelet("held-1"), e.kubelet("held-2")
	foreign := corev1.Taint{Key: "example.com/pool", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}
	held.register(func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{foreign}
		n.Annotations = map[string]string{"mine": "x"}
	})
	other.register()
	held.override("second", isClosed, time.Hour)
	stop()
	e.must(e.admin.Delete(t.Context(), first))
	e.must(e.admin.Delete(t.Context(), second))
	e.must(held.is("first", isClosed, keyA))
	admin := e.cluster.Admin()

	e.tells(e.ask(admin, "release", "held-1", "--all"), 2, "specify either node names or --all")
	e.tells(e.ask(admin, "release"), 2, "specify node names, --gate or --all")
	e.tells(e.ask(admin, "release", "--all", "--dry-run=maybe"), 2, "invalid --dry-run=maybe")
	e.tells(e.ask(admin, "release", "held-1", "hold-2"), 2, `node "hold-2" not found`, "did you mean")
	for _, mode := range []string{"client", "server"} {
		e.tells(e.ask(admin, "release", "--all", "--dry-run="+mode), 0,
			"node/held-1 released from first, second: taint "+keyA+":NoSchedule removed", "node/held-2", "dry run)")
	}
	e.must(held.is("first", isClosed, keyA))

	patchNodes := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "patch"}}
	readLease := rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get"}}
	readBinding := rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterrolebindings"}, Verbs: []string{"get"}}
	// Without a Lease, nodegate may be installed in another namespace.
	e.tells(e.ask(e.may("stranger", patchNodes, readLease), "release", "held-1"), 2, "determining nodegate's namespace", "use --force")
	editor := e.may("editor", patchNodes, readLease, readBinding)
	e.tells(e.ask(editor, "release", "held-1"), 1, "node/held-1 not released", `ask for the verb "override"`)
	e.must(held.is("first", isClosed, keyA))

	e.tells(e.ask(admin, "release", "node/held-1", "--gate=second"), 0, "node/held-1 released from second\n")
	e.must(held.is("first", isClosed, keyA)) // the gates share the taint
	if all := held.node().Annotations; all[v1alpha1.RecordAnnotationPrefix+"second"]+all[v1alpha1.OverrideAnnotationPrefix+"second"] != "" {
		t.Errorf("the node still has annotations of the second gate: %v", all)
	}
	a := e.ask(admin, "release", "held-1", "-o", "json")
	e.tells(a, 0)
	var report release.Report
	e.must(json.Unmarshal([]byte(a.out), &report))
	if len(report.Nodes) != 1 || report.Nodes[0].Node != "held-1" || len(report.Nodes[0].Gates) != 1 || report.Nodes[0].Gates[0] != "first" {
		t.Errorf("the command reports %+v", report)
	}
	node := held.node()
	e.must(held.is("first", isNone, keyA))
	if len(records(node)) > 0 || node.Annotations["mine"] != "x" || !hasTaint(node, foreign.Key) {
		t.Errorf("the released node has annotations %v and taints %v", node.Annotations, keys(node))
	}
	e.must(other.is("first", isClosed, keyA))
	identity, err := e.cluster.ServiceAccount(t.Context(), installation.Namespace, installation.ServiceAccount)
	e.must(err)
	if a := e.ask(identity, "release", "--all", "-o", "name"); a.out != "node/held-2\n" || a.status != 0 {
		t.Errorf("with the controller's credentials, the answer is %+v", a)
	}
	e.must(other.is("first", isNone, keyA))
	e.tells(e.ask(admin, "release", "--all"), 0, "No node has anything to release")
}

// While nodegate runs, existing gates are not released, because it would revert that.
func TestReleaseIsRefusedWhileNodegateRuns(t *testing.T) {
	e := newEnv(t)
	stop := e.runController(func(p *controller.Process) { p.LeaderElect, p.LeaseDuration = true, time.Minute })
	e.declare(newGate("agent", keyA, byLabel("never")))
	k := e.kubelet("n1")
	k.register()
	admin := e.cluster.Admin()
	e.tells(e.ask(admin, "release", "--all"), 2, "nodegate is running", "kubectl delete nodegates agent")
	e.tells(e.ask(admin, "release", "--all", "--dry-run=client"), 0, "Note: without --dry-run, this would be rejected")
	e.must(k.is("agent", isClosed, keyA))
	e.tells(e.ask(admin, "release", "n1", "--force"), 0, "node/n1 released from agent")
	k.becomes("agent", isClosed, keyA) // nodegate reverts the release, as the error says
	stop()
	e.tells(e.ask(admin, "release", "n1"), 0, "node/n1 released from agent", "Note: nodegate is not running", "delete mutatingadmissionpolicybinding nodegate-birth")
	e.must(k.is("agent", isNone, keyA))
}

// If a backup is restored while nodegate does not run, neither the gates, whatever their
// status is, nor the policies taint new nodes.
func TestRestoredBackupTaintsNothing(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ng := e.declare(newGate("agent", keyA, byLabel("never")))
	e.kubelet("before").register()
	stop()
	e.must(e.admin.Get(t.Context(), client.ObjectKeyFromObject(ng), ng))
	backup := ng.DeepCopy()
	e.clean(t.Context())
	restored := &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: backup.Name}, Spec: backup.Spec}
	e.must(e.admin.Create(t.Context(), restored))
	restored.Status = backup.Status
	e.must(e.admin.Status().Update(t.Context(), restored))

	k := e.kubelet("after")
	e.eventually("a node registers without taint and record", func() error {
		node := k.newNode()
		if err := k.api.Create(t.Context(), node); err != nil {
			return err
		}
		if hasTaint(node, keyA) || len(records(node)) > 0 {
			e.must(e.admin.Delete(t.Context(), node)) // the API server has not observed the deletion of the parameter yet
			return fmt.Errorf("the node has taints %v", keys(node))
		}
		return nil
	})
}
