// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

func expressed(text string) v1alpha1.SignalSource { return v1alpha1.SignalSource{Expression: text} }

func TestExpression(t *testing.T) {
	const (
		subject = "the expression"
		failed  = v1alpha1.ReadingExpressionFailed
	)
	node := func(change func(n *gate.Node)) *world { return aNode(func(w *world) { change(&w.facts.Node) }) }
	warm := func(value string) *world {
		return node(func(n *gate.Node) { n.Annotations = map[string]string{"example.com/warm": value} })
	}
	gpus := func(count string) *world {
		return node(func(n *gate.Node) {
			n.Allocatable = map[string]apiresource.Quantity{"example.com/gpu": apiresource.MustParse(count)}
		})
	}
	check(t, mustCompile(t, expressed(`int(annotations["example.com/warm"]) >= 40`)), map[string]reads{
		"annotation: holds":        {warm("42"), gate.Holds, matches, subject},
		"annotation: not yet":      {warm("3"), gate.NotYet, differs, subject},
		"annotation: missing":      {aNode(), gate.Unknown, failed, "no such key: example.com/warm"},
		"annotation: not a number": {warm("a lot"), gate.Unknown, failed, `type conversion error from 'string' to 'int': "a lot"`},
	})
	check(t, mustCompile(t, expressed(`allocatable[?"example.com/gpu"].orValue(quantity("0")).compareTo(quantity("8")) >= 0`)), map[string]reads{
		"resource: holds":   {gpus("8"), gate.Holds, matches, subject},
		"resource: not yet": {gpus("7"), gate.NotYet, differs, subject},
		"resource: missing": {aNode(), gate.NotYet, differs, subject},
	})
	check(t, mustCompile(t, expressed(`conditions.exists(c, c.type == "Net" && c.status == "True")`)), map[string]reads{
		"condition: holds":   {conditions(cond("Net", "True")), gate.Holds, matches, subject},
		"condition: not yet": {conditions(cond("Net", "False")), gate.NotYet, differs, subject},
		"condition: missing": {aNode(), gate.NotYet, differs, subject},
	})
	check(t, mustCompile(t, expressed(`taints.size() == 0`)), map[string]reads{
		"its own taint does not count": {aNode(), gate.Holds, matches, subject},
		"another taint counts":         {aNode(tainted("other", corev1.TaintEffectNoSchedule)), gate.NotYet, differs, subject},
	})
	check(t, mustCompile(t, expressed(`nodeInfo.kernelVersion.startsWith("6.")`)), map[string]reads{
		"nodeInfo: holds":   {node(func(n *gate.Node) { n.Info = map[string]string{"kernelVersion": "6.1"} }), gate.Holds, matches, subject},
		"nodeInfo: unknown": {aNode(), gate.Unknown, failed, "no such field: kernelVersion"},
	})
}

func TestExpressionNeeds(t *testing.T) {
	s := mustCompile(t, expressed(`annotations["a"] == "" && "r" in allocatable && nodeInfo.osImage != ""`))
	n := s.Needs(nil)
	if !slices.Equal(n.Annotations, []string{"a"}) || !slices.Equal(n.Resources, []string{"r"}) || !slices.Equal(n.NodeInfo, []string{"osImage"}) {
		t.Errorf("needs = %+v", n)
	}
	if n.Heartbeats || s.ProvesBoot() {
		t.Error("an expression needs heartbeats or proves a boot")
	}
}

// If an expression cannot be compiled, the error contains the signal, the position and
// the cause. The gate has no signals, but keeps control of the nodes that it closed.
func TestExpressionThatDoesNotCompile(t *testing.T) {
	source := expressed("labels.pool ==\n  lable.pool")
	for name, c := range map[string]struct {
		spec v1alpha1.NodeGateSpec
		says string
	}{
		"openWhen":  {v1alpha1.NodeGateSpec{OpenWhen: []v1alpha1.Signal{{Name: "pool", SignalSource: source}}}, "compiling signal pool: "},
		"closeWhen": {v1alpha1.NodeGateSpec{CloseWhen: []v1alpha1.Signal{{Name: "pool", SignalSource: source}}}, "compiling signal pool: "},
		"anyOf": {v1alpha1.NodeGateSpec{OpenWhen: []v1alpha1.Signal{{Name: "any", AnyOf: []v1alpha1.NamedSource{
			{Name: "fine", SignalSource: expressed("true")}, {Name: "pool", SignalSource: source},
		}}}}, "compiling signal any: compiling alternative pool: "},
	} {
		t.Run(name, func(t *testing.T) {
			ng := &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: "g"}, Spec: c.spec}
			g, err := Compile(ng, v1alpha1.SourceCRD)
			want := c.says + "compiling its expression: line 2, column 3: undeclared reference to 'lable'"
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %v\nwant %s", err, want)
			}
			if len(g.Signals) > 0 || g.Broken || g.Selector == nil || g.CloseWhen != (name == "closeWhen") {
				t.Errorf("gate %+v", g)
			}
		})
	}
}

// An expression in anyOf that cannot be evaluated does not affect the other
// alternatives.
func TestExpressionInAnyOf(t *testing.T) {
	s, err := newAnyOf([]v1alpha1.NamedSource{
		{Name: "zone", SignalSource: expressed(`labels["zone"] == "a"`)},
		{Name: "pool", SignalSource: expressed(`labels[?"pool"].orValue("") == "gpu"`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	none := v1alpha1.ReadingNoneHolds
	check(t, s, map[string]reads{
		"the other holds": {aNode(), gate.Holds, matches, "the expression"},
		"the other does not": {aNode(func(w *world) { w.facts.Node.Labels = nil }), gate.Unknown, none,
			"zone: the expression could not be evaluated on this node: no such key: zone; pool: the expression does not match"},
	})
}

// The guide's expressions have the documented results.
func TestGuideToExpressions(t *testing.T) {
	page, err := os.ReadFile("../../docs/guides/expressions.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(page)) {
		if text, is := strings.CutPrefix(strings.TrimSpace(line), "expression: "); is {
			found++
			mustCompile(t, expressed(text))
		}
	}
	if found == 0 {
		t.Error("the guide has no example")
	}
}

// TestExpressionRevealsAnnotations tests what docs/security/threat-model.md says: the message of
// an expression that fails can contain a value from the Node.
func TestExpressionRevealsAnnotations(t *testing.T) {
	secret := aNode(func(w *world) { w.facts.Node.Annotations = map[string]string{"example.com/a": "s3cret"} })
	check(t, mustCompile(t, expressed(`{"a": true}[annotations["example.com/a"]]`)), map[string]reads{
		"an annotation is in the message": {secret, gate.Unknown, v1alpha1.ReadingExpressionFailed, "no such key: s3cret"},
	})
}
