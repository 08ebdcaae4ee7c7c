// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/components"
)

const karpenterUser = "system:serviceaccount:kube-system:karpenter"

const (
	// provisioning is what Karpenter logs in each round in which pods are pending.
	provisioning = "computing scheduling decision for provisionable pod(s)"
	// disruption and lastMethod are parts of the series that counts rounds of disruption. A round
	// tries this method last, if no other disrupts a node.
	disruption = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds_count"
	lastMethod = `consolidation_type="single"`
)

// karpenter is a site on which Karpenter runs.
type karpenter struct {
	*site
	program *program
	metrics string // their URL
}

// install starts Karpenter with its own kinds.
func (s *karpenter) install() {
	s.Helper()
	source, err := components.SourceDir(s.Context(), components.Karpenter)
	s.must(err)
	files, err := filepath.Glob(filepath.Join(source, "pkg/apis/crds/*.yaml"))
	s.must(err)
	more, err := filepath.Glob(filepath.Join(source, "kwok/apis/crds/*.yaml"))
	s.must(err)
	s.applyKinds(append(files, more...))
	s.apply(karpenterRights)
	metrics, metricsPort := s.address()
	_, healthPort := s.address()
	s.metrics = "http://" + metrics + "/metrics"
	s.program = s.start([]string{
		"KUBECONFIG=" + s.kubeconfig("kube-system", "karpenter"), "SYSTEM_NAMESPACE=kube-system", "DISABLE_LEADER_ELECTION=true",
		"METRICS_PORT=" + metricsPort, "HEALTH_PROBE_PORT=" + healthPort, "LOG_LEVEL=debug",
	})
}

// pool creates a NodePool whose nodes have siteLabel and room for one pod. When the test ends, it
// is deleted with its nodes.
func (s *karpenter) pool(gate, startupTaints string, limit int) {
	s.Helper()
	s.Cleanup(s.awaitDeletion)
	s.apply(fmt.Sprintf(`
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: %[1]s}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: %[1]s}
spec:
  template:
    metadata: {labels: {%[2]s: %[1]s}}
    spec:
      startupTaints: %[3]s
      requirements:
      - {key: kubernetes.io/arch, operator: In, values: [amd64]}
      - {key: kubernetes.io/os, operator: In, values: [linux]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: karpenter.kwok.sh/instance-family, operator: In, values: [c]}
      - {key: karpenter.kwok.sh/instance-cpu, operator: In, values: ["1"]}
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: %[1]s}
  limits: {cpu: %[4]d}
  disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 0s, budgets: [{nodes: 100%%}]}
`, gate, siteLabel, startupTaints, limit))
}

// awaitDeletion waits until no node of Karpenter is left. Its NodeClaim is garbage collected with
// the NodePool.
func (s *karpenter) awaitDeletion() {
	err := await.Until(context.Background(), "the nodes to be deleted", func(ctx context.Context) error {
		nodes := s.poolNodes(ctx)
		for i := range nodes {
			// The provider also creates Nodes of NodeClaims that have been deleted meanwhile.
			if err := client.IgnoreNotFound(s.client.Delete(ctx, &nodes[i])); err != nil {
				return err
			}
		}
		if n := len(s.nodeClaims(ctx)) + len(nodes); n > 0 {
			return fmt.Errorf("%d objects are left", n)
		}
		return nil
	})
	if err != nil {
		s.Error(err)
	}
}

// nodeClaim contains the fields of a NodeClaim that tests read.
type nodeClaim struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		NodeName   string             `json:"nodeName"`
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// condition returns a condition, or an empty one.
func (c *nodeClaim) condition(kind string) (found metav1.Condition) {
	if i := slices.IndexFunc(c.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kind }); i >= 0 {
		found = c.Status.Conditions[i]
	}
	return found
}

func (s *karpenter) nodeClaims(ctx context.Context) []nodeClaim {
	s.Helper()
	var list unstructured.UnstructuredList
	list.SetAPIVersion("karpenter.sh/v1")
	list.SetKind("NodeClaimList")
	s.must(s.client.List(ctx, &list))
	all := make([]nodeClaim, len(list.Items))
	for i := range list.Items {
		s.must(runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &all[i]))
	}
	return all
}

// poolNodes returns the nodes that Karpenter manages.
func (s *karpenter) poolNodes(ctx context.Context) []corev1.Node {
	s.Helper()
	var nodes corev1.NodeList
	s.must(s.client.List(ctx, &nodes, client.HasLabels{"karpenter.sh/nodepool"}))
	return nodes.Items
}

// awaitRegistered waits until n nodes are registered and Ready, and returns their names.
func (s *karpenter) awaitRegistered(n int) (nodes []string) {
	s.Helper()
	s.awaitCondition("Registered", n)
	for _, c := range s.nodeClaims(s.Context()) {
		nodes = append(nodes, c.Status.NodeName)
	}
	return nodes
}

// awaitCondition waits until there are n NodeClaims, and all have a condition.
func (s *karpenter) awaitCondition(kind string, n int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d NodeClaims to be %s", n, kind), func(ctx context.Context) error {
		all := s.nodeClaims(ctx)
		for _, c := range all {
			if got := c.condition(kind); got.Status != metav1.ConditionTrue {
				return fmt.Errorf("NodeClaim %s: %s %s", c.Metadata.Name, got.Reason, got.Message)
			}
		}
		if len(all) != n {
			return fmt.Errorf("there are %d", len(all))
		}
		return nil
	})
}

// created returns how many NodeClaims Karpenter has created since the test began.
func (s *karpenter) created() int {
	s.Helper()
	return len(s.requests(s.since, karpenterUser, "create", "nodeclaims", ""))
}

// deleted returns how many NodeClaims Karpenter has deleted since the test began.
func (s *karpenter) deleted() int {
	s.Helper()
	names := make(map[string]bool)
	for _, event := range s.requests(s.since, karpenterUser, "delete", "nodeclaims", "") {
		names[event.ObjectRef.Name] = true // it may be requested repeatedly
	}
	return len(names)
}

// boundPods returns the names of a workload's pods that are bound to a node.
func (s *karpenter) boundPods(app string) (names []string) {
	s.Helper()
	for _, p := range s.pods(s.Context(), app) {
		if p.Spec.NodeName != "" {
			names = append(names, p.Name)
		}
	}
	return names
}

// awaitDisruption waits until Karpenter has decided n more times which nodes to disrupt.
func (s *karpenter) awaitDisruption(n int) {
	s.Helper()
	first := -1
	s.eventually(fmt.Sprintf("%d rounds of disruption", n), func(ctx context.Context) error {
		rounds, err := s.disruptionRounds(ctx)
		if err != nil {
			return err
		}
		if first < 0 {
			first = rounds
		}
		if rounds < first+n {
			return fmt.Errorf("%d rounds", rounds-first)
		}
		return nil
	})
}

// disruptionRounds returns how often Karpenter has decided which nodes to disrupt.
func (s *karpenter) disruptionRounds(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.metrics, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), disruption) || !strings.Contains(lines.Text(), lastMethod) {
			continue
		}
		fields := strings.Fields(lines.Text())
		rounds, err := strconv.Atoi(fields[len(fields)-1])
		if err != nil {
			return 0, fmt.Errorf("parsing metric %s: %w", disruption, err)
		}
		return rounds, nil
	}
	return 0, errors.New("there is no metric " + disruption)
}

// karpenterRights are the permissions in Karpenter's chart, in fewer rules.
const karpenterRights = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: karpenter, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: karpenter-test}
rules:
- apiGroups: [karpenter.sh, karpenter.kwok.sh, autoscaling.x-k8s.io]
  resources: ["*"]
  verbs: ["*"]
- apiGroups: ["", apps, policy, storage.k8s.io, autoscaling.k8s.io, apiextensions.k8s.io, resource.k8s.io, coordination.k8s.io]
  resources: ["*"]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [nodes, nodes/status, pods, events, pods/eviction]
  verbs: [create, patch, update, delete]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create, patch, update, delete]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: karpenter-test}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: karpenter-test}
subjects: [{kind: ServiceAccount, name: karpenter, namespace: kube-system}]
`
