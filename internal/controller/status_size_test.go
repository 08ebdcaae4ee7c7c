// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// A gate's status has the same size for every fleet, except for the digits of counts: whatever is wrong
// with nodes, and however many they are, it names few of them.
func TestStatusDoesNotGrowWithTheFleet(t *testing.T) {
	small, large := sizeOfStatus(t, 50), sizeOfStatus(t, 500)
	if small < 1000 || large > small+100 {
		t.Errorf("the status has %d bytes with 50 nodes, and %d with 500; want more than 1000, and at most 100 more", small, large)
	}
}

// sizeOfStatus returns the size of a gate's status if nodes are open, closed, overdue, wait for budget
// or are no members.
func sizeOfStatus(t *testing.T, nodes int) (size int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", func(s *v1alpha1.NodeGateSpec) {
			s.Deadline = &v1alpha1.Deadline{ReadySeconds: new(int32(1))}
		}))
		w.add(nodes, func(i int, n *gate.Node) {
			if i%2 == 0 {
				delete(n.Labels, "fit")
			}
			switch i % 10 {
			case 0, 1: // no members, because they were created before the gate
			case 2:
				n.Created = time.Now()
			case 3:
				n.Conditions = []gate.Condition{{Type: string(corev1.NodeReady), Status: corev1.ConditionUnknown}}
			case 4, 5:
				isOpen(n, "gate")
			case 6:
				n.Records["gate"] = "{"
			default:
				isClosed(n, "gate", v1alpha1.ReasonRegression)
			}
		})
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		status := w.stored("gate").Status
		if n := status.Nodes; n.Overdue == 0 || n.Throttled == 0 || n.NonMembers == 0 || len(status.Waiting) == 0 || len(status.NonMembers) == 0 {
			t.Errorf("the status lacks something: %+v", status)
		}
		encoded, err := json.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		size = len(encoded)
	})
	return size
}
