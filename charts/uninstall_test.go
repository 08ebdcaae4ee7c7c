// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

const (
	// heldGate is a gate that stays closed on every new node.
	heldGate = "hold"
	heldKey  = "startup.k8s.io/initializing"
)

// With any values, applied by any tool and partly removed in any order, 'nodegate
// uninstall' restores the previous state of the cluster, and no gate stays closed on a
// node. Before that, a GitOps tool finds nothing to change in the installation. Each
// nodegate is started with the arguments of the Deployment, and the webhook is called
// through its Service.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	clustertest.SkipIfShort(t)
	program, err := testbed.BuildProgram(t.Context(), t.TempDir())
	must(t, err)
	for _, version := range []string{"1.37", "1.35"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			i := newInstallation(t, version, program)
			i.byGitOps()
			i.fromFiles()
			i.byHelm()
			i.byHelmWhichGoesFirst()
		})
	}
}

// installation is an installation in its own world, which is reused.
type installation struct {
	*world
	program, version string
	values           object
	applier          *testbed.Applier
	before           []string
	nodes            int
	// hook is the address at which replicas serve the webhook, if they do.
	hook *net.TCPAddr
	// certificates is the directory with the webhook's certificate.
	certificates string
	stop         func()
}

func newInstallation(t *testing.T, version, program string) *installation {
	t.Helper()
	// The flag makes the API server resolve Services by their endpoints, because no
	// kube-proxy runs.
	w := newWorld(t, version, "--enable-aggregator-routing=true")
	applier, err := testbed.NewApplier(w.cluster.Admin())
	must(t, err)
	i := &installation{world: w, program: program, version: version, applier: applier}
	w.apply([]*unstructured.Unstructured{anyKind("servicemonitors", "ServiceMonitor"), anyKind("prometheusrules", "PrometheusRule")})
	mine := &unstructured.Unstructured{Object: object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "mine", "namespace": namespace}}}
	w.apply([]*unstructured.Unstructured{restrictedNamespace(), mine}) // prevents the deletion of the namespace
	i.values = switchedOn(t)
	i.values["metrics"].(object)["port"], i.values["healthPort"] = freePort(t), freePort(t)
	i.values["agent"].(object)["namespace"] = namespace // its objects in kube-system are not looked for
	i.values["priorityClassQuota"] = object{"enabled": true}
	i.values["gates"] = object{heldGate: object{
		"nodeSelector": object{}, "taint": object{"key": heldKey, "effect": "NoSchedule"},
		"openWhen": []object{{"name": "never", "label": object{"key": "example.com/never"}}},
	}}
	if version == "1.35" {
		i.hook = &net.TCPAddr{IP: ownAddress(t), Port: freePort(t)}
		i.certificates = t.TempDir()
		i.values["extraArgs"] = []string{"--webhook-bind-address=" + i.hook.String(), "--webhook-certificate-dir=" + i.certificates}
	}
	i.before = i.inventory()
	return i
}

// switchedOn are the chart's values with everything enabled, except presets and gates in
// files.
func switchedOn(t *testing.T) object {
	t.Helper()
	values := object{}
	readYAML(t, filepath.Join(chart, "values.yaml"), &values)
	delete(values, "presets")
	delete(values, "gatesFromFiles")
	delete(values, "birth") // depends on the cluster's version
	n := 0
	var walk func(o object)
	walk = func(o object) {
		for name, value := range o {
			if _, is := value.(bool); is {
				o[name] = true
				n++
			}
			if inner, is := value.(object); is {
				walk(inner)
			}
		}
	}
	walk(values)
	values["metrics"].(object)["readers"] = []object{{"namespace": "monitoring", "name": "prometheus"}}
	if n < 6 {
		t.Errorf("only %d values can be enabled", n)
	}
	return values
}

// anyKind is a CRD of the Prometheus operator without validation.
func anyKind(plural, kind string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": object{"name": plural + ".monitoring.coreos.com"},
		"spec": object{
			"group": "monitoring.coreos.com", "scope": "Namespaced", "names": object{"plural": plural, "kind": kind},
			"versions": []any{object{"name": "v1", "served": true, "storage": true, "schema": object{
				"openAPIV3Schema": object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
		},
	}}
}

// ownAddress returns a non-loopback address at which the API server can call a Service.
func ownAddress(t *testing.T) net.IP {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	must(t, err)
	for _, a := range addresses {
		if network, is := a.(*net.IPNet); is && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP
		}
	}
	t.Skip("this machine has only a loopback address")
	return nil
}

// rendered returns the manifests for the values and the world's version. As described in
// docs/before-1.36.md, a tool without access to the cluster does not render a certificate.
func (i *installation) rendered(values object) []*unstructured.Unstructured {
	i.Helper()
	values = maps.Clone(values)
	values["webhook"] = object{"certificate": "existing"}
	return rendered(i.T, values, "--kube-version", i.version)
}

// sync applies the manifests like a GitOps tool that does not force conflicts.
func (i *installation) sync(objects []*unstructured.Unstructured) {
	i.Helper()
	for _, o := range objects {
		if err := i.admin.Apply(i.Context(), client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner("gitops")); err != nil {
			i.Fatalf("syncing %s: %v", key(o), err)
		}
	}
}

// start starts nodegate with the arguments of the Deployment.
func (i *installation) start() {
	i.Helper()
	if i.hook != nil {
		i.mount()
	}
	i.stop = startAsDeployed(i.T, i.cluster, i.program, i.rendered(i.values))
	if i.hook == nil {
		return
	}
	slice := &discoveryv1.EndpointSlice{ // as the EndpointSlice controller creates it
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: admission.WebhookService, Labels: map[string]string{discoveryv1.LabelServiceName: admission.WebhookService}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{i.hook.IP.String()}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new("webhook"), Port: new(int32(i.hook.Port))}}, //nolint:gosec // a port
	}
	must(i.T, i.admin.Create(i.Context(), slice))
	stop := i.stop
	i.stop = func() {
		stop()
		must(i.T, client.IgnoreNotFound(i.admin.Delete(context.WithoutCancel(i.Context()), slice)))
	}
}

// mount writes the webhook's certificate to the replicas' directory, like a kubelet. It
// creates the certificate if there is none.
func (i *installation) mount() {
	i.Helper()
	secret, name := &corev1.Secret{}, namespace+"/"+admission.WebhookSecret
	if i.find(name, secret) != nil {
		i.nodegate("webhook-certificate")
		i.get(name, secret)
	}
	for file, content := range secret.Data {
		write(i.T, filepath.Join(i.certificates, file), content)
	}
}

// register creates a Node, and waits until the gate is closed on it. It reports whether
// the gate was closed at creation.
func (i *installation) register() (closedAtCreation bool) {
	i.Helper()
	i.nodes++
	node := testcluster.KWOKNode(fmt.Sprintf("node-%d", i.nodes))
	must(i.T, i.admin.Create(i.Context(), node))
	closedAtCreation = held(node)
	eventually(i.T, "the gate to be closed on the node", func(context.Context) error {
		if err := i.find(node.Name, node); err != nil {
			return err
		}
		if !held(node) {
			return fmt.Errorf("taints %v, annotations %v", node.Spec.Taints, node.Annotations)
		}
		return nil
	})
	return closedAtCreation
}

func held(node *corev1.Node) bool {
	return node.Annotations["gate.nodegate.dev/"+heldGate] != "" && hasKey(node, heldKey)
}

// uninstall runs the command, and ends the processes when the Deployment is deleted, like
// kubelets.
func (i *installation) uninstall() {
	i.Helper()
	output := i.nodegate("uninstall")
	if !strings.HasSuffix(output, "nodegate is no longer in the cluster.\n") {
		i.Errorf("uninstalling printed:\n%s", output)
	}
	i.forgotten()
}

// nodegate runs a subcommand of the program.
func (i *installation) nodegate(args ...string) string {
	i.Helper()
	command := exec.Command(i.program, append(args, "--kubeconfig", i.cluster.Kubeconfig())...)
	var output bytes.Buffer
	command.Stdout = &listener{&output, i.stop}
	command.Stderr = command.Stdout
	if err := command.Run(); err != nil {
		i.Fatalf("nodegate %q: %v\n%s", args, err, output.String())
	}
	return output.String()
}

// listener ends nodegate's processes when the output reports that the Deployment was
// deleted.
type listener struct {
	output *bytes.Buffer
	stop   func()
}

// Write implements io.Writer.
func (l *listener) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("deployment.apps/nodegate deleted")) {
		l.stop()
	}
	return l.output.Write(p)
}

func (i *installation) byGitOps() {
	i.Log("applied by GitOps")
	i.applyCRDs(chart)
	objects := i.rendered(i.values)
	i.sync(objects)
	i.start()
	must(i.T, testbed.AwaitGate(i.Context(), i.applier, heldGate))
	if !i.register() {
		i.Error("the gate was not closed on the first node at creation")
	}
	before := i.states(objects)
	for range 2 {
		i.sync(objects)
	}
	after := i.states(objects)
	for name, state := range before {
		if after[name] != state {
			i.Errorf("a second sync changes %s", name)
		}
	}
	if !i.register() {
		i.Error("after a sync, the gate is not closed on nodes at creation")
	}
	i.runbooks()
	i.uninstall()
}

// fromFiles verifies that the objects of an installation with gates from files are
// removed, too.
func (i *installation) fromFiles() {
	i.Log("gates from files")
	values := maps.Clone(i.values)
	values["gatesFromFiles"], values["agent"] = object{"enabled": true}, object{"enabled": false}
	objects := i.rendered(values)
	find(i.T, objects, "ConfigMap nodegate-system/nodegate-gates")
	i.sync(objects)
	i.uninstall()
}

// byHelm verifies that Helm cannot uninstall after 'nodegate uninstall', because the kind
// of the gates is missing. The release is removed as described on the page.
func (i *installation) byHelm() {
	i.Log("installed by Helm, which goes last")
	must(i.T, i.helm(i.values, "install", "nodegate", chart))
	i.start()
	i.register()
	output := i.nodegate("uninstall")
	if !strings.Contains(output, "namespace/nodegate-system kept, because it contains configmap/mine, secret/sh.helm.release.v1.nodegate.v1") {
		i.Errorf("the output does not report Helm's secret:\n%s", output)
	}
	if err := i.helm(nil, "uninstall", "nodegate"); err == nil {
		i.Error("'helm uninstall' works: remove the workaround from docs/uninstall.md")
	}
	must(i.T, i.admin.DeleteAllOf(i.Context(), &corev1.Secret{}, client.InNamespace(namespace), client.MatchingLabels{"owner": "helm", "name": "nodegate"}))
	i.forgotten()
}

// byHelmWhichGoesFirst verifies that, if Helm uninstalls first, gates stay closed on nodes
// until the command runs.
func (i *installation) byHelmWhichGoesFirst() {
	i.Log("installed by Helm, which goes first")
	must(i.T, i.helm(i.values, "install", "nodegate", chart))
	i.start()
	if i.hook == nil { // The policies do not act: the API server saw them deleted and created again.
		eventually(i.T, "the parameter to be created", func(context.Context) error {
			return i.find(namespace+"/"+v1alpha1.BirthParameter, &corev1.PodTemplate{})
		})
	}
	i.register()
	i.stop()
	must(i.T, i.helm(nil, "uninstall", "nodegate"))
	node := i.get(fmt.Sprintf("node-%d", i.nodes), &corev1.Node{}).(*corev1.Node)
	if !held(node) {
		i.Fatal("the gate is not closed on the node any more")
	}
	if output := i.nodegate("release", "--all"); !strings.Contains(output, node.Name+" released from "+heldGate) {
		i.Errorf("release printed %q", output)
	}
	if i.get(node.Name, node); hasKey(node, heldKey) || hasKey(node, requiredKey) {
		i.Errorf("the released node has %v", node.Spec.Taints)
	}
	output, err := exec.Command(i.program, "uninstall", "--namespace=elsewhere", "--kubeconfig", i.cluster.Kubeconfig()).CombinedOutput()
	if want := "nodegate is installed in namespace " + namespace; err == nil || !strings.Contains(string(output), want) {
		i.Errorf("uninstalling from another namespace: %v, want %q:\n%s", err, want, output)
	}
	i.uninstall()
}
