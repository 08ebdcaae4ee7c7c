// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/components"
)

const (
	ciliumUser = "system:serviceaccount:kube-system:cilium-operator"
	ciliumKey  = "node.cilium.io/agent-not-ready"
	// ciliumLabel is the label of the nodes on which the agent runs.
	ciliumLabel = "test.nodegate.dev/cilium"
	// ciliumIsUp is the reason of the condition NetworkUnavailable that the operator writes.
	ciliumIsUp  = "CiliumIsUp"
	agentSignal = "daemonSet: {namespace: kube-system, name: cilium}"
)

// ciliumPermission are values of Cilium's chart that take the permission to patch nodes from the
// operator, and do not change the operator's configuration.
const ciliumPermission = "operator: {removeNodeTaints: false, setNodeTaints: false}"

// ciliumDisabled returns the values in the documentation, which disable the operator's taint handling.
func ciliumDisabled(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/from-cilium.md")
	if err != nil {
		t.Fatal(err)
	}
	values := regexp.MustCompile("(?s)```yaml\n(operator:.*?)```").FindSubmatch(page)
	if values == nil {
		t.Fatal("docs/from-cilium.md has no values of Cilium's chart")
	}
	return string(values[1])
}

// ciliumSite is a site on which Cilium's operator runs as its Helm chart configures it. The test
// plays the agents.
type ciliumSite struct {
	*site
	gate   string
	chart  string
	config string // the directory with the operator's configuration
	nodes  int    // how many nodes without a gate were created
}

// newCilium returns a site on which Cilium is installed with values of its chart, in YAML.
func newCilium(t *testing.T, gate, values string) *ciliumSite {
	t.Helper()
	s := &ciliumSite{site: newSite(t, components.CiliumOperator), gate: gate}
	source, err := components.SourceDir(t.Context(), components.CiliumOperator)
	s.must(err)
	s.chart = filepath.Join(source, "install/kubernetes/cilium")
	s.install(values)
	s.apply(ciliumAgents)
	return s
}

// install applies the permissions in the chart, and writes the operator's configuration.
func (s *ciliumSite) install(values string) {
	s.Helper()
	s.config = s.TempDir()
	permissions := &bytes.Buffer{}
	for _, object := range s.render(values) {
		switch name := object.GetName(); {
		case object.GetKind() == "ConfigMap":
			data, _, err := unstructured.NestedStringMap(object.Object, "data")
			s.must(err)
			for key, value := range data {
				s.must(os.WriteFile(filepath.Join(s.config, key), []byte(value), 0o600))
			}
		case name == "cilium-operator":
			text, err := object.MarshalJSON()
			s.must(err)
			fmt.Fprintf(permissions, "---\n%s\n", text)
		}
	}
	s.apply(permissions.String())
}

// render returns the objects of the chart that concern the operator.
func (s *ciliumSite) render(values string) []*unstructured.Unstructured {
	s.Helper()
	file := filepath.Join(s.TempDir(), "values.yaml")
	s.must(os.WriteFile(file, []byte(values), 0o600))
	arguments := []string{"tool", "-modfile=../../hack/tools/helm/go.mod", "helm", "template", "cilium", s.chart,
		"--namespace", "kube-system", "--kube-version", testcluster.DefaultVersion(), "--values", file}
	for _, template := range []string{"cilium-configmap", "cilium-operator/serviceaccount", "cilium-operator/clusterrole", "cilium-operator/clusterrolebinding"} {
		arguments = append(arguments, "--show-only", "templates/"+template+".yaml")
	}
	command := exec.CommandContext(s.Context(), "go", arguments...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		s.Fatalf("rendering Cilium's chart: %v\n%s", err, stderr.Bytes())
	}
	objects, err := testbed.ParseObjects(output)
	s.must(err)
	return objects
}

// startOperator starts the operator, with flags that take precedence over its configuration.
func (s *ciliumSite) startOperator(flags ...string) *program {
	s.Helper()
	api, _ := s.address()
	metrics, _ := s.address()
	_, gops := s.address()
	p := s.start([]string{"CILIUM_K8S_NAMESPACE=kube-system"}, append([]string{
		"--config-dir=" + s.config, "--k8s-kubeconfig-path=" + s.kubeconfig("kube-system", "cilium-operator"),
		"--operator-api-serve-addr=" + api, "--operator-prometheus-serve-addr=" + metrics, "--gops-port=" + gops,
		"--shell-sock-path=" + filepath.Join(s.TempDir(), "shell.sock"),
	}, flags...)...)
	p.awaitLogged("Initialization complete", 1)
	return p
}

// registrationTaint is the taint that Cilium's documentation recommends for --register-with-taints,
// with the gate's effect.
var registrationTaint = corev1.Taint{Key: ciliumKey, Value: "true", Effect: corev1.TaintEffectNoSchedule}

// createMember creates a node with taints, on which the agent is not ready.
func (s *ciliumSite) createMember(name string, taints ...corev1.Taint) {
	s.Helper()
	node := testcluster.KWOKNode(name)
	node.Labels[siteLabel], node.Labels[ciliumLabel] = s.gate, "true"
	node.Spec.Taints = taints
	node.Status.NodeInfo.BootID = "boot-1" // KWOK keeps it
	s.must(s.client.Create(s.Context(), node))
	s.Cleanup(func() {
		if err := client.IgnoreNotFound(s.client.Delete(context.Background(), node)); err != nil {
			s.Error(err)
		}
	})
	s.report(name, false)
}

// agent returns the agent's pod on a node. It waits until KWOK has seen a pod that is not being
// deleted, and holds it.
func (s *ciliumSite) agent(node string) (pod *corev1.Pod) {
	s.Helper()
	s.eventually("the agent's pod on node "+node, func(ctx context.Context) error {
		var pods corev1.PodList
		if err := s.client.List(ctx, &pods, client.InNamespace("kube-system"), client.MatchingLabels{"k8s-app": "cilium"}); err != nil {
			return err
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Spec.NodeName == node && p.DeletionTimestamp == nil && p.Status.PodIP != "" {
				pod = p
				return nil
			}
		}
		return fmt.Errorf("%d pods exist", len(pods.Items))
	})
	return pod
}

// report reports that the agent runs in a new container of the node's current boot, ready or not.
func (s *ciliumSite) report(node string, ready bool) {
	s.Helper()
	pod := s.agent(node)
	boot := s.node(node).Status.NodeInfo.BootID
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", Image: "none", Ready: ready, ContainerID: containerOf(boot) + string(uuid.NewUUID()),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}
	s.must(s.client.Status().Patch(s.Context(), pod, client.MergeFrom(before)))
}

// containerOf returns the prefix of the IDs of the containers of a boot.
func containerOf(boot string) string { return "played://" + boot + "/" }

// terminate deletes the agent's pod, which stays ready and does not end before the returned
// function is called.
func (s *ciliumSite) terminate(node string) (end func()) {
	s.Helper()
	pod := s.agent(node)
	pod.Finalizers = []string{"test.nodegate.dev/terminating"}
	s.must(s.client.Update(s.Context(), pod))
	s.must(s.client.Delete(s.Context(), pod))
	return func() {
		s.Helper()
		var last corev1.Pod
		s.must(s.client.Get(s.Context(), client.ObjectKeyFromObject(pod), &last))
		last.Finalizers = nil
		s.must(s.client.Update(s.Context(), &last))
	}
}

// awaitOperator waits until the operator has processed what happened before: it writes its
// condition to a new node without a gate.
func (s *ciliumSite) awaitOperator() {
	s.Helper()
	s.nodes++
	name := s.gate + "-other-" + strconv.Itoa(s.nodes)
	s.createNode(name, map[string]string{ciliumLabel: "true"})
	s.report(name, true)
	s.awaitCiliumIsUp(name)
}

// awaitCiliumIsUp waits until the node has the condition that the operator writes.
func (s *ciliumSite) awaitCiliumIsUp(name string) {
	s.Helper()
	s.eventually("the operator's condition on node "+name, func(ctx context.Context) error {
		var node corev1.Node
		if err := s.client.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			return err
		}
		if c := networkUnavailable(&node); c.Reason != ciliumIsUp {
			return fmt.Errorf("condition NetworkUnavailable: %+v", c)
		}
		return nil
	})
}

// networkUnavailable returns the node's condition NetworkUnavailable without its heartbeat.
func networkUnavailable(node *corev1.Node) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeNetworkUnavailable {
			c.LastHeartbeatTime = metav1.Time{}
			return c
		}
	}
	return corev1.NodeCondition{}
}

const ciliumAgents = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: cilium, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: cilium}}
  template:
    metadata:
      labels: {k8s-app: cilium}
      annotations: {cluster.nodegate.dev/hold: "true"}
    spec:
      nodeSelector: {test.nodegate.dev/cilium: "true"}
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: none}]
`
