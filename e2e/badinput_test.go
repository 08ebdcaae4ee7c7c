// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// The API server rejects expressions that are empty, too long or too deeply nested. nodegate
// reports all other errors of expressions, with position, cause and remedy.
func TestBadExpressions(t *testing.T) {
	e := newEnv(t)
	for name, text := range map[string]string{
		"empty": "", "too long": "true" + strings.Repeat(" ", 4096), "64 KiB": "true" + strings.Repeat(" && true", 8<<10),
		"a mebibyte": strings.Repeat("1", 1<<20), "many brackets": strings.Repeat("(", 300) + "true" + strings.Repeat(")", 300),
	} {
		err := e.admin.Create(e.Context(), newGate("bad", keyA, byExpression(text)))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.openWhen[0]") {
			t.Errorf("%s: %.300v", name, err)
		}
	}
	e.startController(0)
	for name, c := range map[string]struct{ text, want string }{
		"syntax":        {"labels.a ==", "line 1, column 12: Syntax error"},
		"type":          {`labels["a"]`, "it must return bool, but returns string"},
		"unknown-field": {"true &&\n nodeInfo.kernel == ''", "line 2, column 10: undefined field 'kernel'"},
		"no-function":   {`labels["größe"] == "" || now() > created`, "line 1, column 29: undeclared reference to 'now'"},
		"cost":          {"labels.all(a, labels.all(b, labels.all(c, a != b)))", "it may cost too much: "},
		"depth":         {strings.Repeat("1+", 50) + "1 == 1", "it nests more than 40 levels deep"},
		"unnamed":       {`annotations[labels.a] == ""`, "line 1, column 1: the keys of annotations must be named literally"},
	} {
		e.must(e.admin.Create(e.Context(), newGate(name, keyA, byExpression(c.text))))
		e.eventually("gate "+name+" reports the error", func() error {
			return e.messageContains(name, v1alpha1.ConditionAccepted, "compiling signal signal: ")
		})
		e.must(e.condition(name, v1alpha1.ConditionAccepted, "False", v1alpha1.ReasonInvalidSpec))
		for _, want := range []string{c.want, "correct or delete the gate"} {
			e.must(e.messageContains(name, v1alpha1.ConditionAccepted, want))
		}
		e.must(e.condition(name, v1alpha1.ConditionReady, "False", v1alpha1.ReasonNotAccepted))
	}
	k := e.registered("n1")[0]
	e.settled()
	if node := k.node(); hasTaint(node, keyA) {
		t.Errorf("gates that are not accepted closed a node, which has %s", keys(node))
	}
	k.wrote(0)
}

// An evaluation that exceeds its cost limit has no result: the gate does not change, and
// reports it.
func TestExpressionExceedsCostLimit(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	doubles := `["x"]` + strings.Repeat(".map(a, a"+strings.Repeat(" + a", 31)+")", 4) + ".size() == 1" // builds a string of 2^20 letters
	e.declare(newGate("doubles", keyA, byExpression(doubles)))
	e.declare(newGate("digits", keyB, byExpression(`quantity("1e2000000000").isGreaterThan(quantity("1"))`)))
	k := e.registered("n1")[0]
	e.waitsFor("doubles", "n1", v1alpha1.ReadingExpressionFailed)
	e.waitsFor("digits", "n1", v1alpha1.ReadingExpressionFailed)
	e.must(k.is("doubles", isClosed, keyA))
	if w := e.waitingMessage("doubles", "n1"); !strings.Contains(w.Message, "cost limit exceeded") {
		t.Errorf("the message is %q", w.Message)
	}
}

// A gate is edited to an expression that cannot be compiled, and back.
func TestGateEditedToInvalid(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ng := e.declare(newGate("cel", keyA, byExpression(`"fit" in labels`)))
	all := e.registered("held", "open", "leaves")
	held, open, leaves := all[0], all[1], all[2]
	open.label("fit")
	open.becomes("cel", isOpen, keyA)
	held.becomes("cel", isClosed, keyA)
	leaves.becomes("cel", isClosed, keyA)

	e.edit(ng, func() {
		ng.Spec.OpenWhen[0].Expression = "label.fit"
		ng.Spec.NodeSelector.MatchExpressions = []v1alpha1.LabelSelectorRequirement{{Key: "outside", Operator: "DoesNotExist"}}
	})
	e.isInvalid("cel")
	e.waitsFor("cel", "held", v1alpha1.ReadingInvalidSpec)
	// The gate is not in the birth parameter, so the API server does not close it on new nodes.
	e.eventually("a node is created without the taint", func() error {
		probe := e.kubelet("probe")
		node := probe.newNode()
		e.must(probe.api.Create(e.Context(), node, client.DryRunAll))
		return unless(!hasTaint(node, keyA))
	})
	born := e.registered("born")[0]
	// It changes no state, even with a controller that has never observed the valid gate.
	stop()
	metrics, _ := e.startWithMetrics()
	e.shows(metrics, "nodegate_gate_condition", 0, "cel", v1alpha1.ConditionAccepted)
	e.shows(metrics, "nodegate_gate_nodes", 2, "cel", "closed")
	open.reboot()
	held.label("fit")
	e.settled()
	e.must(open.is("cel", isOpen, keyA))
	e.must(held.is("cel", isClosed, keyA))
	e.must(born.is("cel", isNone, keyA))
	// The gate is removed from a node that it no longer selects.
	leaves.label("outside")
	leaves.becomes("cel", isNone, keyA)
	// After the edit is reverted, the gate reacts to everything that has changed since.
	e.edit(ng, func() { ng.Spec.OpenWhen[0].Expression = `"fit" in labels` })
	e.inForce("cel")
	held.becomes("cel", isOpen, keyA)
	born.becomes("cel", isClosed, keyA)
	// An invalid gate is deleted, which opens it.
	e.edit(ng, func() { ng.Spec.OpenWhen[0].Expression = "1" })
	e.isInvalid("cel")
	e.must(born.is("cel", isClosed, keyA))
	e.must(e.admin.Delete(e.Context(), ng))
	born.becomes("cel", isNone, keyA)
}

// The same for a gate from a file, whose errors are in the log and in a metric.
func TestFileGateEditedToInvalid(t *testing.T) {
	e := newEnvWithoutCRD(t)
	files := e.gateFiles()
	ng, other := newGate("cel", keyA, byExpression(`"fit" in labels`)), newGate("other", keyB, byLabel("fit"))
	files.declares(ng, other)
	metrics, _ := files.startController()
	e.shows(metrics, "nodegate_gate_condition", 1, "cel", v1alpha1.ConditionReady)
	held := e.registered("held")[0]
	held.becomes("cel", isClosed, keyA)
	ng.Spec.OpenWhen[0].Expression = "label.fit"
	files.declares(ng, other)
	e.shows(metrics, "nodegate_gate_condition", 0, "cel", v1alpha1.ConditionAccepted)
	e.shows(metrics, "nodegate_gates_complete", 1) // the gate can be read, although it is invalid
	held.label("fit")
	held.becomes("other", isOpen, keyB) // the label has been observed
	e.must(held.is("cel", isClosed, keyA))
	ng.Spec.OpenWhen[0].Expression = `"fit" in labels`
	files.declares(ng, other)
	held.becomes("cel", isOpen, keyA)

	// A gate that violates a rule of the CRD makes the directory incomplete, and the last known
	// gates remain in effect.
	born := e.registered("born")[0]
	born.becomes("cel", isClosed, keyA)
	ng.Spec.Budget.MaxReclosed = percent("101%")
	files.declares(ng, other)
	e.shows(metrics, "nodegate_gates_complete", 0)
	e.must(born.is("cel", isClosed, keyA))
	born.label("fit")
	born.becomes("cel", isOpen, keyA)
}

// A number outside the range of the Go type is rejected. If it were stored, no client could
// decode the list of gates.
func TestNumbersOutOfRange(t *testing.T) {
	e := newEnv(t)
	for at, body := range map[string]string{
		"spec.budget.maxReclosed":           `"budget":{"maxReclosed":4294967296}`,
		"spec.timing.openAfterSeconds":      `"timing":{"openAfterSeconds":4294967296}`,
		"spec.deadline.readySeconds":        `"deadline":{"readySeconds":-1}`,
		"spec.openWhen[1].resource.atLeast": `"openWhen":[{"name":"a","label":{"key":"a"}},{"name":"b","resource":{"name":"b","atLeast":"1e2000000000"}}]`,
	} {
		object := &unstructured.Unstructured{}
		e.must(object.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":"nodegate.dev/v1alpha1","kind":"NodeGate","metadata":{"name":"big"},
			"spec":{"nodeSelector":{},"taint":{"key":%q,"effect":"NoSchedule"},"openWhen":[{"name":"a","label":{"key":"a"}}],%s}}`, keyA, body)))
		if err := e.admin.Create(e.Context(), object); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), at) {
			t.Errorf("%s: %v", body, err)
		}
	}
	e.must(e.admin.List(e.Context(), &v1alpha1.NodeGateList{}))
}

// A daemonSets signal selects hundreds of DaemonSets. The API server serves one watch of
// their pods, and the gate opens when the last pod is ready.
func TestHundredsOfDaemonSets(t *testing.T) {
	e := newEnv(t)
	const many = 200
	sets := make([]*appsv1.DaemonSet, many)
	for i := range sets {
		sets[i] = e.daemonSet(fmt.Sprintf("d%03d", i))
	}
	start := time.Now()
	e.startController(0)
	e.declare(newGate("all", keyA, v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{daemonNamespace}}}))
	watches := 0
	e.eventually("the pods of the DaemonSets are watched", func() error {
		watches = e.openWatches("pods", start)
		return unless(watches > 0)
	})
	if watches > 2 {
		t.Errorf("the controller has %d watches of pods for %d DaemonSets", watches, many)
	}
	k := e.registered("n1")[0]
	var last *corev1.Pod
	for _, ds := range sets {
		last = k.daemonPod(ds)
		if ds != sets[many-1] {
			k.run(last, true)
		}
	}
	e.waitsFor("all", "n1", v1alpha1.ReadingPodNotReady)
	e.must(k.is("all", isClosed, keyA))
	k.run(last, true)
	k.becomes("all", isOpen, keyA)
	k.wrote(1)
	// Another DaemonSet gets a watch of its own, and the node stays open.
	e.daemonSet("one-more")
	e.eventually("the pods of the new DaemonSet are watched", func() error {
		if n := e.openWatches("pods", start); n != 2 {
			return fmt.Errorf("%d watches", n)
		}
		return nil
	})
	e.inForce("all")
	e.must(k.is("all", isOpen, keyA))
	k.wrote(1)
}
