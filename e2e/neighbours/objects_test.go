// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
)

const (
	keyA = "test.nodegate.dev/a"
	// keyReadiness has a prefix that Karpenter knows.
	keyReadiness = "readiness.k8s.io/nodegate-test"

	// siteLabel is the label of a test's nodes. Its value is the test's gate.
	siteLabel = "test.nodegate.dev/site"
	// readyLabel is the label that a test's gate waits for.
	readyLabel = "test.nodegate.dev/ready"
	// readySignal is the signal of this label.
	readySignal = "label: {key: " + readyLabel + "}"
)

// apply applies objects in YAML, and deletes them when the test ends.
func (s *site) apply(yaml string) {
	s.Helper()
	objects, err := testbed.ParseObjects([]byte(yaml))
	s.must(err)
	for _, object := range objects {
		// In their project's manifests, kustomize sets it.
		if kind := object.GetKind(); (kind == "Role" || kind == "RoleBinding") && object.GetNamespace() == "" {
			object.SetNamespace("kube-system")
		}
	}
	s.must(shared.applier.Apply(s.Context(), objects...))
	s.Cleanup(func() {
		for _, object := range slices.Backward(objects) {
			if err := s.client.Delete(context.Background(), object, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
				s.Errorf("deleting %s %s: %v", object.GetKind(), object.GetName(), err)
			}
		}
	})
}

// applyKinds applies files with CustomResourceDefinitions. They stay, because their deletion would
// wait for finalizers that the neighbour removes.
func (s *site) applyKinds(files []string) {
	s.Helper()
	for _, file := range files {
		manifest, err := os.ReadFile(file)
		s.must(err)
		objects, err := testbed.ParseObjects(manifest)
		s.must(err)
		s.must(shared.applier.Apply(s.Context(), objects...))
	}
}

// declare creates a gate for the nodes with siteLabel, and waits until it is in force. The gate
// waits for readyLabel, and closes at once when a node loses it.
func (s *site) declare(name, key string) {
	s.Helper()
	s.declareWith(name, key, readySignal)
}

// declareWith declares a gate with a signal and more fields of its spec, in YAML.
func (s *site) declareWith(name, key, signal string, fields ...string) {
	s.Helper()
	s.apply(fmt.Sprintf(`
apiVersion: nodegate.dev/v1alpha1
kind: NodeGate
metadata: {name: %[1]s}
spec:
  nodeSelector: {matchLabels: {%[2]s: %[1]s}}
  taint: {key: %[3]s, effect: NoSchedule}
  openWhen: [{name: ready, %[4]s}]
  reclosePolicy: OnRegression
  timing: {closeAfterSeconds: 0, rolloutGraceSeconds: 0}
  budget: {maxReclosed: 100%%}
  %[5]s
`, name, siteLabel, key, signal, strings.Join(fields, "\n  ")))
	s.must(testbed.AwaitGate(s.Context(), shared.applier, name))
}

// createNode creates a simulated node with labels, and deletes it when the test ends. The gate
// that siteLabel names is closed at birth.
func (s *site) createNode(name string, labels map[string]string) {
	s.Helper()
	s.createNodeWith(name, labels, "")
}

// createNodeWith creates a simulated node with labels and a provider ID.
func (s *site) createNodeWith(name string, labels map[string]string, providerID string) {
	s.Helper()
	node := testcluster.KWOKNode(name)
	node.Spec.ProviderID = providerID
	node.Status.NodeInfo.BootID = "boot-1" // KWOK keeps it; later, it may overwrite it while it initializes the node
	for key, value := range labels {
		node.Labels[key] = value
	}
	s.must(s.client.Create(s.Context(), node))
	if gate := labels[siteLabel]; gate != "" && node.Annotations[v1alpha1.RecordAnnotationPrefix+gate] == "" {
		s.Errorf("node %s was created without a record of gate %s", name, gate)
	}
	s.Cleanup(func() {
		if err := client.IgnoreNotFound(s.client.Delete(context.Background(), node)); err != nil {
			s.Error(err)
		}
	})
}

func (s *site) node(name string) *corev1.Node {
	s.Helper()
	var node corev1.Node
	s.must(s.client.Get(s.Context(), client.ObjectKey{Name: name}, &node))
	return &node
}

// awaitDeadlineCondition waits until a node has the condition of a gate, or no longer has it.
func (s *site) awaitDeadlineCondition(node, gate string, want bool) (found *corev1.NodeCondition) {
	s.Helper()
	s.eventually(fmt.Sprintf("node %s to have the gate's condition: %t", node, want), func(context.Context) error {
		found = nil
		conditions := s.node(node).Status.Conditions
		if i := slices.IndexFunc(conditions, func(c corev1.NodeCondition) bool { return string(c.Type) == "deadline.nodegate.dev/"+gate }); i >= 0 {
			found = &conditions[i]
		}
		if (found != nil) != want {
			return fmt.Errorf("it is %+v", found)
		}
		return nil
	})
	return found
}

// setBootID changes a node's boot ID.
func (s *site) setBootID(name, id string) {
	s.Helper()
	body, err := json.Marshal(map[string]any{"status": map[string]any{"nodeInfo": map[string]string{"bootID": id}}})
	s.must(err)
	node := &corev1.Node{}
	node.Name = name
	s.must(s.client.Status().Patch(s.Context(), node, client.RawPatch(types.StrategicMergePatchType, body)))
}

// setReady adds readyLabel to a node, or removes it.
func (s *site) setReady(name string, ready bool) {
	s.Helper()
	s.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node := s.node(name)
		delete(node.Labels, readyLabel)
		if ready {
			node.Labels[readyLabel] = "true"
		}
		return s.client.Update(s.Context(), node)
	}))
}

// awaitGate waits until a gate is closed, or open, on a node: its taint and its record agree.
func (s *site) awaitGate(node, gate, key string, closed bool) {
	s.Helper()
	s.eventually(fmt.Sprintf("gate %s on node %s to be closed: %t", gate, node, closed), func(ctx context.Context) error {
		var n corev1.Node
		if err := s.client.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
			return err
		}
		recorded := strings.Contains(n.Annotations[v1alpha1.RecordAnnotationPrefix+gate], `"Closed"`)
		if tainted := hasTaint(&n, key); tainted != closed || recorded != closed {
			return fmt.Errorf("tainted: %t, recorded as closed: %t", tainted, recorded)
		}
		return nil
	})
}

func hasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// workload creates a Deployment whose pods run only on nodes with a value of siteLabel.
// tolerations is YAML.
func (s *site) workload(name, site string, replicas int, tolerations string) {
	s.Helper()
	s.apply(fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: default}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      nodeSelector: {%[3]s: %[4]s}
      tolerations: %[5]s
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: none, resources: {requests: {cpu: 600m, memory: 64Mi}}}]
`, name, replicas, siteLabel, site, tolerations))
}

// pods returns the pods of a workload.
func (s *site) pods(ctx context.Context, app string) []corev1.Pod {
	s.Helper()
	var pods corev1.PodList
	s.must(s.client.List(ctx, &pods, client.InNamespace("default"), client.MatchingLabels{"app": app}))
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// awaitRunning waits until n pods of a workload are running, and returns their names.
func (s *site) awaitRunning(app string, n int) (names []string) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d pods of %s to run", n, app), func(ctx context.Context) error {
		names = nil
		for _, p := range s.pods(ctx, app) {
			if p.Status.Phase == corev1.PodRunning {
				names = append(names, p.Name)
			}
		}
		if len(names) != n {
			return fmt.Errorf("%d are running", len(names))
		}
		return nil
	})
	slices.Sort(names)
	return names
}
