// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/recording"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/components"
)

const (
	istioUser = "system:serviceaccount:istio-system:istiod"
	istioKey  = "cni.istio.io/not-ready"
	istioGate = "istio"
)

// istiod's controller removes the gate's taint when the CNI pod of the node is ready. Beside
// nodegate, no node opens too early, until the node reboots: istiod then removes the taint because
// of the pod's status from before the reboot.
func TestIstio(t *testing.T) {
	s := newSite(t, components.IstioUntaint)
	s.apply(istioObjects)
	s.start([]string{"KUBECONFIG=" + s.kubeconfig("istio-system", "istiod")})
	s.declareWith(istioGate, istioKey, "daemonSet: {namespace: istio-system, name: istio-cni-node}")
	s.createNode(istioGate, map[string]string{siteLabel: istioGate})
	s.workload(istioGate, istioGate, 2, "[]")
	pod := s.awaitCNIPod()
	if node := s.node(istioGate); !hasTaint(node, istioKey) {
		t.Error("the node is open before its CNI pod is ready")
	}
	delete(pod.Annotations, testcluster.HoldAnnotation)
	s.must(s.client.Update(t.Context(), pod)) // KWOK makes it ready
	s.awaitGate(istioGate, istioGate, istioKey, false)
	s.awaitRunning(istioGate, 2)
	t.Logf("at the first opening, istiod patched the node %d times, and nodegate %d times", s.patches(s.since, istioUser), s.patches(s.since, shared.installation.Username()))

	before := s.now()
	s.setBootID(istioGate, "boot-2")
	s.eventually("istiod to remove the taint after the reboot, and nodegate to report it", func(ctx context.Context) error {
		gate, err := testbed.GetGate(ctx, shared.applier, istioGate)
		if err != nil {
			return err
		}
		if n := s.patches(before, istioUser); n == 0 || !meta.IsStatusConditionTrue(gate.Status.Conditions, v1alpha1.ConditionContended) {
			return fmt.Errorf("istiod patched the node %d times: %+v", n, meta.FindStatusCondition(gate.Status.Conditions, v1alpha1.ConditionContended))
		}
		return nil
	})
	gate, err := testbed.GetGate(t.Context(), shared.applier, istioGate)
	s.must(err)
	message := meta.FindStatusCondition(gate.Status.Conditions, v1alpha1.ConditionContended).Message
	t.Logf("after a reboot, istiod patched the node %d times; %s", s.patches(before, istioUser), message)
	// istiod has removed the node's last taint, of which no field manager is recorded.
	for _, part := range []string{istioGate, "removed the last taint of a node", "istiod can be configured to write " + istioKey} {
		if !strings.Contains(message, part) {
			t.Errorf("the message does not contain %q", part)
		}
	}
}

// awaitCNIPod waits until the node has a CNI pod that is not ready.
func (s *site) awaitCNIPod() (pod *corev1.Pod) {
	s.Helper()
	s.eventually("the CNI pod", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := s.client.List(ctx, &pods, client.InNamespace("istio-system")); err != nil {
			return err
		}
		for i := range pods.Items {
			if pods.Items[i].Status.PodIP != "" && pods.Items[i].Spec.NodeName == istioGate {
				pod = &pods.Items[i]
				return nil
			}
		}
		return fmt.Errorf("%d pods exist", len(pods.Items))
	})
	return pod
}

// patches returns how often a user has patched a node since a position.
func (s *site) patches(since recording.Position, user string) int {
	s.Helper()
	return len(s.requests(since, user, "patch", "nodes", ""))
}

// The permissions are those of istiod that its controller uses.
const istioObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: istio-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: istiod, namespace: istio-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: istiod-test}
rules:
- {apiGroups: [""], resources: [nodes, pods, namespaces], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [nodes], verbs: [patch]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: istiod-test}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: istiod-test}
subjects: [{kind: ServiceAccount, name: istiod, namespace: istio-system}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: istio-cni-node, namespace: istio-system}
spec:
  selector: {matchLabels: {k8s-app: istio-cni-node}}
  template:
    metadata:
      labels: {k8s-app: istio-cni-node}
      annotations: {cluster.nodegate.dev/hold: "true"}
    spec:
      nodeSelector: {test.nodegate.dev/site: istio}
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: none}]
`
