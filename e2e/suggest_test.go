// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/suggest"
	"github.com/nodegate/nodegate/presets"
)

// suggestReads are the permissions that suggest needs to read everything.
var suggestReads = []rbacv1.PolicyRule{
	reads("", "nodes"), reads("", "pods"), reads("apps", "daemonsets"), reads("storage.k8s.io", "csidrivers"), reads("storage.k8s.io", "csinodes"),
	reads(v1alpha1.GroupName, "nodegates"), reads("admissionregistration.k8s.io", "validatingadmissionpolicies"),
	reads("admissionregistration.k8s.io", "mutatingadmissionpolicies"), reads("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"), reads("readiness.node.x-k8s.io", "nodereadinessrules"),
}

// In a cluster with a daemon that a preset knows, an unknown CSI driver, a daemon for which
// pods waited, a log shipper and a daemon that has a gate, suggest suggests gates for the
// first three. A user who may only read needs no other permission. The suggested gates can be
// applied.
func TestSuggestGates(t *testing.T) {
	e := newEnv(t)
	e.prepareSystemNamespaces()
	nodes := e.registered("n1", "n2")
	e.createDaemons(nodes)
	user := e.may("suggester", suggestReads...)
	before := gatedParts(nodes)

	a := e.ask(user, "suggest")
	e.tells(a, 1, "Pods need, or may need, 3 DaemonSets for which no gate waits.",
		"\nkube-system/cilium (pods need it)\n", "preset cilium", "other writer", "cilium-operator may also write node.cilium.io/agent-not-ready",
		"it writes to /etc/cni/net.d on the node",
		"\ndaemons/disk-node (pods probably need it)\n", "registers the CSI driver disk.example.com",
		"first allow     "+diskKey, "add {key: "+diskKey+", operator: Exists} to the tolerations of DaemonSet daemons/disk-node; otherwise the gate keeps off",
		"\ndaemons/secrets (pods probably need it)\n", "on 2 nodes, pods that had been bound before the daemon's pod was ready started only after that",
		"Covered: DaemonSet daemons/agent by gate agent.", "No evidence that pods need: daemons/shipper.", "The order of starts was compared on 2 nodes.",
		"0 of the 2 existing nodes that the gate selects would change")
	if strings.Contains(a.out, "Incomplete") {
		t.Errorf("something could not be read:\n%s", a.out)
	}
	var r suggest.Report
	e.must(json.Unmarshal([]byte(e.ask(user, "suggest", "-o", "json").out), &r))
	if len(r.Suggestions) != 3 || r.Suggestions[0].Preset != "cilium" || r.Suggestions[2].Preview == nil || r.Suggestions[2].Preview.InForce {
		t.Errorf("the suggestions are %+v", r.Suggestions)
	}
	if after := gatedParts(nodes); after != before {
		t.Errorf("suggest changed nodes from %s to %s", before, after)
	}

	gates := e.ask(user, "suggest", "-o", "gates")
	preset, err := presets.Read("cilium")
	e.must(err)
	e.tells(gates, 1, string(preset), "# First: allow the taint key "+diskKey, "name: disk.example.com")
	file := filepath.Join(t.TempDir(), "gates.yaml")
	e.must(os.WriteFile(file, []byte(gates.out), 0o600))
	e.tells(e.ask(user, "preview", "-f", file), 0, "cilium (new)", "disk-node (new)", "secrets (new)")
	e.tells(e.ask(user, "suggest", "daemons/shipper"), 0, "No DaemonSet was found that pods need")
	e.tells(e.ask(user, "suggest", "daemons/shiper"), 2, `daemonset "daemons/shiper" not found`)
	e.tells(e.ask(user, "suggest", "shipper"), 2, "takes DaemonSets as NAMESPACE/NAME")

	strict := client.WithFieldValidation(e.admin, metav1.FieldValidationStrict)
	for _, text := range strings.Split(gates.out, "---\n")[1:] {
		object := &unstructured.Unstructured{}
		e.must(yaml.Unmarshal([]byte(text), object))
		e.must(strict.Create(t.Context(), object))
	}
	e.tells(e.ask(user, "suggest"), 0, "No DaemonSet was found that pods need", "Covered: DaemonSet kube-system/cilium by gate cilium.",
		"Covered: DaemonSet daemons/disk-node by gate disk-node, which is not in force: its mode is DryRun",
		"Covered: DaemonSet daemons/secrets by gate secrets, which is not in force: the administrator has not allowed the taint")
	e.tells(e.ask(user, "suggest", "-o", "gates"), 0, "# There are no gates to suggest.")
}

// With few permissions, suggest lists what it could not read.
func TestSuggestWithFewPermissions(t *testing.T) {
	e := newEnv(t)
	e.prepareSystemNamespaces()
	e.createDaemons(e.registered("n1", "n2"))
	few := e.may("few-suggest", reads("apps", "daemonsets"), reads(v1alpha1.GroupName, "nodegates"))
	a := e.ask(few, "suggest")
	e.tells(a, 1, "2 DaemonSets for which no gate waits", "kube-system/cilium (pods need it)", "its container registrar registers a CSI driver",
		"Incomplete: Nodes: listing nodes", "missing: the order of starts, and which nodes gates and presets select; what new nodes would wait for.",
		"Incomplete: CSIDrivers", "Incomplete: allowed taint keys", "preview         unknown",
		"No evidence that pods need: daemons/secrets, daemons/shipper.")
	if strings.Contains(a.out, "first allow") {
		t.Errorf("it is unknown which keys are allowed, but the output is\n%s", a.out)
	}
	e.tells(e.ask(e.may("gateless-suggest", reads(v1alpha1.GroupName, "nodegates")), "suggest"), 2, `cannot list resource "daemonsets"`)
	e.tells(e.ask(e.may("no-suggest", reads("apps", "daemonsets")), "suggest"), 2, `cannot list resource "nodegates"`)
}

// diskKey is the key that suggest chooses for the CSI driver.
const diskKey = "startup-taint.cluster-autoscaler.kubernetes.io/disk-node-not-ready"

// createDaemons creates the DaemonSets of the tests of suggest, and the pods of some of them
// on recent nodes.
func (e *env) createDaemons(nodes []*kubelet) {
	e.Helper()
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "disk.example.com"}}
	e.must(e.admin.Create(e.Context(), driver))
	e.Cleanup(func() { e.must(e.admin.Delete(context.Background(), driver)) }) // the test's own context has ended

	cilium := e.daemonIn("kube-system", "cilium", nil)
	e.edit(cilium, func() {
		pod := &cilium.Spec.Template.Spec
		pod.HostNetwork = true
		pod.Volumes = []corev1.Volume{{Name: "cni", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/cni/net.d"}}}}
		pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "cni", MountPath: "/host/etc/cni/net.d"}}
	})
	disk := e.daemonSet("disk-node")
	e.edit(disk, func() {
		pod := &disk.Spec.Template.Spec
		pod.Tolerations = nil
		pod.Containers = append(pod.Containers, corev1.Container{
			Name: "registrar", Image: "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.15.0",
			Args: []string{"--kubelet-registration-path=/var/lib/kubelet/plugins/disk.example.com/csi.sock"},
		})
	})
	e.daemonSet("agent")
	e.must(e.admin.Create(e.Context(), newGate("agent", keyA, byDaemonSet("agent"))))
	shipper, secrets := e.daemonSet("shipper"), e.daemonSet("secrets")
	for _, k := range nodes {
		created := k.node().CreationTimestamp.Time
		k.startedDaemon(shipper, created.Add(10*time.Second))
		k.startedDaemon(secrets, created.Add(40*time.Second))
		k.boundAt("web-"+k.name, created.Add(20*time.Second), created.Add(41*time.Second))
	}
}

// startedDaemon creates a DaemonSet's pod that became ready at this time.
func (k *kubelet) startedDaemon(ds *appsv1.DaemonSet, ready time.Time) {
	k.Helper()
	pod := k.daemonPod(ds)
	pod.Status = daemonStatus(true, newContainerID())
	pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(ready)
	k.must(k.admin.Status().Update(k.Context(), pod))
}

// boundAt creates a pod that was bound and started at these times.
func (k *kubelet) boundAt(name string, bound, started time.Time) {
	k.Helper()
	pod := k.bind(name, started)
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(bound)})
	k.must(k.admin.Status().Update(k.Context(), pod))
}
