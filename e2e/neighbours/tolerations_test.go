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
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/components"
)

// The DaemonSets of the tests, as in Git: plain has no tolerations, and listed has a list
// without the gate's taint.
const (
	plainDaemon  = "plain"
	listedDaemon = "listed"
)

// daemonManifest returns the manifest of both DaemonSets, in kube-system and with a label.
func daemonManifest(label string) []byte {
	text := ""
	for name, tolerations := range map[string]string{
		plainDaemon:  "",
		listedDaemon: "tolerations: [{key: example.com/pool, operator: Equal, value: gpu, effect: NoSchedule}]",
	} {
		text += fmt.Sprintf(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: %[1]s, namespace: kube-system, labels: {%[2]s}}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      %[3]s
      containers: [{name: c, image: registry.example.com/c}]
---
`, name, label, tolerations)
	}
	return []byte(text)
}

// tolerating verifies that both DaemonSets tolerate the taint with a key, and returns their
// generations.
func (s *site) tolerating(key string) map[string]int64 {
	s.Helper()
	generations := map[string]int64{}
	for name, n := range map[string]int{plainDaemon: 1, listedDaemon: 2} {
		var ds appsv1.DaemonSet
		s.must(s.client.Get(s.Context(), client.ObjectKey{Namespace: "kube-system", Name: name}, &ds))
		got := ds.Spec.Template.Spec.Tolerations
		has := slices.Contains(got, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
		if !has || len(got) != n {
			s.Errorf("DaemonSet %s has the tolerations %v", name, got)
		}
		generations[name] = ds.Generation
	}
	return generations
}

// deleteDaemons deletes both DaemonSets.
func (s *site) deleteDaemons() {
	for _, name := range []string{plainDaemon, listedDaemon} {
		ds := &appsv1.DaemonSet{}
		ds.Namespace, ds.Name = "kube-system", name
		if err := client.IgnoreNotFound(s.client.Delete(context.Background(), ds)); err != nil {
			s.Error(err)
		}
	}
}

// Flux applies DaemonSets that lack the toleration of a gate's taint. The API server adds it.
// Flux finds no drift, and its next apply changes nothing.
func TestFluxAndTolerations(t *testing.T) {
	s := newSite(t, components.Flux)
	s.declareWith("flux", keyA, `daemonSets: {namespaces: [kube-system], selector: {matchLabels: {wait: flux}}}`, "tolerate: true")
	dir := t.TempDir()
	config, manifest := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "daemons.yaml")
	s.must(testcluster.WriteKubeconfig(config, s.cluster.Admin()))
	s.must(os.WriteFile(manifest, daemonManifest("wait: flux"), 0o600))
	t.Cleanup(s.deleteDaemons)
	s.flux(config, "sync", manifest, "created")
	before := s.tolerating(keyA)
	s.flux(config, "diff", manifest, "unchanged")
	s.flux(config, "sync", manifest, "unchanged")
	if after := s.tolerating(keyA); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the generations were %v and are %v", before, after)
	}
	// Otherwise the other results mean nothing.
	s.must(os.WriteFile(manifest, bytes.ReplaceAll(daemonManifest("wait: flux"), []byte("example.com/c"), []byte("example.com/d")), 0o600))
	s.flux(config, "diff", manifest, "configured")
	// The daemons start on a closed node.
	s.createNode("flux", map[string]string{siteLabel: "flux"})
	s.awaitGate("flux", "flux", keyA, false)
}

// flux runs Flux, and verifies its action for both DaemonSets.
func (s *site) flux(config, verb, manifest, want string) {
	s.Helper()
	actions := s.runFlux(config, verb, manifest)
	s.Logf("flux %s: %v", verb, actions)
	if actions[plainDaemon] != want || actions[listedDaemon] != want {
		s.Errorf("flux %s: %v, want %s", verb, actions, want)
	}
}

// runFlux runs Flux, and returns its actions by name.
func (s *site) runFlux(config, verb, manifest string) map[string]string {
	s.Helper()
	command := exec.CommandContext(s.Context(), s.neighbour, verb, manifest)
	command.Env = append(os.Environ(), "KUBECONFIG="+config)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		s.Fatalf("flux %s: %v\n%s", verb, err, stderr.Bytes())
	}
	var results []struct{ Name, Action string }
	s.must(json.Unmarshal(output, &results))
	actions := map[string]string{}
	for _, r := range results {
		actions[r.Name] = r.Action
	}
	return actions
}

// ignoredTolerations is the setting of Argo CD in docs/guides/tolerations.md.
const ignoredTolerations = `jqPathExpressions:
- .spec.template.spec.tolerations[]? | select(.key == "` + requiredKey + `")
`

// requiredKey is the taint key of the chart's default gate.
const requiredKey = "startup-taint.cluster-autoscaler.kubernetes.io/required-daemonsets"

// addsTolerations syncs DaemonSets that lack the toleration of the default gate's taint. A
// server-side diff finds no difference. A client-side diff finds one if the manifest has a list
// of tolerations, unless Argo CD is configured to ignore the gate's.
func (a *argoCD) addsTolerations() {
	a.Helper()
	manifest := a.file("daemons.yaml", daemonManifest(`nodegate.dev/required: "true"`))
	a.run("sync", manifest)
	before := a.tolerating(requiredKey)
	for ignore, differs := range map[string]bool{"": true, a.file("ignore.yaml", []byte(ignoredTolerations)): false} {
		for _, c := range a.compareIgnoring(manifest, ignore) {
			a.Logf("ignoring %q, DaemonSet %s differs in a server-side diff: %t; in a client-side diff: %t", ignore, c.Name, c.ServerSide != nil, c.ClientSide != nil)
			if c.ServerSide != nil {
				a.Errorf("DaemonSet %s differs in a server-side diff:\n%s\n%s", c.Name, c.ServerSide.Live, c.ServerSide.Predicted)
			}
			if got := c.ClientSide != nil; got != (differs && c.Name == listedDaemon) {
				a.Errorf("DaemonSet %s differs in a client-side diff: %t (ignoring %q)", c.Name, got, ignore)
			}
		}
	}
	a.run("sync", manifest)
	if after := a.tolerating(requiredKey); fmt.Sprint(after) != fmt.Sprint(before) {
		a.Errorf("after another sync, the generations were %v and are %v", before, after)
	}
}

// compareIgnoring compares a manifest with the cluster. ignore is a file with differences to
// ignore in DaemonSets, or "".
func (a *argoCD) compareIgnoring(manifest, ignore string) (all []compared) {
	a.Helper()
	args := []string{"compare", manifest, a.health}
	if ignore != "" {
		args = append(args, ignore)
	}
	a.must(json.Unmarshal(a.run(args...), &all))
	if len(all) != 2 {
		a.Errorf("%d objects were compared", len(all))
	}
	return all
}
