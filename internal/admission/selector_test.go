// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
)

// seedVariable is the environment variable whose value repeats a run.
const seedVariable = "NODEGATE_TEST_SEED"

// TestSelectorEquivalence compares the policy's evaluation of selectors with that of
// Kubernetes' own code: nodes with random labels are created while many gates with random
// selectors are in force. A node's records show which gates selected it.
func TestSelectorEquivalence(t *testing.T) {
	const gates, nodes = 50, 120
	in := installBirth(t)
	random := seeded(t)

	selectors := map[string]labels.Selector{}
	var all []*v1alpha1.NodeGate
	for i := range gates {
		gate := newGate(fmt.Sprintf("gate-%d", i), "a", randomSelector(random))
		selector, err := gate.Spec.NodeSelector.AsSelector()
		if err != nil {
			t.Fatal(err)
		}
		selectors[gate.Name] = selector
		all = append(all, gate)
	}
	in.close(t, all...)

	selected := 0
	for range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "random", Labels: randomLabels(random)}}
		created, err := in.admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{DryRun: dryRun})
		if err != nil {
			t.Fatalf("labels %v: %v", node.Labels, err)
		}
		for name, selector := range selectors {
			_, got := created.Annotations[prefix+name]
			want := selector.Matches(labels.Set(created.Labels))
			if got != want {
				t.Errorf("selector %q, labels %v: selected by the API server: %v, by Kubernetes' selector: %v", selector, node.Labels, got, want)
			}
			if want {
				selected++
			}
		}
	}
	t.Logf("%d of %d pairs are selected", selected, gates*nodes)
	if pairs := gates * nodes; selected < pairs/10 || selected > pairs*9/10 {
		t.Errorf("%d of %d pairs are selected: the generator has become one-sided", selected, pairs)
	}
}

// seeded returns a generator, and logs the seed that repeats it.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("reading $%s: %v", seedVariable, err)
		}
	}
	t.Logf("seed: %s=%d", seedVariable, seed)
	return rand.New(rand.NewPCG(seed, seed))
}

// Keys and values of labels and selectors: few, so that they often match, and similar,
// so that comparing prefixes or trimmed strings is detected.
var (
	keys = []string{
		"a", "A", "aa", "a.b", "a_b", "example.com/a", "example.com/A", "node-role.kubernetes.io/worker", "test.example/" + strings.Repeat("k", 63),
	}
	words = []string{"", "a", "A", "aa", "a.b", "0", "true", "In", "Exists", strings.Repeat("v", 63)}
)

func pick(random *rand.Rand, words []string) string { return words[random.IntN(len(words))] }

func randomLabels(random *rand.Rand) map[string]string {
	out := map[string]string{}
	for range random.IntN(8) {
		out[pick(random, keys)] = pick(random, words)
	}
	return out
}

// randomSelector returns a selector, which in most cases selects some nodes and not
// others.
func randomSelector(random *rand.Rand) metav1.LabelSelector {
	out := metav1.LabelSelector{MatchLabels: map[string]string{}}
	if random.IntN(8) == 0 {
		out.MatchLabels[pick(random, keys)] = pick(random, words)
	}
	operators := []metav1.LabelSelectorOperator{
		metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
	}
	for range random.IntN(4) {
		r := metav1.LabelSelectorRequirement{Key: pick(random, keys), Operator: operators[random.IntN(len(operators))]}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			for range 1 + random.IntN(6) {
				r.Values = append(r.Values, pick(random, words))
			}
		}
		out.MatchExpressions = append(out.MatchExpressions, r)
	}
	return out
}

func TestEntrySelectsNodes(t *testing.T) {
	expression := func(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	tests := map[string]struct {
		selector metav1.LabelSelector
		want     string
		wantErr  string
	}{
		"everything":     {want: ""},
		"labels, sorted": {selector: metav1.LabelSelector{MatchLabels: map[string]string{"b": "2", "a": "1"}}, want: "a In [1]; b In [2]"},
		"values, sorted": {selector: expression("pool", "In", "tpu", "gpu", "tpu"), want: "pool In [gpu tpu]"},
		"empty value":    {selector: expression("pool", "NotIn", ""), want: "pool NotIn []"},
		"exists":         {selector: expression("example.com/pool", "Exists"), want: "example.com/pool Exists"},
		"does not exist": {selector: expression("pool", "DoesNotExist"), want: "pool DoesNotExist"},
		"duplicates":     {selector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "1"}, MatchExpressions: expression("a", "In", "1").MatchExpressions}, want: "a In [1]"},
		"bad operator":   {selector: expression("pool", "Equals", "x"), wantErr: `"Equals" is not a valid label selector operator`},
		"no values":      {selector: expression("pool", "In"), wantErr: "values"},
		"a bad key":      {selector: expression("po ol", "Exists"), wantErr: "name part must consist of"},
		"a bad value":    {selector: expression("pool", "In", "a,b"), wantErr: "a valid label must be"},
		"excess values":  {selector: expression("pool", "Exists", "a"), wantErr: "values set must be empty"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			entry, err := admission.NewEntry(newGate("one", "a", test.selector))
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("error %v, want one with %q", err, test.wantErr)
				}
				return
			}
			var got []string
			for _, r := range entry.Nodes {
				text := r.Key + " " + string(r.Operator)
				if r.Values != nil {
					text += fmt.Sprint(" ", r.Values)
				}
				got = append(got, text)
			}
			if err != nil || strings.Join(got, "; ") != test.want {
				t.Errorf("got %q and error %v, want %q", got, err, test.want)
			}
		})
	}
}
