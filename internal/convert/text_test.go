// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd"
)

func TestLabels(t *testing.T) {
	for text, want := range map[string]string{
		"NetworkInterfaceCard": "network-interface-card", "PIDPressure": "pidpressure", "kube-system.kiam": "kube-system-kiam",
		"": "", "...": "", "^(a|b)$": "a-b", "Ünï": "n", "a--b": "a-b", strings.Repeat("a", 70): strings.Repeat("a", 63),
		strings.Repeat("a", 62) + ".b": strings.Repeat("a", 62),
	} {
		if got := label(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// Names are unique DNS labels, and the same in each run.
func TestNamesAreUnique(t *testing.T) {
	dns := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	rapid.Check(t, func(t *rapid.T) {
		asked := rapid.SliceOf(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"a", "a-2", "A", "a 2", strings.Repeat("b", 80), strings.Repeat("b", 81)}))).
			Draw(t, "asked")
		first, second, seen := names{}, names{}, map[string]bool{}
		for _, text := range asked {
			name := first.unique(text)
			if seen[name] || !dns.MatchString(name) || second.unique(text) != name {
				t.Fatalf("%q became %q", text, name)
			}
			seen[name] = true
		}
	})
}

// YAML parsers read a scalar as the original text, for any text.
func TestScalars(t *testing.T) {
	check := func(t tester, text string) {
		for _, style := range []yamlv3.Style{0, yamlv3.FlowStyle} {
			n := mapping(scalar("a"), scalar(text), scalar("b"), scalar("c"))
			n.Style = style
			document, err := yamlv3.Marshal(n)
			var got map[string]any
			if err = errors.Join(err, yaml.Unmarshal(document, &got)); err != nil || got["a"] != text {
				t.Fatalf("%q is written as %s and read as %q (%v)", text, document, got["a"], err)
			}
		}
	}
	for _, text := range []string{
		"", "true", "No", "null", "~", "1", "1e3", ".5", ".inf", "0x1f", "2026-01-01", "a: b", "a #b", "- a", "*a", "&a", "!a", "'", `"`, "a\nb", "\u2028",
		"\u0085", "\ufeff", "é", "日本", "\x00", "[a]", "{a}", "a,b", "100%", "%a", "@a", "`a", "?", "? a", "|", ">", " a ", "=", "<<", "\U0001F600",
	} {
		check(t, text)
	}
	rapid.Check(t, func(t *rapid.T) { check(t, rapid.String().Draw(t, "text")) })
}

// No text can end a comment.
func TestCommentsStayComments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b bytes.Buffer
		comment(&b, rapid.String().Draw(t, "text"))
		for line := range strings.Lines(b.String()) {
			if !strings.HasPrefix(line, "#") || strings.ContainsAny(line, "\r\u0085\u2028\u2029") {
				t.Fatalf("got %q", line)
			}
		}
	})
}

// A simplified gate is valid if and only if the original gate is.
func TestSimplifyKeepsValidity(t *testing.T) {
	word := rapid.OneOf(
		rapid.SampledFrom([]string{
			"", "a", "A", "a.b", "a/b", "example.com/a", "Example.com/a", "node.kubernetes.io/a", v1alpha1.TaintOutOfService, "a b", "-a", "a-", "1", "(",
			"a)|(b", "Ready", "gate.nodegate.dev/a", strings.Repeat("a", 64), strings.Repeat("a", 63), strings.Repeat("b.", 200), "kube-system", "True", "a--b",
			"x/" + strings.Repeat("a", 63), "x/" + strings.Repeat("a", 64), "a1.b2/c3",
		}),
		rapid.StringMatching(`[a-z]{1,8}(\.[a-z]{1,5})?/[a-z-]{1,8}`), rapid.StringMatching(`[A-Za-z0-9.*|()-]{1,12}`),
	)
	rapid.Check(t, func(t *rapid.T) {
		mostly := func(of string, plain ...string) string {
			if rapid.IntRange(0, 9).Draw(t, of+" is odd") == 0 {
				return word.Draw(t, of)
			}
			return rapid.SampledFrom(plain).Draw(t, of)
		}
		g := &v1alpha1.NodeGate{}
		g.Name = mostly("name", "a", "some-name")
		g.Spec.Taint = v1alpha1.Taint{Key: mostly("key", "a", "example.com/a", "node.kubernetes.io/a", "karpenter.sh/unregistered", v1alpha1.TaintOutOfService), Value: mostly("value", "", "v"), Effect: corev1.TaintEffectNoSchedule}
		for i := range rapid.IntRange(1, 3).Draw(t, "signals") {
			s := v1alpha1.Signal{Name: mostly(fmt.Sprint("signal ", i), "a", "b", "c", "d", "e", "f")}
			if rapid.Bool().Draw(t, "daemon") {
				s.DaemonSet = &v1alpha1.DaemonSetSignal{Namespace: mostly("namespace", "a", "kube-system"), Name: mostly("daemonset", "a", "b.c")}
			} else {
				s.Condition = &v1alpha1.ConditionSignal{Type: mostly("type", "Ready", "a.b/c"), StatusPattern: mostly("pattern", "a", "a|b", ".*(?:a).*")}
			}
			g.Spec.CloseWhen = append(g.Spec.CloseWhen, s)
		}
		itself, simple := crd.Validate(g), crd.Validate(simplify(g))
		if (itself == nil) != (simple == nil) {
			t.Fatalf("the rules return %v for the gate, and %v for the simplified one", itself, simple)
		}
	})
}
