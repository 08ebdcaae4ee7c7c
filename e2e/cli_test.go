// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli"
	"github.com/nodegate/nodegate/internal/controller"
	"github.com/nodegate/nodegate/internal/status"
	"github.com/nodegate/nodegate/testcluster"
)

// startLeader starts a controller with leader election, and waits until it holds the Lease. It
// holds it until it is stopped, also if the API server is slow.
func (e *env) startLeader() (stop func()) {
	e.Helper()
	stop = e.runController(func(p *controller.Process) { p.LeaderElect, p.LeaseDuration = true, time.Minute })
	e.eventually("the Lease has a holder", func() error {
		var lease coordinationv1.Lease
		if err := e.admin.Get(e.Context(), client.ObjectKey{Namespace: installation.Namespace, Name: v1alpha1.LeaseName}, &lease); err != nil {
			return err
		}
		return errUnless(ptr.Deref(lease.Spec.HolderIdentity, "") != "", "it has no holder")
	})
	return stop
}

// roleOnPage matches the ClusterRole on a page.
var roleOnPage = regexp.MustCompile("(?s)```yaml\n(.*?kind: ClusterRole\n.*?)```")

// operator returns a user with the permissions that docs/kubectl-gate.md lists for operators.
func (e *env) operator(user string) *rest.Config {
	e.Helper()
	page, err := os.ReadFile("../docs/kubectl-gate.md")
	e.must(err)
	text := roleOnPage.FindSubmatch(page)
	e.must(errUnless(len(text) == 2, "docs/kubectl-gate.md contains no ClusterRole"))
	var role rbacv1.ClusterRole
	e.must(yaml.UnmarshalStrict(text[1], &role))
	return e.may(user, role.Rules...)
}

// The status of the fleet comes from the gates' status while a controller runs, and from
// the nodes otherwise.
func TestStatusOfTheFleet(t *testing.T) {
	e := newEnv(t)
	stop := e.startLeader()
	e.agent()
	k := e.kubelet("n1")
	k.register()
	k.becomes("agent", isClosed, keyA)
	operator := e.operator("operator")
	e.eventually("the status contains the node", func() error {
		a := e.ask(operator, "status")
		return errUnless(strings.Contains(a.out, "n1 ("), a.out+a.err)
	})
	e.inForce("agent")
	a := e.ask(operator, "status", "agent")
	e.tells(a, 0, "The controller is running: ", "GATE", "+  ", "signal, PodMissing")
	e.tells(e.ask(operator, "status", "agent", "-o", "wide"), 0, keyA+":NoSchedule", "has no pod on this node")
	e.tells(e.ask(operator, "status", "-o", "name"), 0, "nodegate.nodegate.dev/agent\n")
	e.tells(e.ask(operator, "status", "agnet"), 2, `gate "agnet" not found; did you mean agent?`)
	stop()
	a = e.ask(operator, "status", "-o", "json")
	e.tells(a, 1)
	var got status.Status
	e.must(json.Unmarshal([]byte(a.out), &got))
	if g := got.Gates[0]; got.Controller.Running != "No" || !g.FromRecords || g.Nodes.Selected != 1 || g.Nodes.Closed != 1 || g.Waiting[0].Node != "n1" {
		t.Errorf("the status without a controller is:\n%s", a.out)
	}

	gates := rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"nodegates"}, Verbs: []string{"list"}}
	a = e.ask(e.may("nodeless", gates), "status")
	for _, want := range []string{"Incomplete: listing nodes", "It is unknown whether a controller is running", `cannot get resource "leases"`} {
		if a.status != 2 || !strings.Contains(a.out, want) || !strings.HasPrefix(a.err, "error: no problem was found") || strings.Count(a.err, "\n") != 1 {
			t.Errorf("exit status %d, want 2, one line of error, and an answer with %q:\n%s%s", a.status, want, a.out, a.err)
		}
	}
	e.tells(e.ask(e.may("nothing"), "status"), 2, `cannot list resource "nodegates"`)
	if a = e.ask(operator, "status", "--namespace", "elsewhere"); a.status != 2 || !strings.HasPrefix(a.out, "It is unknown whether a controller is running: there is no Lease nodegate in namespace elsewhere") {
		t.Errorf("exit status %d, want 2, because there is no Lease:\n%s%s", a.status, a.out, a.err)
	}
}

// The wait command waits for nodes that are created later, for re-created nodes, and for
// all nodes.
func TestWaitForNodes(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	operator := e.operator("operator")
	answers := make(chan answer, 1)
	wait := func(args ...string) { go func() { answers <- e.ask(operator, append([]string{"wait"}, args...)...) }() }

	wait("n1", "node/n2", "--for=closed", "--timeout=1h")
	nodes := e.registered("n1", "n2")
	e.tells(<-answers, 0, "node/n1: held by agent\nnode/n2: held by agent\n")
	e.tells(e.ask(operator, "wait", "--all", "--timeout=0"), 1, "0 of 2 nodes are open; waiting for n1 (agent) and n2 (agent)")
	e.tells(e.ask(operator, "wait", "n3", "--timeout=0"), 1, "n3 (does not exist)")
	wait("--all", "--gate=agent", "--timeout=1h")
	for _, k := range nodes {
		k.label("ready")
	}
	e.tells(<-answers, 0, "node/n1: gate agent is open\nnode/n2: gate agent is open\n")
	e.tells(e.ask(operator, "wait", "-l", "ready", "-o", "name"), 0, "node/n1\nnode/n2\n")

	wait("n1", "--for=closed", "--timeout=1h", "-o", "json")
	e.must(e.admin.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}))
	e.kubelet("n1").register()
	e.tells(<-answers, 0, `"met": true`)

	e.tells(e.ask(operator, "wait", "--all", "--gate=agnet"), 2, `gate "agnet" not found; did you mean agent?`)
	e.tells(e.ask(e.may("watchless", reads("", "nodes"), reads(v1alpha1.GroupName, "nodegates")), "wait", "n1"), 2, "watching nodes", `cannot watch resource "nodes"`)
	e.tells(e.ask(operator, "wait"), 2, "specify nodes either by name")
	e.tells(e.ask(operator, "wait", "n1", "--for=shut"), 2, "use open or closed")
	e.tells(e.ask(operator, "wait", "-l", "a in"), 2, "is not a valid label selector")
}

// A user with the separate permission opens and closes a gate temporarily, and ends the
// override.
func TestOpenAndCloseByCommand(t *testing.T) {
	e := newEnv(t)
	e.startLeader()
	e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	k.register()
	k.becomes("agent", isClosed, keyA)
	operator := e.operator("operator")
	forAnHour := []string{"--gate=agent", "--for=1h", "--reason", `it's "7"`}

	before := k.node().ResourceVersion
	for _, mode := range []string{"client", "server"} {
		e.tells(e.ask(operator, append([]string{"open", "n1", "--dry-run=" + mode}, forAnHour...)...), 0, "dry run", keyA+":NoSchedule is removed immediately")
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"open", "n2", "--gate=agent", "--for=1h", "--reason=x"}, `node "n2" not found; did you mean n1?`},
		{[]string{"open", "n1", "n2", "--gate=agent", "--for=1h", "--reason=x"}, `node "n2" not found`},
		{[]string{"open", "n1", "--gate=agnet", "--for=1h", "--reason=x"}, `gate "agnet" not found; did you mean agent?`},
		{[]string{"open", "n1", "--gate=agent", "--for=60", "--reason=x"}, "missing unit: use 60s, 60m or 60h"},
		{[]string{"open", "n1", "--gate=agent", "--for=200h", "--reason=x"}, "at most 7 days"},
		{[]string{"open", "n1", "--gate=agent", "--for=1h"}, "--reason is required"},
		{[]string{"open", "n1", "--gate=agent"}, "--reason are required"},
		{[]string{"open", "n1", "--for=1h", "--reason=x"}, "--gate is required"},
		{[]string{"open", "-l", "a=b", "--gate=agent", "--for=1h", "--reason=x"}, `-l "a=b" selects no nodes`},
	} {
		e.tells(e.ask(operator, c.args...), 2, c.want)
	}
	plain := e.may("plain", reads(v1alpha1.GroupName, "nodegates"), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "patch"}})
	e.tells(e.ask(plain, append([]string{"open", "n1"}, forAnHour...)...), 2, `ask for the verb "override" on nodegates.nodegate.dev`)
	if now := k.node().ResourceVersion; now != before {
		t.Errorf("rejected commands and dry runs changed the node: resource version %s, before %s", now, before)
	}

	e.tells(e.ask(operator, append([]string{"open", "n1"}, forAnHour...)...), 0, "node/n1: gate agent: open until ", "is removed immediately", "'kubectl gate reset' ends the override earlier")
	k.becomesOverridden("agent", isClosed, isOpen)
	e.tells(e.ask(operator, "open", "n1", "--gate=agent", "--for=2h", "--reason=longer"), 0, "the gate does not hold the node now")
	e.tells(e.ask(operator, "reset", "n1", "--gate=agent"), 0, `"longer") is removed`, "it closes again immediately")
	k.becomesOverridden("agent", isClosed, "")
	e.tells(e.ask(operator, "reset", "n1", "--gate=agent"), 0, "no override; nothing to do")
	k.label("ready")
	k.becomes("agent", isOpen, keyA)
	e.tells(e.ask(operator, "close", "-l", "ready", "--gate=agent", "--for=1h", "--reason=x"), 0, "is added immediately")
	k.becomesOverridden("agent", isOpen, isClosed)
}

// A user opens a gate with reopen Manual.
func TestOpenGateWithManualReopen(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := newClosingGate("repair", keyA, byLabel("broken"))
	ng.Spec.Reopen = v1alpha1.ReopenManual
	e.declare(ng)
	k, _ := e.registerWith("n1", "broken", "")
	k.report(corev1.ConditionTrue, "")
	k.becomes("repair", isClosed, keyA)
	operator := e.operator("operator")
	e.tells(e.ask(operator, "open", "n1", "--gate=repair", "--dry-run=server"), 0, keyA+":NoSchedule is removed, which opens the gate (server dry run)")
	e.must(k.is("repair", isClosed, keyA))
	e.tells(e.ask(operator, "open", "n1", "--gate=repair"), 0, "is removed, which opens the gate")
	k.becomes("repair", isOpen, keyA)
	if r := k.record("repair"); r.Reason != v1alpha1.ReasonOpenedByHand {
		t.Errorf("the gate opened because of %s, want %s", r.Reason, v1alpha1.ReasonOpenedByHand)
	}
	e.tells(e.ask(operator, "open", "n1", "--gate=repair"), 0, "the gate is not closed")
}

// Overrides without effect cause a warning, and are still written.
func TestOverrideWithoutEffect(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	for _, mode := range []v1alpha1.Mode{v1alpha1.ModePaused, v1alpha1.ModeDryRun} {
		ng := newGate(strings.ToLower(string(mode)), keyA, byLabel("ready"))
		ng.Spec.Mode = mode
		e.declare(ng)
	}
	e.declare(on(newGate("other", keyB, byLabel("ready")), "pool", "other"))
	nodes := e.registered("n1", "n2")
	nodes[1].patch(optOut)
	for _, c := range []struct{ node, gate, want string }{
		{"n1", "paused", "the gate is paused"},
		{"n1", "dryrun", "the gate is in dry run"},
		{"n1", "other", "no gate of this name selects the node"},
		{"n2", "other", "excludes it from all gates"},
	} {
		e.tells(e.ask(e.cluster.Admin(), "close", c.node, "--gate", c.gate, "--for=1h", "--reason=x"), 0,
			fmt.Sprintf("warning: node %s: ", c.node), c.want, "currently without effect")
	}
}

// Names are completed from the cluster's objects.
func TestCompletion(t *testing.T) {
	e := newEnv(t)
	e.must(e.admin.Create(t.Context(), newGate("agent", keyA, byLabel("ready"))))
	e.registered("worker-1", "worker-2")
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	e.must(testcluster.WriteKubeconfig(kubeconfig, e.cluster.Admin()))
	complete := func(args ...string) answer {
		var out bytes.Buffer
		status := cli.Execute(t.Context(), genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: io.Discard},
			cli.Arguments(append([]string{"/usr/bin/kubectl_complete-gate", "--kubeconfig=" + kubeconfig}, args...)))
		return answer{status, out.String(), ""}
	}
	e.tells(complete("open", "worker-1", "work"), 0, "worker-2\n:4\n")
	e.tells(complete("close", "worker-1", "--gate", "a"), 0, "agent\n:4\n")
	e.tells(complete("status", ""), 0, "agent\n:4\n")
	e.tells(complete("why", "worker-1", "-o", ""), 0, "json\nyaml\n:4\n")
	e.tells(complete("open", "--dry-run", ""), 0, "none\nclient\nserver\n:4\n")
}
