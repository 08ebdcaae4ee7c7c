// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Two hundred gates have names of maximum length and selectors of eight expressions. Twenty
// of them select each node, which is created with two taints and twenty records. Gates that
// open at the same time cost one write, whether half of them open or all. The status of
// gates of other pools is not written.
func TestManyGates(t *testing.T) {
	const gates, pools = 200, 10
	e := newEnv(t)
	e.startController(0)
	name := func(i int) string { return fmt.Sprintf("%s-%03d", strings.Repeat("g", 59), i) }
	for i := range gates {
		ng := newGate(name(i), []string{keyA, keyB}[i/pools%2], byLabel(fmt.Sprintf("ready-%d", i/pools%2)))
		ng.Spec.NodeSelector.MatchExpressions = eightExpressions(i % pools)
		e.must(e.admin.Create(t.Context(), ng))
	}
	e.eventually("all gates are in the parameter", func() error {
		if closed := len(e.closedAtBirth()); closed < gates {
			return fmt.Errorf("it contains %d gates", closed)
		}
		return nil
	})
	k := e.kubelet("n1")
	e.eventually("a node is created with the records of all gates that select it", func() error {
		born := k.register(func(n *corev1.Node) { n.Labels["pool"] = "p0" })
		if len(records(born)) == gates/pools {
			return agrees(born)
		}
		e.must(e.admin.Delete(t.Context(), born))
		return fmt.Errorf("%d records", len(records(born)))
	})
	done := e.watchAll(agrees)
	k.label("ready-0")
	for i := 0; i < gates; i += 2 * pools {
		k.becomes(name(i), isOpen, keyA)
		e.must(k.is(name(i+pools), isClosed, keyB))
	}
	k.wrote(1)

	other, born := e.registerWith("n2", "pool", "p1")
	if n := len(records(born)); n != gates/pools {
		t.Errorf("the Node was created with %d records, want %d", n, gates/pools)
	}
	for i := range gates { // so that no proof of closing at birth is reported later
		e.inForce(name(i))
	}
	before := e.statusWrites()
	other.patch(`{"metadata":{"labels":{"ready-0":"","ready-1":""}}}`)
	for i := 1; i < gates; i += pools {
		other.becomes(name(i), isOpen, "")
	}
	other.wrote(1)
	e.eventually("the gates count the open node", func() error {
		for i := 1; i < gates; i += pools {
			if n := e.readGate(name(i)).Status.Nodes; n.Open != 1 {
				return fmt.Errorf("%s: %+v", name(i), n)
			}
		}
		return nil
	})
	after := e.statusWrites()
	for i := range gates {
		if n := after[name(i)] - before[name(i)]; n > 0 && i%pools > 1 || n > 3 {
			t.Errorf("the status of %s was written %d times when a node of pool p1 opened", name(i), n)
		}
	}
	done()
}

// statusWrites returns the number of the controller's writes of each gate's status so far.
func (e *env) statusWrites() map[string]int {
	e.Helper()
	writes := make(map[string]int)
	for _, event := range e.loggedSoFar() {
		if event.ObjectRef.Resource == "nodegates" && event.ObjectRef.Subresource == "status" && event.User.Username == installationUser {
			writes[event.ObjectRef.Name]++
		}
	}
	return writes
}

// eightExpressions returns a selector of eight expressions for the nodes of a pool.
func eightExpressions(pool int) []v1alpha1.LabelSelectorRequirement {
	values := func(key string, o metav1.LabelSelectorOperator, v ...string) v1alpha1.LabelSelectorRequirement {
		return v1alpha1.LabelSelectorRequirement{Key: key, Operator: o, Values: v}
	}
	return []v1alpha1.LabelSelectorRequirement{
		values("pool", metav1.LabelSelectorOpIn, fmt.Sprintf("p%d", pool), "all"),
		values("pool", metav1.LabelSelectorOpNotIn, "none", "never"),
		values("pool", metav1.LabelSelectorOpExists),
		values("absent.example.com/one", metav1.LabelSelectorOpDoesNotExist),
		values("absent.example.com/two", metav1.LabelSelectorOpNotIn, "x"),
		values(corev1.LabelOSStable, metav1.LabelSelectorOpIn, "linux"),
		values(corev1.LabelOSStable, metav1.LabelSelectorOpNotIn, "windows"),
		values(corev1.LabelOSStable, metav1.LabelSelectorOpExists),
	}
}
