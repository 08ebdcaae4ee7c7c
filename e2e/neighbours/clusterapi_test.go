// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/testbed"
)

const (
	// publishing and silent are gates with a deadline. Only the first one publishes a condition.
	publishing = "machine-publishing"
	silent     = "machine-silent"

	// unhealthyAfter is the timeout of the MachineHealthCheck. It is longer than the 15 seconds
	// between two rounds of its controller, so that a gate can open after the first one.
	unhealthyAfter = 45 * time.Second

	healthCheckSucceeded = "HealthCheckSucceeded"
	ownerRemediated      = "OwnerRemediated"
)

// A MachineHealthCheck lists the conditions of two gates. A Machine is replaced if its node's gate
// does not open. It stays if the gate opens before the deadline, or after it and before the
// timeout, or if the gate does not publish the condition.
func TestMachineHealthCheck(t *testing.T) {
	s := newClusterAPI(t)
	s.declareWith(publishing, keyA, readySignal, "deadline: {readySeconds: 10, condition: Publish}")
	s.declareWith(silent, keyReadiness, readySignal, "deadline: {readySeconds: 10}")
	s.apply(fmt.Sprintf(capiWorkers, publishing, silent, int(unhealthyAfter.Seconds())))
	names := s.awaitNewMachines(4, nil)
	inTime, late, never, unpublished := names[0], names[1], names[2], names[3]
	s.holdDeletion(never, true) // its conditions are read while it is being deleted
	s.provision(inTime, publishing, map[string]string{readyLabel: "true"})
	s.provision(late, publishing, nil)
	s.provision(never, publishing, nil)
	s.provision(unpublished, silent, nil)
	before := s.machines(t.Context())

	s.awaitGate(inTime, publishing, keyA, false)
	s.awaitDeadlineCondition(late, publishing, true)
	published := s.awaitDeadlineCondition(never, publishing, true)
	s.awaitOverdue(silent)

	// The MachineHealthCheck has seen the condition of this node before its gate opens.
	s.program.awaitLine("Target is likely to go unhealthy", late)
	s.setReady(late, true)
	s.awaitGate(late, publishing, keyA, false)
	s.awaitDeadlineCondition(late, publishing, false)

	s.awaitRemediation(never, published.LastTransitionTime)
	if node := s.node(never); !hasTaint(node, keyA) {
		t.Errorf("the gate on node %s is open", never)
	}
	s.holdDeletion(never, false)
	s.eventually("Cluster API to delete the node", func(ctx context.Context) error {
		if err := s.client.Get(ctx, client.ObjectKey{Name: never}, &corev1.Node{}); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it exists"), err)
		}
		return nil
	})
	replacement := s.awaitNewMachines(1, before)[0]
	s.provision(replacement, publishing, map[string]string{readyLabel: "true"})
	s.awaitGate(replacement, publishing, keyA, false)
	s.awaitHealthy(replacement)

	s.stays(before, inTime, late, unpublished)
	s.written(inTime, 0)
	s.written(unpublished, 0)
	s.written(late, 2)
	if node := s.node(unpublished); !hasTaint(node, keyReadiness) {
		t.Errorf("the gate on node %s is open", unpublished)
	}
}

// awaitOverdue waits until a gate reports that a node has passed its deadline.
func (s *clusterAPI) awaitOverdue(gate string) {
	s.Helper()
	s.eventually(fmt.Sprintf("gate %s to be overdue", gate), func(ctx context.Context) error {
		ng, err := testbed.GetGate(ctx, shared.applier, gate)
		if err == nil && !meta.IsStatusConditionTrue(ng.Status.Conditions, v1alpha1.ConditionOverdue) {
			err = errors.New("it is not")
		}
		return err
	})
}

// awaitRemediation waits until the MachineHealthCheck has marked a Machine because of the gate's
// condition, and its MachineSet has deleted it. The order is that of their timestamps.
func (s *clusterAPI) awaitRemediation(name string, published metav1.Time) {
	s.Helper()
	m := s.awaitMachine("deleted", name, func(m *machine) error {
		if m.Metadata.DeletionTimestamp == nil {
			return fmt.Errorf("it is not: %+v", meta.FindStatusCondition(m.Status.Conditions, healthCheckSucceeded))
		}
		return nil
	})
	health := meta.FindStatusCondition(m.Status.Conditions, healthCheckSucceeded)
	if health == nil || health.Status != metav1.ConditionFalse || !strings.Contains(health.Message, "deadline.nodegate.dev/"+publishing) {
		s.Fatalf("Machine %s has the condition %+v", name, health)
	}
	if owner := meta.FindStatusCondition(m.Status.Conditions, ownerRemediated); owner == nil || owner.Status != metav1.ConditionFalse {
		s.Errorf("Machine %s has the condition %+v", name, owner)
	}
	if due := published.Add(unhealthyAfter); health.LastTransitionTime.Time.Before(due) || m.Metadata.DeletionTimestamp.Before(&health.LastTransitionTime) {
		s.Errorf("Machine %s was unhealthy from %s and deleted at %s, want not before %s", name, health.LastTransitionTime, m.Metadata.DeletionTimestamp, due)
	}
	s.Logf("Machine %s: %s: %s", name, health.Reason, health.Message)
}

// awaitHealthy waits until the MachineHealthCheck considers a Machine healthy, and returns it.
func (s *clusterAPI) awaitHealthy(name string) machine {
	s.Helper()
	return s.awaitMachine("healthy", name, func(m *machine) error {
		if !meta.IsStatusConditionTrue(m.Status.Conditions, healthCheckSucceeded) {
			return fmt.Errorf("its conditions are %+v", m.Status.Conditions)
		}
		return nil
	})
}

// stays checks that Machines are the same as before, and that nothing has marked them.
func (s *clusterAPI) stays(before map[string]machine, names ...string) {
	s.Helper()
	for _, name := range names {
		m := s.awaitHealthy(name)
		if m.Metadata.UID != before[name].Metadata.UID || m.Metadata.DeletionTimestamp != nil {
			s.Errorf("Machine %s was replaced: %+v", name, m.Metadata)
		}
		if c := meta.FindStatusCondition(m.Status.Conditions, ownerRemediated); c != nil {
			s.Errorf("Machine %s has the condition %+v", name, c)
		}
	}
	if deleted := s.requests(s.since, capiWorkloadUser, "delete", "nodes", ""); len(deleted) != 1 {
		s.Errorf("Cluster API has deleted %d nodes, want 1", len(deleted))
	}
}

// written checks how often nodegate has written the conditions of a node.
func (s *clusterAPI) written(node string, want int) {
	s.Helper()
	got := 0
	for _, event := range s.requests(s.since, shared.installation.Username(), "patch", "nodes", "status") {
		if event.ObjectRef.Name == node {
			got++
		}
	}
	if got != want {
		s.Errorf("nodegate has written the conditions of node %s %d times, want %d", node, got, want)
	}
}

// One of four Machines is more than the 20% in docs/guides/remediation.md. Without the startup
// timeout, a Machine is likely to become unhealthy only because of a gate's condition.
const capiWorkers = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineSet
metadata: {name: workers, namespace: default}
spec:
  clusterName: workload
  replicas: 4
  selector: {matchLabels: {nodepool: workers}}
  template:
    metadata: {labels: {nodepool: workers}}
    spec:
      clusterName: workload
      bootstrap: {dataSecretName: none}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: PlayedMachineTemplate, name: workload}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {name: gates, namespace: default}
spec:
  clusterName: workload
  selector: {matchLabels: {nodepool: workers}}
  checks:
    nodeStartupTimeoutSeconds: 0
    unhealthyNodeConditions:
    - {type: deadline.nodegate.dev/%[1]s, status: "True", timeoutSeconds: %[3]d}
    - {type: deadline.nodegate.dev/%[2]s, status: "True", timeoutSeconds: %[3]d}
  remediation:
    triggerIf: {unhealthyLessThanOrEqualTo: 50%%}
`
