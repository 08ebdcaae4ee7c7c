// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Features and feature requests of zhangchl007/nodetaintshandler; see
// docs/from-nodetaintshandler.md. Its defects are in
// seed_nodetaintshandler_defects_test.go.

// readyBy specifies whether the pod's annotation, its Ready condition or either of them counts.
// In nodetaintshandler it is always either; to require the annotation was requested.
func TestSeedNodetaintshandlerReadyBy(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("init")
	all := []v1alpha1.ReadyBy{v1alpha1.ReadyByCondition, v1alpha1.ReadyByAnnotation, v1alpha1.ReadyByEither}
	name := func(by v1alpha1.ReadyBy) string { return strings.ToLower(string(by)) }
	for _, by := range all {
		e.declare(on(newGate(name(by), keyA, initPods("init", by)), "by", name(by)))
	}
	nodeWith := func(by v1alpha1.ReadyBy, suffix string, ready, annotated bool) (*kubelet, *corev1.Pod) {
		k, node := e.registerWith(name(by)+suffix, "by", name(by))
		if !hasTaint(node, keyA) {
			t.Errorf("node %s was created without the taint", k.name)
		}
		pod := k.daemonPod(ds)
		k.run(pod, ready)
		if annotated {
			k.annotate(pod, true)
		}
		return k, pod
	}
	for by, c := range map[v1alpha1.ReadyBy]struct {
		ready, annotated v1alpha1.ReadingReason // why the gate is closed although the pod has only this property; empty if it opens
	}{
		v1alpha1.ReadyByCondition:  {annotated: v1alpha1.ReadingPodNotReady},
		v1alpha1.ReadyByAnnotation: {ready: v1alpha1.ReadingPodNotAnnotated},
		v1alpha1.ReadyByEither:     {},
	} {
		readyOnly, pod := nodeWith(by, "-ready", true, false)
		annotatedOnly, other := nodeWith(by, "-annotated", false, true)
		for k, reason := range map[*kubelet]v1alpha1.ReadingReason{readyOnly: c.ready, annotatedOnly: c.annotated} {
			if reason != "" {
				e.waitsFor(name(by), k.name, reason)
				e.must(k.is(name(by), isClosed, keyA))
			}
		}
		readyOnly.annotate(pod, true)
		annotatedOnly.run(other, true)
		readyOnly.becomes(name(by), isOpen, keyA)
		annotatedOnly.becomes(name(by), isOpen, keyA)
		readyOnly.wrote(1)
	}
}

// A requested feature: a minimum time for the taint. A restart in between makes no difference.
func TestSeedNodetaintshandlerMinimumHold(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ds := e.daemonSet("init")
	ng := newGate("init", keyA, initPods("init", v1alpha1.ReadyByCondition))
	ng.Spec.Timing.MinClosedSeconds = 3600
	e.declare(ng)
	k := e.registered("n1")[0]
	k.run(k.daemonPod(ds), true)
	k.opensAfterAnHour("init", v1alpha1.ReadingMinClosed, stop)
}

// The time of opening is stored in the same patch. nodetaintshandler stores it with one PUT of
// the whole Node.
func TestSeedNodetaintshandlerCompletionStamp(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ds := e.daemonSet("init")
	ng := newGate("init", keyA, initPods("init", v1alpha1.ReadyByCondition))
	ng.Spec.OpenedAtAnnotation = stampKey
	e.declare(ng)
	stamp := func(k *kubelet) int64 {
		t.Helper()
		at, err := strconv.ParseInt(k.node().Annotations[stampKey], 10, 64)
		e.must(err)
		return at
	}
	before := time.Now().Unix()
	k := e.registered("n1")[0]
	if _, stamped := k.node().Annotations[stampKey]; stamped {
		t.Error("the node was created with the stamp")
	}
	pod := k.daemonPod(ds)
	k.run(pod, true)
	k.becomes("init", isOpen, keyA)
	first := stamp(k)
	if first < before || first > time.Now().Unix() {
		t.Errorf("the stamp is %d, want between %d and now", first, before)
	}
	if writes := k.nodeWrites(); len(writes) != 1 || !strings.Contains(writes[0], "completedAt") || !strings.Contains(writes[0], "gate.nodegate.dev") {
		t.Errorf("taint, record and stamp were written by %v, want one write", writes)
	}

	// It remains when the gate closes, until the gate opens again.
	k.reboot()
	k.becomes("init", isClosed, keyA)
	if stamp(k) != first {
		t.Error("closing the gate changed the stamp")
	}
	stop()
	e.startController(time.Hour)
	k.run(pod, true)
	k.becomes("init", isOpen, keyA)
	if again := stamp(k); again < first+3000 {
		t.Errorf("the second stamp is %d, %d seconds after the first, want about an hour", again, again-first)
	}
}

// A gate with a stamp annotation that the administrator has not allowed works, without the
// stamp.
func TestSeedNodetaintshandlerStampNotAllowed(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := newGate("init", keyA, byLabel("ready"))
	ng.Spec.OpenedAtAnnotation = "example.com/anything"
	e.declare(ng)
	e.must(e.condition("init", v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonStampNotAllowed))
	k := e.kubelet("n1")
	if !hasTaint(k.register(), keyA) {
		t.Error("the node was created without the taint")
	}
	k.label("ready")
	k.becomes("init", isOpen, keyA)
	if _, stamped := k.node().Annotations["example.com/anything"]; stamped {
		t.Error("the node has the stamp although it is not allowed")
	}
}

// The selector can exclude system pools of AKS. nodetaintshandler hard-codes their label, and
// considers it only in its webhook.
func TestSeedNodetaintshandlerSkipByLabel(t *testing.T) {
	const mode = "kubernetes.azure.com/mode"
	e := newEnv(t)
	e.startController(0)
	notSystem := newGate("not-system", keyA, byLabel("ready"))
	notSystem.Spec.NodeSelector.MatchExpressions = []v1alpha1.LabelSelectorRequirement{{Key: mode, Operator: metav1.LabelSelectorOpNotIn, Values: []v1alpha1.LabelValue{"system"}}}
	unlabelled := newGate("unlabelled", keyB, byLabel("ready"))
	unlabelled.Spec.NodeSelector.MatchExpressions = []v1alpha1.LabelSelectorRequirement{{Key: mode, Operator: metav1.LabelSelectorOpDoesNotExist}}
	e.declare(notSystem)
	e.declare(unlabelled)
	plain := e.kubelet("plain")
	_, user := e.registerWith("user", mode, "user")
	systemKubelet, system := e.registerWith("system", mode, "system")
	for _, c := range []struct {
		node *corev1.Node
		a, b bool
	}{{plain.register(), true, true}, {user, true, false}, {system, false, false}} {
		if a, b := hasTaint(c.node, keyA), hasTaint(c.node, keyB); a != c.a || b != c.b {
			t.Errorf("node %s was created with taints %s", c.node.Name, keys(c.node))
		}
	}
	plain.label("ready")
	plain.becomes("not-system", isOpen, keyA) // by then, the controller has reconciled the other nodes
	e.must(systemKubelet.is("not-system", isNone, keyA))
}

// A requested feature, two phases: two gates, and the daemon of the second one tolerates only
// the second taint. The real DaemonSet controller and scheduler ensure the order.
func TestSeedNodetaintshandlerTwoPhases(t *testing.T) {
	w := newSchedulingEnv(t)
	w.startController(0)
	tolerating := func(name string, keys ...string) *appsv1.DaemonSet {
		ds := w.daemonSet(name)
		w.edit(ds, func() {
			ds.Spec.Template.Spec.Tolerations = nil
			for _, key := range keys {
				ds.Spec.Template.Spec.Tolerations = append(ds.Spec.Template.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
			}
		})
		return ds
	}
	preinit, warming := tolerating("preinit", keyA, keyB), tolerating("warming", keyB)
	w.declare(newGate("preinit", keyA, byDaemonSet("preinit")))
	w.declare(newGate("warming", keyB, byDaemonSet("warming")))
	w.createWork(3)
	k := w.schedulableNode("n1")
	first := w.daemonRuns(preinit, "n1", "")
	w.waitsFor("warming", "n1", v1alpha1.ReadingPodMissing)
	w.must(k.is("preinit", isClosed, keyA))
	w.must(w.runContainers(t.Context(), first, true))
	k.becomes("preinit", isOpen, keyA)
	second := w.daemonRuns(warming, "n1", "")
	w.must(k.is("warming", isClosed, keyB))
	w.must(w.runContainers(t.Context(), second, true))
	w.awaitWorkBound()
	k.becomes("warming", isOpen, keyB)
	k.wrote(2)
	if early := w.boundTooEarly("n1"); len(early) > 0 {
		t.Errorf("pods %v were bound before the second gate opened", early)
	}
}

// existingNodes: Adopt does not change existing nodes. They become members once their init pod
// is ready.
func TestSeedNodetaintshandlerAdopt(t *testing.T) {
	e := newEnv(t)
	e.startController(time.Hour) // no node is new
	ds := e.daemonSet("init")
	nodes := e.registered("fit", "unfit")
	fit, unfit := nodes[0], nodes[1]
	pod := fit.daemonPod(ds)
	fit.run(pod, true)
	unfit.run(unfit.daemonPod(ds), false)
	ng := newGate("init", keyA, initPods("init", v1alpha1.ReadyByCondition))
	ng.Spec.ExistingNodes, ng.Spec.OpenedAtAnnotation = v1alpha1.ExistingAdopt, stampKey
	tainted := e.watchFor(func(n *corev1.Node) bool { return strings.HasSuffix(n.Name, "fit") && hasTaint(n, keyA) })
	e.declare(ng)
	fit.becomes("init", isOpen, keyA)
	e.settled()
	e.must(unfit.is("init", isNone, keyA))
	if n := tainted(); n > 0 {
		t.Errorf("nodes had the taint in %d states", n)
	}
	if _, stamped := fit.node().Annotations[stampKey]; stamped {
		t.Error("the adopted node has the stamp although its gate was never closed")
	}
	fit.reboot() // a member like any other
	fit.becomes("init", isClosed, keyA)
}

// Requested features: one JSON log line for each transition, with gate, node and reason, and
// metrics.
func TestSeedNodetaintshandlerLogsAndMetrics(t *testing.T) {
	e := newEnv(t)
	told, _ := e.startObserved()
	ds := e.daemonSet("init")
	e.declare(newGate("init", keyA, initPods("init", v1alpha1.ReadyByCondition)))
	k := e.registered("n1")[0]
	pod := k.daemonPod(ds)
	k.run(pod, true)
	k.becomes("init", isOpen, keyA)
	for range 5 {
		k.report(corev1.ConditionTrue, "")
	}
	k.reboot()
	k.becomes("init", isClosed, keyA)
	e.settled()

	for message, reason := range map[string]v1alpha1.Reason{"gate opened": v1alpha1.ReasonSignalsHold, "gate closed": v1alpha1.ReasonRebooted} {
		lines := slices.DeleteFunc(told.lines(e, message), func(line map[string]any) bool { return line["gate"] != "init" })
		if len(lines) != 1 || lines[0]["node"] != "n1" || lines[0]["reason"] != string(reason) || lines[0]["level"] != "info" {
			t.Errorf("%s: %v", message, lines)
		}
	}
	for _, c := range []struct {
		metric string
		labels []string
		want   float64
	}{
		{"nodegate_opens_total", []string{"init", "SignalsHold"}, 1},
		{"nodegate_closes_total", []string{"init", "Rebooted"}, 1},
		{"nodegate_time_to_open_seconds", []string{"init"}, 1},
		{"nodegate_gate_nodes", []string{"init", "closed"}, 1},
		{"nodegate_birth_closing_proved", []string{"init"}, 1},
	} {
		e.shows(told.registry, c.metric, c.want, c.labels...)
	}
}

// The manifests in docs/from-nodetaintshandler.md are valid.
func TestSeedNodetaintshandlerPageApplies(t *testing.T) {
	e := newEnv(t)
	page, err := os.ReadFile("../docs/from-nodetaintshandler.md")
	e.must(err)
	applied := map[string]int{}
	for _, block := range strings.Split(string(page), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(block), 4096)
		for {
			var object unstructured.Unstructured
			if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if err := e.admin.Create(t.Context(), &object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
				t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
			}
			applied[object.GetKind()]++
		}
	}
	if applied["NodeGate"] != 3 || applied["DaemonSet"] != 1 {
		t.Errorf("the page contains %v, want 3 NodeGates and 1 DaemonSet", applied)
	}
}
