// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/certificate"
	"github.com/nodegate/nodegate/presets"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// world is an API server of one version that Helm uses.
type world struct {
	*testing.T
	cluster *testcluster.Cluster
	admin   client.Client
}

func newWorld(t *testing.T, version string, apiServerArgs ...string) *world {
	t.Helper()
	clustertest.SkipIfShort(t)
	c, err := testcluster.Start(t.Context(), testcluster.Options{
		KubernetesVersion: version, Components: []testcluster.Component{testcluster.APIServer}, Audit: true, // for a runbook
		ExtraArgs: map[testcluster.Component][]string{testcluster.APIServer: apiServerArgs},
	})
	must(t, err)
	t.Cleanup(func() {
		if err := errors.Join(c.Err(), c.Stop()); err != nil {
			t.Error(err)
		}
	})
	scheme := runtime.NewScheme()
	must(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)))
	admin, err := client.New(c.Admin(), client.Options{Scheme: scheme})
	must(t, err)
	return &world{T: t, cluster: c, admin: admin}
}

// helm runs a Helm command against the cluster.
func (w *world) helm(values map[string]any, args ...string) error {
	w.Helper()
	_, err := helm(w.T, values, append(args, "--kubeconfig", w.cluster.Kubeconfig(), "--namespace", namespace)...)
	return err
}

// get returns an object by its name or namespace/name.
func (w *world) get(name string, o client.Object) client.Object {
	w.Helper()
	must(w.T, w.find(name, o))
	return o
}

func (w *world) find(name string, o client.Object) error {
	where, name, namespaced := strings.Cut(name, "/")
	if !namespaced {
		where, name = "", where
	}
	return w.admin.Get(w.Context(), client.ObjectKey{Namespace: where, Name: name}, o)
}

// apply applies objects by server-side apply.
func (w *world) apply(objects []*unstructured.Unstructured, options ...client.ApplyOption) {
	w.Helper()
	for _, o := range objects {
		options := append([]client.ApplyOption{client.FieldOwner("kubectl"), client.ForceOwnership}, options...)
		if err := w.admin.Apply(w.Context(), client.ApplyConfigurationFromUnstructured(o), options...); err != nil {
			w.Fatalf("applying %s: %v", key(o), err)
		}
	}
}

// applyCRDs follows the instructions of the chart's message, and waits until the CRDs are
// served.
func (w *world) applyCRDs(chart string) {
	w.Helper()
	w.apply(printed(w.T, nil, "show", "crds", chart))
	eventually(w.T, "NodeGates to be served", func(ctx context.Context) error {
		return w.admin.List(ctx, &v1alpha1.NodeGateList{})
	})
}

// formerKeys are the keys that an earlier version allowed.
var formerKeys = slices.DeleteFunc(presets.TaintKeys(), func(key string) bool { return strings.HasPrefix(key, "efs.csi") })

// formerChart is a simulated earlier version of the chart: it lacks a field in its CRD and
// has another default.
func formerChart(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "nodegate")
	must(t, os.CopyFS(dir, os.DirFS(chart)))
	edit := func(name string, change func(object)) {
		t.Helper()
		path := filepath.Join(dir, name)
		content := object{}
		readYAML(t, path, &content)
		change(content)
		text, err := yaml.Marshal(content)
		must(t, err)
		write(t, path, text)
	}
	edit("Chart.yaml", func(c object) { c["version"], c["appVersion"] = "0.0.9", "0.0.9" })
	edit("values.yaml", func(v object) { v["allowedTaintKeys"] = formerKeys })
	edit("crds/nodegates.yaml", func(c object) {
		version := c["spec"].(object)["versions"].([]any)[0].(object)
		spec := version["schema"].(object)["openAPIV3Schema"].(object)["properties"].(object)["spec"].(object)
		delete(spec["properties"].(object), "openedAtAnnotation")
	})
	return dir
}

// Helm installs the chart in one step, refuses an upgrade without the new CRD, upgrades
// without loss, and uninstalls it, on API servers with and without the birth policy.
func TestLifeWithHelm(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.37", "1.35"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			newWorld(t, version).life(version == "1.37")
		})
	}
}

func (w *world) life(hasPolicies bool) {
	former := formerChart(w.T)
	must(w.T, w.helm(object{"birth": "webhook"}, "install", "nodegate", former, "--create-namespace"))
	uid := w.get(defaultGate, &v1alpha1.NodeGate{}).GetUID()
	w.allows(formerKeys)
	published := w.certificate()

	values := object{"presets": object{"cilium": object{"enabled": true, "spec": object{"openedAtAnnotation": "example.com/opened"}}}, "allowedStampAnnotations": []string{"example.com/opened"}, "birth": "webhook"}
	err := w.helm(values, "upgrade", "nodegate", chart)
	want := "CRD nodegates.nodegate.dev in the cluster is not that of nodegate v0.1.0; apply the new one, then repeat this command: helm show crds CHART --version 0.1.0 | kubectl apply --server-side --force-conflicts -f -"
	if err == nil || !strings.Contains(err.Error(), want) {
		w.Errorf("upgrading without the new CRD: %v, want %q", err, want)
	}
	w.allows(formerKeys)
	if image := w.image(); image != "ghcr.io/nodegate/nodegate:0.0.9" {
		w.Errorf("after the rejected upgrade, the image is %s", image)
	}

	w.applyCRDs(chart)
	for range 2 { // the second changes nothing
		must(w.T, w.helm(values, "upgrade", "nodegate", chart))
		w.allows(presets.TaintKeys())
		if got := w.get(defaultGate, &v1alpha1.NodeGate{}).GetUID(); got != uid {
			w.Error("the gate was recreated: its nodes would open")
		}
		if stamp := w.get("cilium", &v1alpha1.NodeGate{}).(*v1alpha1.NodeGate).Spec.OpenedAtAnnotation; stamp != "example.com/opened" {
			w.Errorf("the new field is %q", stamp)
		}
		if image := w.image(); image != "ghcr.io/nodegate/nodegate:v0.1.0" {
			w.Errorf("the upgrade has the image %s", image)
		}
		published()
	}

	w.downgrades(former)
	published()

	// As after an upgrade of the cluster.
	values["birth"] = "auto"
	must(w.T, w.helm(values, "upgrade", "nodegate", chart))
	if !hasPolicies {
		published()
	} else if err := w.find(admission.BirthWebhook, &admissionregistrationv1.MutatingWebhookConfiguration{}); !apierrors.IsNotFound(err) {
		w.Errorf("the webhook still exists (%v)", err)
	} else {
		w.get(admission.BirthPolicy, &admissionregistrationv1.MutatingAdmissionPolicyBinding{})
	}

	w.upgradesPinnedImage()
	w.removesConditions()
	w.endsHolds()
	w.undoesOffSwitch()
	w.keepsUsedKeys()
	w.rollsBackUnchecked()

	must(w.T, w.helm(nil, "uninstall", "nodegate"))
	w.get("nodegates.nodegate.dev", &apiextensionsv1.CustomResourceDefinition{})
	for name, o := range map[string]client.Object{
		defaultGate: &v1alpha1.NodeGate{}, admission.ConfinementPolicy: &admissionregistrationv1.ValidatingAdmissionPolicy{},
		namespace + "/nodegate": &appsv1.Deployment{},
	} {
		if err := w.find(name, o); !apierrors.IsNotFound(err) {
			w.Errorf("%s still exists (%v)", name, err)
		}
	}
}

// downgrades verifies what the guide states about a certificate that was renewed: Helm cannot
// roll back to a release with the former certificate, and an upgrade to the former chart works.
func (w *world) downgrades(former string) {
	w.Helper()
	if err := w.helm(nil, "rollback", "nodegate", "1"); err == nil || !strings.Contains(err.Error(), "conflict") {
		w.Errorf("rolling back to the former certificate: %v, want a conflict", err)
	}
	values, err := helm(w.T, nil, "get", "values", "nodegate", "--revision", "1", "--kubeconfig", w.cluster.Kubeconfig(), "--namespace", namespace, "--output", "yaml")
	must(w.T, err)
	file := filepath.Join(w.TempDir(), "values.yaml")
	write(w.T, file, []byte(values))
	must(w.T, w.helm(nil, "upgrade", "nodegate", former, "--values", file, "--set", "crds.check=false"))
	w.allows(formerKeys)
	if image := w.image(); image != "ghcr.io/nodegate/nodegate:0.0.9" {
		w.Errorf("the former chart has the image %s", image)
	}
}

// upgradesPinnedImage verifies what the guide states about image.tag: an upgrade without values
// keeps it, and the documented flags replace it and keep the other values.
func (w *world) upgradesPinnedImage() {
	w.Helper()
	upgrade := func(want string, flags ...string) {
		w.Helper()
		must(w.T, w.helm(nil, append([]string{"upgrade", "nodegate", chart}, flags...)...))
		if image := w.image(); image != want {
			w.Errorf("the image is %s, want %s", image, want)
		}
	}
	upgrade("registry.example.com/nodegate:old", "--reset-then-reuse-values", "--set=image.repository=registry.example.com/nodegate,image.tag=old")
	upgrade("registry.example.com/nodegate:old")
	upgrade("registry.example.com/nodegate:new", "--reset-then-reuse-values", "--set=image.tag=new")
	if stamp := w.get("cilium", &v1alpha1.NodeGate{}).(*v1alpha1.NodeGate).Spec.OpenedAtAnnotation; stamp == "" {
		w.Error("the upgrade lost the values of the gates")
	}
}

// removesConditions verifies that a command of the off switch removes the condition of a gate,
// and no other, from nodes with and without it.
func (w *world) removesConditions() {
	w.Helper()
	mine := corev1.NodeCondition{Type: v1alpha1.DeadlineConditionPrefix + heldGate, Status: corev1.ConditionTrue}
	other := corev1.NodeCondition{Type: "example.com/other", Status: corev1.ConditionTrue}
	for name, conditions := range map[string][]corev1.NodeCondition{"overdue": {mine, other}, "healthy": {other}} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		must(w.T, w.admin.Create(w.Context(), node))
		node.Status.Conditions = conditions
		must(w.T, w.admin.Status().Update(w.Context(), node))
	}
	w.switchOff(v1alpha1.DeadlineConditionPrefix)
	for _, name := range []string{"overdue", "healthy"} {
		if left := w.get(name, &corev1.Node{}).(*corev1.Node).Status.Conditions; len(left) != 1 || left[0].Type != other.Type {
			w.Errorf("node %s has the conditions %v, want only that of another writer", name, left)
		}
	}
}

// undoesOffSwitch verifies that 'helm upgrade' without values starts a controller that was
// switched off as the runbook describes. Helm 4 applies by server-side apply; there is no
// conflict, because an API server records no owner of zero replicas.
func (w *world) undoesOffSwitch() {
	w.Helper()
	output, err := exec.CommandContext(w.Context(), clustertest.Kubectl(w.T), "--kubeconfig", w.cluster.Kubeconfig(),
		"scale", "deployment", "-n", namespace, "--all", "--replicas=0").CombinedOutput()
	if err != nil {
		w.Fatalf("kubectl scale: %v\n%s", err, output)
	}
	must(w.T, w.helm(nil, "upgrade", "nodegate", chart))
	if replicas := w.get(namespace+"/nodegate", &appsv1.Deployment{}).(*appsv1.Deployment).Spec.Replicas; *replicas != 2 {
		w.Errorf("%d replicas, want 2", *replicas)
	}
}

// keepsUsedKeys verifies that an upgrade fails if it removes the taint key of a gate that may
// have closed nodes, also together with the gate: nodegate could not open these nodes anymore.
// Other gates do not prevent the upgrade.
func (w *world) keepsUsedKeys() {
	w.Helper()
	const key = "node.cilium.io/agent-not-ready"
	fewer := slices.DeleteFunc(presets.TaintKeys(), func(k string) bool { return k == key })
	without := object{"allowedTaintKeys": fewer, "presets": object{"cilium": object{"enabled": false}}}
	upgrade := func(flags ...string) error {
		return w.helm(without, append([]string{"upgrade", "nodegate", chart, "--reset-then-reuse-values"}, flags...)...)
	}
	gate := w.get("cilium", &v1alpha1.NodeGate{}).(*v1alpha1.NodeGate)
	for reason, status := range map[string]metav1.ConditionStatus{v1alpha1.ReasonTaintKeyNotAllowed: metav1.ConditionFalse, v1alpha1.ReasonInDryRun: metav1.ConditionTrue} {
		w.report(gate, status, reason)
		if err := upgrade("--dry-run=server"); err != nil {
			w.Errorf("an upgrade with a gate of the reason %s: %v", reason, err)
		}
	}
	w.report(gate, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	want := "NodeGate cilium has the taint " + key + ":NoSchedule, which is not in allowedTaintKeys"
	if err := upgrade(); err == nil || !strings.Contains(err.Error(), want) {
		w.Errorf("removing the key of an accepted gate: %v, want %q", err, want)
	}
	w.get("cilium", &v1alpha1.NodeGate{})
	w.allows(presets.TaintKeys())
	must(w.T, w.admin.Delete(w.Context(), gate))
	must(w.T, upgrade())
	w.allows(fewer)
}

// report sets the condition Accepted of a gate, because no controller runs here that does.
func (w *world) report(gate *v1alpha1.NodeGate, status metav1.ConditionStatus, reason string) {
	w.Helper()
	gate.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: status, Reason: reason, LastTransitionTime: metav1.Now()}}
	must(w.T, w.admin.Status().Update(w.Context(), gate))
}

// allows verifies the keys that the guard allows nodegate to change.
func (w *world) allows(keys []string) {
	w.Helper()
	policy := w.get(admission.ConfinementPolicy, &admissionregistrationv1.ValidatingAdmissionPolicy{}).(*admissionregistrationv1.ValidatingAdmissionPolicy)
	if got, want := policy.Spec.Variables[0].Expression, `["`+strings.Join(keys, `:NoSchedule", "`)+`:NoSchedule"]`; got != want {
		w.Errorf("the guard allows %s, want %s", got, want)
	}
}

func (w *world) image() string {
	w.Helper()
	return w.get(namespace+"/nodegate", &appsv1.Deployment{}).(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Image
}

// certificate verifies that the API server trusts the certificate of the webhook, and
// renews it by 'nodegate webhook-certificate'. It returns a function that verifies that
// nothing has changed since.
func (w *world) certificate() (published func()) {
	w.Helper()
	state := func() string {
		w.Helper()
		trusted := w.get(admission.BirthWebhook, &admissionregistrationv1.MutatingWebhookConfiguration{}).(*admissionregistrationv1.MutatingWebhookConfiguration).Webhooks[0].ClientConfig.CABundle
		data := w.get(namespace+"/"+admission.WebhookSecret, &corev1.Secret{}).(*corev1.Secret).Data
		pair, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"])
		must(w.T, err)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(trusted)
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: admission.WebhookHost(namespace)}); err != nil {
			w.Errorf("the API server does not trust the webhook: %v", err)
		}
		return fmt.Sprintf("%s%s", trusted, data)
	}
	made := state()
	must(w.T, certificate.Ensure(w.Context(), certificate.Options{
		Client: w.admin, Namespace: namespace, Renew: true, Settle: time.Millisecond, Out: io.Discard, Progress: io.Discard,
	}))
	renewed := state()
	if renewed == made {
		w.Error("the certificate was not renewed")
	}
	return func() {
		w.Helper()
		if state() != renewed {
			w.Error("an upgrade has changed the webhook's certificate or its CA bundle")
		}
	}
}

// The manifests for a version are applied to a server of this or the nearest available
// version, also over the objects of an earlier version.
func TestApplyRendered(t *testing.T) {
	t.Parallel()
	for server, versions := range map[string][]string{"1.37": {"1.36", "1.37"}, "1.35": {"1.33", "1.35"}} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, server)
			former := formerChart(t)
			w.apply([]*unstructured.Unstructured{restrictedNamespace()})
			w.applyCRDs(former)
			w.apply(printed(t, nil, "template", "nodegate", former, "--namespace", namespace, "--kube-version", versions[0]))
			w.allows(formerKeys)
			w.applyCRDs(chart)
			everything := object{"evictPods": true, "priorityClassQuota": object{"enabled": true}, "metrics": object{"dashboard": object{"enabled": true}}}
			for _, values := range []object{everything, {"gatesFromFiles": object{"enabled": true}}, {"presets": object{"cilium": object{"enabled": true}}}} {
				for _, version := range versions {
					w.apply(rendered(t, values, "--kube-version", version), client.DryRunAll)
				}
			}
			w.apply(rendered(t, nil, "--kube-version", server))
			w.allows(presets.TaintKeys())
			w.podIsAdmitted(rendered(t, nil, "--kube-version", server))
		})
	}
}

// podIsAdmitted verifies that a pod of the Deployment passes the strictest Pod Security
// Standard and has a critical priority.
func (w *world) podIsAdmitted(objects []*unstructured.Unstructured) {
	w.Helper()
	template := deployment(w.T, objects).Spec.Template
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "one", Labels: template.Labels}, Spec: template.Spec}
	must(w.T, w.admin.Create(w.Context(), pod, client.DryRunAll))
	if pod.Spec.Priority == nil || *pod.Spec.Priority < 2_000_000_000 {
		w.Errorf("the pod's priority is %v", pod.Spec.Priority)
	}
	pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "two"}, Spec: template.Spec}
	pod.Spec.SecurityContext = nil
	if err := w.admin.Create(w.Context(), pod, client.DryRunAll); !apierrors.IsForbidden(err) {
		w.Errorf("a pod without a security context: %v; want it to be forbidden", err)
	}
}
