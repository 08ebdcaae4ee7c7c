// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// medik8s is empty by default, because the module proxy does not serve the module.
var medik8s = flag.String("medik8s", "", "the source directory of medik8s' node-healthcheck-operator, in which its bin/manager was built")

const (
	remediated = "medik8s"
	// remediatedAfter is the duration in the NodeHealthCheck.
	remediatedAfter = 20 * time.Second
)

// A NodeHealthCheck lists the condition of a gate. A node whose gate does not open gets a remediation
// after the deadline of the gate and the duration in the NodeHealthCheck. When the gate opens, the
// condition is removed and the remediation is deleted. Other nodes get none: their gates open before
// the deadline, or after it and before the duration has passed.
func TestNodeHealthCheck(t *testing.T) {
	s := newMedik8s(t)
	s.declareWith(remediated, keyA, readySignal, "deadline: {readySeconds: 10, condition: Publish}")
	inTime, late, never := remediated+"-in-time", remediated+"-late", remediated+"-never"
	s.createNode(inTime, map[string]string{siteLabel: remediated, readyLabel: "true"})
	s.createNode(late, map[string]string{siteLabel: remediated})
	s.awaitDeadlineCondition(late, remediated, true)
	s.setReady(late, true)
	s.awaitDeadlineCondition(late, remediated, false)

	s.createNode(never, map[string]string{siteLabel: remediated})
	published := s.awaitDeadlineCondition(never, remediated, true)
	created := s.awaitRemediations(never).GetCreationTimestamp()
	if due := published.LastTransitionTime.Add(remediatedAfter); created.Time.Before(due) {
		t.Errorf("the remediation was created at %s, want not before %s", created, due)
	}
	if node := s.node(never); !hasTaint(node, keyA) {
		t.Error("the gate is open")
	}
	t.Logf("condition at %s, remediation at %s", published.LastTransitionTime, created)

	s.setReady(never, true)
	s.awaitGate(never, remediated, keyA, false)
	s.awaitDeadlineCondition(never, remediated, false)
	s.awaitRemediations()
	if n := len(s.requests(s.since, medik8sUser, "create", "playedremediations", "")); n != 1 {
		t.Errorf("%d remediations were created", n)
	}
}

const medik8sUser = "system:serviceaccount:medik8s:node-healthcheck-controller-manager"

// newMedik8s returns a site with node-healthcheck-operator and a NodeHealthCheck. The test plays the
// remediator.
func newMedik8s(t *testing.T) *site {
	t.Helper()
	clustertest.SkipIfShort(t)
	clustertest.SkipWithoutMutatingPolicies(t)
	if *medik8s == "" {
		t.Skip("node-healthcheck-operator is not requested: run with -medik8s")
	}
	s := newSiteWithout(t)
	s.neighbour = filepath.Join(*medik8s, "bin/manager")
	s.applyKinds([]string{filepath.Join(*medik8s, "config/crd/bases/remediation.medik8s.io_nodehealthchecks.yaml")})
	role, err := os.ReadFile(filepath.Join(*medik8s, "config/rbac/role.yaml"))
	s.must(err)
	s.apply(string(role))
	s.apply(medik8sObjects)
	s.startMedik8s()
	s.apply(fmt.Sprintf(nodeHealthCheck, siteLabel, remediated, remediatedAfter))
	return s
}

// startMedik8s starts the operator. No webhook is registered, so any certificate suffices for its
// server, which reads it below the directory for temporary files.
func (s *site) startMedik8s() {
	s.Helper()
	temporary := s.TempDir()
	certificates := filepath.Join(temporary, "k8s-webhook-server/serving-certs")
	s.must(os.MkdirAll(certificates, 0o700))
	for name, file := range map[string]string{"tls.crt": "serving.crt", "tls.key": "serving.key"} {
		content, err := os.ReadFile(filepath.Join(s.cluster.Dir(), "pki", file))
		s.must(err)
		s.must(os.WriteFile(filepath.Join(certificates, name), content, 0o600))
	}
	health, _ := s.address()
	s.start([]string{"KUBECONFIG=" + s.kubeconfig("medik8s", "node-healthcheck-controller-manager"), "DEPLOYMENT_NAMESPACE=medik8s", "TMPDIR=" + temporary},
		"--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address="+health)
}

// awaitRemediations waits until these nodes, and no others, have a remediation, and returns the last.
func (s *site) awaitRemediations(nodes ...string) (last *unstructured.Unstructured) {
	s.Helper()
	s.eventually(fmt.Sprintf("remediations of %v", nodes), func(ctx context.Context) error {
		var list unstructured.UnstructuredList
		list.SetAPIVersion("played.medik8s.io/v1")
		list.SetKind("PlayedRemediationList")
		if err := s.client.List(ctx, &list, client.InNamespace("medik8s")); err != nil {
			return err
		}
		names := make([]string, 0, len(list.Items))
		for i := range list.Items {
			last = &list.Items[i]
			names = append(names, last.GetName())
		}
		if !slices.Equal(names, nodes) {
			return errors.New("they are " + fmt.Sprint(names))
		}
		return nil
	})
	return last
}

// The kinds of the remediator that the test plays, and a ClusterRole that the operator aggregates.
const medik8sObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: medik8s}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: node-healthcheck-controller-manager, namespace: medik8s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: medik8s-manager}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: manager-role}
subjects: [{kind: ServiceAccount, name: node-healthcheck-controller-manager, namespace: medik8s}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: played-remediation
  labels: {rbac.ext-remediation/aggregate-to-ext-remediation: "true"}
rules:
- {apiGroups: [played.medik8s.io], resources: ["*"], verbs: [get, list, watch, create, update, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: medik8s-events, namespace: default}
rules:
- {apiGroups: ["", events.k8s.io], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: medik8s-events, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: medik8s-events}
subjects: [{kind: ServiceAccount, name: node-healthcheck-controller-manager, namespace: medik8s}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: playedremediations.played.medik8s.io}
spec:
  group: played.medik8s.io
  scope: Namespaced
  names: {kind: PlayedRemediation, plural: playedremediations}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: playedremediationtemplates.played.medik8s.io}
spec:
  group: played.medik8s.io
  scope: Namespaced
  names: {kind: PlayedRemediationTemplate, plural: playedremediationtemplates}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

const nodeHealthCheck = `
apiVersion: played.medik8s.io/v1
kind: PlayedRemediationTemplate
metadata: {name: played, namespace: medik8s}
spec: {template: {spec: {}}}
---
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata: {name: gates}
spec:
  selector: {matchLabels: {%[1]s: %[2]s}}
  unhealthyConditions:
  - {type: deadline.nodegate.dev/%[2]s, status: "True", duration: %[3]s}
  minHealthy: 50%%
  remediationTemplate: {apiVersion: played.medik8s.io/v1, kind: PlayedRemediationTemplate, name: played, namespace: medik8s}
`
