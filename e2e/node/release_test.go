// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/recording"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/clustertest"
	"github.com/nodegate/nodegate/testcluster/components"
	"github.com/nodegate/nodegate/testcluster/machine"
)

const (
	chartDir = "../../charts/nodegate"
	toolsDir = "../../hack/tools"
)

// chartValues are the chart's values. The address of the image and everything else are the
// defaults.
const chartValues = `
allowedTaintKeys: [test.nodegate.dev/agent-not-ready]
defaultGate: {enabled: false}
gates:
  agent:
    nodeSelector: {}
    taint: {key: test.nodegate.dev/agent-not-ready, effect: NoSchedule}
    openWhen:
    - name: agent
      daemonSet: {namespace: node-test, name: agent}
`

// release is a cluster of its own for the chart and the image, which become a release.
type release struct {
	cluster  *testcluster.Cluster
	client   client.Client
	applier  *testbed.Applier
	programs map[components.Component]string
	// images are archives: that of the tests, and nodegate's.
	images []string
	// values is a file. helmProgram is Helm, and program is nodegate as administrators run it.
	values, helmProgram, program string
	// username is nodegate's in the API server.
	username string
	machines int
}

func newRelease(t *testing.T) *release {
	t.Helper()
	clustertest.SkipIfShort(t)
	clustertest.SkipWithoutMutatingPolicies(t)
	if err := machine.Unsupported(); err != nil {
		t.Skipf("a machine cannot run here: %v", err)
	}
	dir := t.TempDir()
	r := &release{values: filepath.Join(dir, "values.yaml"), username: "system:serviceaccount:" + v1alpha1.DefaultNamespace + ":nodegate"}
	must(t, os.WriteFile(r.values, []byte(chartValues), 0o644))
	r.helmProgram = strings.TrimSpace(run(t, "go", "tool", "-modfile="+toolsDir+"/helm/go.mod", "-n", "helm"))
	var err error
	r.program, err = testbed.BuildProgram(t.Context(), dir)
	must(t, err)
	r.programs, err = machine.Programs(t.Context(), os.Stderr)
	must(t, err)
	r.images = []string{filepath.Join(dir, "pod.tar"), nodegateImage(t, dir)}
	must(t, machine.BuildImage(t.Context(), r.images[0]))
	r.start(t)
	return r
}

// nodegateImage builds the image as 'make image' does, for one platform, and returns its archive.
func nodegateImage(t *testing.T, dir string) string {
	t.Helper()
	var chart struct {
		AppVersion string `json:"appVersion"`
	}
	text, err := os.ReadFile(filepath.Join(chartDir, "Chart.yaml"))
	must(t, err)
	must(t, yaml.Unmarshal(text, &chart))
	root, err := filepath.Abs("../..")
	must(t, err)
	out := filepath.Join(dir, "image")
	run(t, "go", "run", "-C", toolsDir+"/image", ".", "-source", root, "-out", out,
		"-platforms", "linux/"+runtime.GOARCH, "-version", chart.AppVersion)
	return out + ".tar"
}

// start starts the cluster, with the namespaces and the daemon, and no node.
func (r *release) start(t *testing.T) {
	t.Helper()
	var err error
	r.cluster, err = testcluster.Start(t.Context(), recording.ClusterOptions(os.Stderr, testcluster.APIServer, testcluster.Scheduler, testcluster.ControllerManager))
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			r.cluster.Keep()
		}
		if err := errors.Join(r.cluster.Err(), r.cluster.Stop()); err != nil {
			t.Error(err)
		}
	})
	r.client, err = testbed.NewClient(r.cluster.Admin())
	must(t, err)
	r.applier, err = testbed.NewApplier(r.cluster.Admin())
	must(t, err)
	objects, err := testbed.ParseObjects([]byte(daemon + `
---
apiVersion: v1
kind: Namespace
metadata:
  name: ` + v1alpha1.DefaultNamespace + `
  labels: {pod-security.kubernetes.io/enforce: restricted}
`))
	must(t, err)
	must(t, r.applier.Apply(t.Context(), objects...))
}

// newHost returns a machine that is off.
func (r *release) newHost(t *testing.T, options machine.Options) *host {
	t.Helper()
	r.machines++
	h := &host{name: fmt.Sprintf("node-%d", r.machines), cluster: r.cluster, client: r.client}
	options.Number, options.Programs, options.Image, options.Images = r.machines, r.programs, r.images[0], r.images[1:]
	h.build(t, options)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the machine's logs are in %s", h.Logs())
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// helm runs Helm for the release.
func (r *release) helm(t *testing.T, verb string, args ...string) {
	t.Helper()
	args = append([]string{verb, "nodegate"}, args...)
	if verb != "uninstall" {
		args = append(args, chartDir)
	}
	run(t, r.helmProgram, append(args, "--kubeconfig", r.cluster.Kubeconfig(), "--namespace", v1alpha1.DefaultNamespace)...)
}

// run runs a program, and returns its standard output.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	home := t.TempDir() // Helm must not use the user's
	command.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECACHEDIR="+home)
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, stderr.String())
	}
	return string(output)
}

// awaitReplicas waits until nodegate has two replicas with an argument, unless it is empty, which
// are ready on these machines.
func (r *release) awaitReplicas(t *testing.T, arg string, on ...*host) {
	t.Helper()
	var nodes []string
	for _, h := range on {
		nodes = append(nodes, h.name)
	}
	must(t, await.Until(t.Context(), "replicas", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := r.client.List(ctx, &pods, client.InNamespace(v1alpha1.DefaultNamespace)); err != nil {
			return err
		}
		if len(pods.Items) != 2 {
			return fmt.Errorf("there are %d pods", len(pods.Items))
		}
		for i := range pods.Items {
			if err := checkReplica(&pods.Items[i], arg, nodes); err != nil {
				return err
			}
		}
		return nil
	}))
}

func checkReplica(p *corev1.Pod, arg string, nodes []string) error {
	if !slices.Contains(nodes, p.Spec.NodeName) || p.DeletionTimestamp != nil {
		return fmt.Errorf("pod %s is on node %q, deleted %v", p.Name, p.Spec.NodeName, p.DeletionTimestamp)
	}
	if arg != "" && !slices.Contains(p.Spec.Containers[0].Args, arg) {
		return fmt.Errorf("pod %s has the arguments %v", p.Name, p.Spec.Containers[0].Args)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("pod %s is not ready: %+v", p.Name, p.Status.ContainerStatuses)
}
