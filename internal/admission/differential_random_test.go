// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/webhook"
)

// TestPolicyAndWebhookAgreeOnRandomNodes tests the same as TestPolicyAndWebhookAgree with random gates
// and Nodes.
func TestPolicyAndWebhookAgreeOnRandomNodes(t *testing.T) {
	const sets, nodes = 4, 30
	in, random := installBirth(t), seeded(t)
	allowed, err := gate.ParseAllowedTaints(options.AllowedTaintKeys)
	if err != nil {
		t.Fatal(err)
	}
	closed, partial := 0, 0
	for range sets {
		set := gateset.New(&gateset.Set{}, gateset.Snapshot{Source: v1alpha1.SourceCRD, Gates: randomGates(random), Complete: true}, gate.KeyPolicy{Allowed: allowed})
		in.close(t, slices.DeleteFunc(set.List(), func(ng *v1alpha1.NodeGate) bool { return !set.ClosesAtBirth(ng.Name) })...)
		h := &webhook.Handler{Gates: func() ([]gate.Gate, bool) { return set.AtBirth, true }}
		for range nodes {
			taints, records := in.checkAgreement(t, h, randomNode(random))
			closed += min(taints, 1)
			if taints > 0 && records == 0 {
				partial++
			}
		}
	}
	t.Logf("%d of %d Nodes are closed, %d of them without records", closed, sets*nodes, partial)
	if closed < sets*nodes/10 || partial == 0 {
		t.Error("the generator has become one-sided")
	}
}

// checkAgreement checks that policy and webhook create the same Node, and that each of them
// changes nothing after the other. It returns the numbers of taints that were added and of
// records.
func (in *installation) checkAgreement(t *testing.T, h *webhook.Handler, node *corev1.Node) (taints, records int) {
	t.Helper()
	create := func(node *corev1.Node) *corev1.Node {
		created, err := in.admin.CoreV1().Nodes().Create(t.Context(), node.DeepCopy(), metav1.CreateOptions{DryRun: dryRun})
		if err != nil {
			t.Fatalf("%.1000v", err)
		}
		return created
	}
	partOf := func(created *corev1.Node) born {
		return born{created.Annotations, settled(created.Spec.Taints, len(node.Spec.Taints))}
	}
	byPolicy, byWebhook := create(node), asked(t, h, node)
	for what, pair := range map[string][2]*corev1.Node{
		"policy and webhook":               {byPolicy, byWebhook},
		"the policy, and then the webhook": {byPolicy, asked(t, h, byPolicy)},
		"the webhook, and then the policy": {byWebhook, create(byWebhook)},
	} {
		if diff := cmp.Diff(partOf(pair[0]), partOf(pair[1]), empty); diff != "" {
			t.Errorf("%s differ for %.2000v:\n%.3000s", what, node, diff)
		}
	}
	for key := range byPolicy.Annotations {
		if strings.HasPrefix(key, prefix) {
			records++
		}
	}
	return len(byWebhook.Spec.Taints) - len(node.Spec.Taints), records
}

var gateNames = []string{"a", "0", "a-a", "one", "x--y", strings.Repeat("n", 63), strings.Repeat("9", 62)}

// randomGates returns gates that may share taints, and some of which are not in force.
func randomGates(random *rand.Rand) (all []*v1alpha1.NodeGate) {
	for _, name := range gateNames {
		ng := newGate(name, pick(random, []string{"a", "b", "b", "not-allowed"}), randomSelector(random))
		ng.Spec.Taint.Value = pick(random, []string{"", "", "v", "w.w"})
		if ng.Spec.Taint.Key == taintB.Key && random.IntN(2) == 0 {
			ng.Spec.Taint.Effect = corev1.TaintEffectNoExecute
		}
		ng.CreationTimestamp = metav1.Unix(random.Int64N(3)*3600, 0)
		ng.Spec.OpenWhen = []v1alpha1.Signal{{Name: "s", SignalSource: v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "n", Name: "d"}}}}
		all = append(all, ng)
	}
	return all
}

// randomNode returns a Node that the API server accepts.
func randomNode(random *rand.Rand) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: pick(random, []string{"born", "0.a", strings.Repeat("n", 200)}), Labels: randomLabels(random), Annotations: randomAnnotations(random),
	}}
	if random.IntN(10) == 0 {
		n.Labels[pick(random, []string{v1alpha1.OptOutLabel, v1alpha1.PlainOptOutLabel})] = pick(random, words)
	}
	for range random.IntN(4) {
		taint := corev1.Taint{
			Key:    pick(random, []string{taintA.Key, taintB.Key, foreign.Key, "node.cloudprovider.kubernetes.io/uninitialized"}),
			Effect: corev1.TaintEffect(pick(random, []string{"NoSchedule", "NoExecute", "PreferNoSchedule"})), Value: pick(random, []string{"", "v", "x"}),
		}
		if random.IntN(2) == 0 {
			taint.TimeAdded = &metav1.Time{Time: time.Unix(1, 0)}
		}
		if !slices.ContainsFunc(n.Spec.Taints, func(other corev1.Taint) bool { return other.MatchTaint(&taint) }) {
			n.Spec.Taints = append(n.Spec.Taints, taint)
		}
	}
	n.Status.NodeInfo.BootID = pick(random, []string{"", "", "b", "ü", "x y", strings.Repeat("b", 64), strings.Repeat("b", 65), "a\n"})
	return n
}

// randomAnnotations returns annotations with forged and correct records, which may leave little
// space for others.
func randomAnnotations(random *rand.Rand) map[string]string {
	out := map[string]string{}
	for range random.IntN(5) {
		out[prefix+pick(random, append([]string{"unknown", "Upper", "a.b", "x_y"}, gateNames...))] =
			pick(random, []string{"", "x", `{"state":"Open"}`, recordA, strings.Replace(recordA, taintA.Key, taintB.Key, 1)})
	}
	for range random.IntN(3) {
		out[pick(random, []string{"a", overridePrefix + "one", "gate.nodegate.dev", "gate.nodegate.devx/one", "x.gate.nodegate.dev/a"})] =
			pick(random, []string{"", "ü", "\"\\\n", recordA})
	}
	switch random.IntN(5) {
	case 0:
		size := 256<<10 - len("big") - random.IntN(400)
		for key, value := range out {
			size -= len(key) + len(value)
		}
		out["big"] = strings.Repeat("x", size)
	case 1:
		for i := range 1024 - random.IntN(5) {
			out[fmt.Sprintf("number-%04d", i)] = ""
		}
	}
	return out
}
