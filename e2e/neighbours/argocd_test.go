// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/presets"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/components"
)

// argoCD is the part of Argo CD's application controller that the component runs.
type argoCD struct {
	*site
	config   string // of an administrator, as which Argo CD runs by default
	manifest string // the chart, rendered as Argo CD renders it
	health   string // the script on the page about installing
}

// compared is the result for one object.
type compared struct {
	Kind, Namespace, Name  string
	ServerSide, ClientSide *struct{ Live, Predicted json.RawMessage }
	Health, HealthMessage  string
}

// Argo CD installs the chart and compares it with the cluster while nodegate runs. It finds no
// difference in any object, and the documented script assesses the health of gates.
func TestArgoCD(t *testing.T) {
	a := newArgoCD(t)
	a.run("sync", a.manifest)
	installed := a.compare(a.manifest)
	a.isInSync("before nodegate starts", installed)
	gate := find(t, installed, "NodeGate", "")
	a.isHealth("Progressing", gate)

	i := &testbed.Installation{AllowedKeys: presets.TaintKeys(), ServiceAccount: types.NamespacedName{Namespace: "nodegate-system", Name: "nodegate"}}
	var err error
	i.Program, err = testbed.BuildProgram(t.Context(), a.cluster.Dir())
	a.must(err)
	controller, err := testbed.StartController(t.Context(), a.cluster, i)
	a.must(err)
	a.must(controller.AwaitReady(t.Context()))
	applier, err := testbed.NewApplier(a.cluster.Admin())
	a.must(err)
	a.must(testbed.AwaitGate(t.Context(), applier, gate.Name))
	running := a.compare(a.manifest)
	a.isInSync("while nodegate runs", running)
	a.isHealth("Healthy", find(t, running, "NodeGate", gate.Name))

	a.run("sync", a.manifest)
	a.isInSync("after another sync", a.compare(a.manifest))
	a.addsTolerations()
	a.isHealth("Degraded", a.rejectedGate())
	a.findsDrift()
}

// With the webhook and an existing certificate, 'nodegate webhook-certificate' writes a Secret
// and the CA bundle. Argo CD finds no difference because of them, and a sync keeps them.
func TestArgoCDWithWebhook(t *testing.T) {
	a := newArgoCD(t, "--set", "birth=webhook", "--set", "webhook.certificate=existing")
	a.run("sync", a.manifest)
	program, err := testbed.BuildProgram(t.Context(), a.cluster.Dir())
	a.must(err)
	a.command(program, "webhook-certificate", "--kubeconfig", a.config)
	bundle := a.caBundle()
	a.isInSync("after the certificate was created", a.compare(a.manifest))
	a.run("sync", a.manifest)
	a.isInSync("after another sync", a.compare(a.manifest))
	if after := a.caBundle(); !bytes.Equal(after, bundle) {
		t.Errorf("a sync changed the CA bundle from %q to %q", bundle, after)
	}
}

// caBundle returns the CA bundle of the webhook, which must not be empty.
func (a *argoCD) caBundle() []byte {
	a.Helper()
	var w admissionregistrationv1.MutatingWebhookConfiguration
	a.must(a.client.Get(a.Context(), client.ObjectKey{Name: "nodegate-birth"}, &w))
	if len(w.Webhooks) != 1 || len(w.Webhooks[0].ClientConfig.CABundle) == 0 {
		a.Fatalf("no CA bundle: %+v", w.Webhooks)
	}
	return w.Webhooks[0].ClientConfig.CABundle
}

// newArgoCD returns Argo CD in a cluster of its own, with the chart rendered with these flags.
func newArgoCD(t *testing.T, flags ...string) *argoCD {
	t.Helper()
	skipUnlessRequested(t, components.ArgoCD)
	c, err := testcluster.Start(t.Context(), testcluster.Options{Components: []testcluster.Component{testcluster.APIServer, testcluster.ControllerManager}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	a := &argoCD{site: &site{T: t, cluster: c}}
	a.client, err = testbed.NewClient(c.Admin())
	a.must(err)
	a.build(components.ArgoCD)
	a.config = a.file("kubeconfig", nil)
	a.must(testcluster.WriteKubeconfig(a.config, c.Admin()))
	page, err := os.ReadFile("../../docs/install.md")
	a.must(err)
	script := regexp.MustCompile("(?s)resource.customizations.health.nodegate.dev_NodeGate: \\|\n(.*?)```").FindSubmatch(page)
	if script == nil {
		t.Fatal("docs/install.md has no health script")
	}
	a.health = a.file("health.lua", script[1])
	a.manifest = a.file("chart.yaml", a.command("go", append([]string{"tool", "-modfile=../../hack/tools/helm/go.mod", "helm",
		"template", "nodegate", "../../charts/nodegate", "--namespace", "nodegate-system", "--include-crds", "--kube-version", testcluster.DefaultVersion()}, flags...)...))
	a.must(a.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nodegate-system"}}))
	return a
}

// file writes a file of the test.
func (a *argoCD) file(name string, content []byte) string {
	a.Helper()
	path := filepath.Join(a.TempDir(), name)
	a.must(os.WriteFile(path, content, 0o600))
	return path
}

// run runs Argo CD and returns its output.
func (a *argoCD) run(args ...string) []byte {
	a.Helper()
	return a.command(a.neighbour, args...)
}

func (a *argoCD) command(name string, args ...string) []byte {
	a.Helper()
	command := exec.CommandContext(a.Context(), name, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+a.config)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		a.Fatalf("%s %v: %v\n%s", name, args, err, stderr.Bytes())
	}
	return output
}

// compare compares a manifest with the cluster.
func (a *argoCD) compare(manifest string) (all []compared) {
	a.Helper()
	a.must(json.Unmarshal(a.run("compare", manifest, a.health), &all))
	return all
}

// isInSync verifies that no object differs from its manifest.
func (a *argoCD) isInSync(when string, all []compared) {
	a.Helper()
	if len(all) < 20 {
		a.Errorf("%s, %d objects were compared", when, len(all))
	}
	for _, c := range all {
		if c.ServerSide != nil {
			a.Errorf("%s, %s %s differs in a server-side diff:\n%s\n%s", when, c.Kind, c.Name, c.ServerSide.Live, c.ServerSide.Predicted)
		}
		if c.ClientSide != nil {
			a.Errorf("%s, %s %s differs in a client-side diff:\n%s\n%s", when, c.Kind, c.Name, c.ClientSide.Live, c.ClientSide.Predicted)
		}
	}
}

func (a *argoCD) isHealth(want string, c *compared) {
	a.Helper()
	if c.Health != want {
		a.Errorf("the health of %s %s is %q (%s), want %s", c.Kind, c.Name, c.Health, c.HealthMessage, want)
	}
	a.Logf("the health of %s %s is %s: %s", c.Kind, c.Name, c.Health, c.HealthMessage)
}

// find returns the first result with a kind and a name, or with a kind if the name is empty.
func find(t *testing.T, all []compared, kind, name string) *compared {
	t.Helper()
	for i := range all {
		if all[i].Kind == kind && (name == "" || all[i].Name == name) {
			return &all[i]
		}
	}
	t.Fatalf("the chart has no %s %s", kind, name)
	return nil
}

// rejectedGate syncs a gate whose key is not allowed, and returns the result once nodegate has
// reported this.
func (a *argoCD) rejectedGate() *compared {
	a.Helper()
	manifest := a.file("rejected.yaml", []byte(`
apiVersion: nodegate.dev/v1alpha1
kind: NodeGate
metadata: {name: rejected}
spec:
  nodeSelector: {matchLabels: {a: b}}
  taint: {key: example.com/not-allowed, effect: NoSchedule}
  openWhen: [{name: ready, label: {key: ready}}]
`))
	a.run("sync", manifest)
	a.eventually("nodegate to report the gate", func(ctx context.Context) error {
		var ng v1alpha1.NodeGate
		if err := a.client.Get(ctx, client.ObjectKey{Name: "rejected"}, &ng); err != nil {
			return err
		}
		if ng.Status.ObservedGeneration != ng.Generation {
			return fmt.Errorf("status: %+v", ng.Status)
		}
		return nil
	})
	return &a.compare(manifest)[0]
}

// findsDrift changes the Deployment, which must be reported. Otherwise the other results mean
// nothing.
func (a *argoCD) findsDrift() {
	a.Helper()
	var list appsv1.DeploymentList
	a.must(a.client.List(a.Context(), &list, client.InNamespace("nodegate-system")))
	for i := range list.Items {
		list.Items[i].Spec.Replicas = new(int32(7))
		a.must(a.client.Update(a.Context(), &list.Items[i]))
	}
	c := find(a.T, a.compare(a.manifest), "Deployment", "")
	if c.ServerSide == nil || !strings.Contains(string(c.ServerSide.Live), `"replicas":7`) || c.ClientSide == nil {
		a.Errorf("a changed Deployment is not reported: %+v", c)
	}
}
