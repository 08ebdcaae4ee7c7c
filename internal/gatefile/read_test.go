// SPDX-License-Identifier: Apache-2.0

package gatefile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// spec returns the spec of a gate with this taint.
func spec(taint string) string {
	return "{nodeSelector: {}, taint: " + taint + ", openWhen: [{name: agent, daemonSet: {namespace: kube-system, name: agent}}]}"
}

const someTaint = "{key: example.com/a, effect: NoSchedule}"

// one returns a gate with this name, in one line.
func one(name, taint string) string {
	return "{apiVersion: nodegate.dev/v1alpha1, kind: NodeGate, metadata: {name: " + name + "}, spec: " + spec(taint) + "}\n"
}

// object returns YAML as JSON, in one line.
func object(t *testing.T, text string) string {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// directory returns a new directory with these files.
func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		write(t, dir, name, content)
	}
	return dir
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestGates(t *testing.T) {
	a, b, c := one("a", someTaint), one("b", someTaint), one("c", someTaint)
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a file":                        {map[string]string{"x.yaml": a}, "a"},
		"files, by the gates' names":    {map[string]string{"1.yaml": c, "2.yml": a, "3.json": b}, "a b c"},
		"documents":                     {map[string]string{"x.yaml": a + "---\n" + b + "---\n" + c}, "a b c"},
		"a document on the separator":   {map[string]string{"x.yaml": "--- " + a + "--- # of b\n" + b}, "a b"},
		"tabs after separators":         {map[string]string{"x.yaml": "---\t" + a + "---\t# of b\n" + b + "---\t\n" + c}, "a b c"},
		"empty documents and comments":  {map[string]string{"x.yaml": "# gates\n---\n---\n" + a + "---\n# the end\n---"}, "a"},
		"carriage returns":              {map[string]string{"x.yaml": strings.ReplaceAll(a+"---\n"+b, "\n", "\r\n")}, "a b"},
		"a separator within a text":     {map[string]string{"x.yaml": strings.TrimSuffix(a, "}\n") + ", status: {conditions: [{message: '---x'}]}}"}, "a"},
		"documents that end":            {map[string]string{"x.yaml": a + "...\n" + b + "... # of b\n---\n" + c + "...\n"}, "a b c"},
		"JSON objects, one a line":      {map[string]string{"x.json": object(t, a) + "\n" + object(t, b) + "\n\n" + object(t, c)}, "a b c"},
		"JSON objects in one line":      {map[string]string{"x.json": object(t, a) + object(t, b) + " " + object(t, c)}, "a b c"},
		"JSON objects, and YAML":        {map[string]string{"x.yaml": object(t, a) + " # a\n---\n# b\n" + object(t, b) + "\n---\n" + c}, "a b c"},
		"a list, as kubectl prints it":  {map[string]string{"x.json": "{apiVersion: v1, kind: List, items: [" + a + "," + b + "]}"}, "a b"},
		"a list of the kind":            {map[string]string{"x.yaml": "{apiVersion: nodegate.dev/v1alpha1, kind: NodeGateList, metadata: {}, items: [" + a + "]}"}, "a"},
		"no gates":                      {map[string]string{"x.yaml": noGates}, ""},
		"no gates, among others":        {map[string]string{"x.yaml": noGates, "y.yaml": a}, "a"},
		"other files":                   {map[string]string{"x.yaml": a, ".y.yaml": "?", "README.md": "?", "z.yaml~": "?"}, "a"},
		"one taint of several gates":    {map[string]string{"x.yaml": a, "y.yaml": b}, "a b"},
		"one key, two values, effects":  {map[string]string{"x.yaml": a, "y.yaml": one("b", "{key: example.com/a, value: v, effect: PreferNoSchedule}")}, "a b"},
		"as the API server returned it": {map[string]string{"x.yaml": strings.Replace(a, "{name: a}", "{name: a, uid: u, generation: 7, resourceVersion: '1', creationTimestamp: '2026-01-01T00:00:00Z'}", 1)}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			gates, err := readDirectory(directory(t, test.files)).gates()
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range gates {
				if g.Spec.Timing.RolloutGraceSeconds == nil {
					t.Errorf("gate %s has no defaults", g.Name)
				}
			}
			if got := nameList(gates); got != test.want {
				t.Errorf("gates %q, want %q", got, test.want)
			}
		})
	}
}

// block returns a list with a gate in block style.
func block(name string) string {
	return "apiVersion: v1\nkind: List\nitems:\n- apiVersion: nodegate.dev/v1alpha1\n  kind: NodeGate\n  metadata: {name: " + name + "}\n  spec: " + spec(someTaint) + "\n"
}

// The error contains all problems with their places, and no gates are returned.
func TestGatesRefuses(t *testing.T) {
	a := one("a", someTaint)
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"nothing":              {nil, []string{"no file has the extension .yaml or .yml or .json", "kind: NodeGateList, items: []"}},
		"other files only":     {map[string]string{"gates.txt": a}, []string{"no file has the extension"}},
		"an empty file":        {map[string]string{"x.yaml": ""}, []string{"x.yaml: the file is empty"}},
		"null only":            {map[string]string{"x.yaml": "null\n"}, []string{"x.yaml:1: the document is empty"}},
		"comments only":        {map[string]string{"x.yaml": "# gates\n---\n"}, []string{"x.yaml: the file is empty"}},
		"a good and a bad one": {map[string]string{"good.yaml": a, "bad.yaml": "\nkind: [\n"}, []string{"bad.yaml:2: ", "line 2"}},
		"invalid YAML, with its line": {
			map[string]string{"x.yaml": a + "---\n# b\n" + "apiVersion: nodegate.dev/v1alpha1\n  kind: NodeGate\n"}, []string{"x.yaml:4: ", "line 5"}},
		"another kind": {map[string]string{"x.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"}, []string{"x.yaml:1: ", "set apiVersion: nodegate.dev/v1alpha1 and kind: NodeGate"}},
		"JSON objects, one of them bad": {map[string]string{"x.json": object(t, a) + "\n" + object(t, a) + "\n{\n\"kind\": \"Pod\"}"},
			[]string{"x.json:2: gate a is already declared in x.json:1", "x.json:3: the document is not a NodeGate"}},
		"text after a JSON object": {map[string]string{"x.json": object(t, a) + "\n}"}, []string{"x.json:2: "}},
		"text after a document":    {map[string]string{"x.yaml": "# gates\n" + a + a}, []string{"x.yaml:2: ", "write --- between documents"}},
		"text after a list":        {map[string]string{"x.yaml": noGates + "\n" + a}, []string{"x.yaml:1: ", "write --- between documents"}},
		"a document that ends, and a bad one": {map[string]string{"x.yaml": a + "...\n" + strings.Replace(a, "kind", "kin", 1)},
			[]string{"x.yaml:3: the document is not a NodeGate"}},
		"an unknown field": {map[string]string{"x.yaml": "\n\n" + strings.Replace(a, "openWhen", "opensWhen", 1)}, []string{"x.yaml:3: ", `unknown field "spec.opensWhen"`}},
		"a field twice":    {map[string]string{"x.yaml": strings.Replace(a, "kind: NodeGate", "kind: NodeGate, kind: NodeGate", 1)}, []string{"x.yaml:1: ", "kind"}},
		"a broken rule":    {map[string]string{"x.yaml": one("a", "{key: node.kubernetes.io/mine, effect: NoSchedule}")}, []string{"x.yaml:1: ", "spec.taint.key", "node.kubernetes.io/"}},
		"several mistakes": {map[string]string{"x.yaml": one("A", someTaint) + "---\n" + one("b", "{key: a, effect: Never}"), "y.yaml": "?"},
			[]string{"x.yaml:1: ", "x.yaml:3: ", "y.yaml:1: "}},
		"a name twice in a file": {map[string]string{"x.yaml": a + "---\n" + a}, []string{"x.yaml:3: gate a is already declared in x.yaml:1"}},
		"a name in two files":    {map[string]string{"x.yaml": a, "y.yaml": a}, []string{"y.yaml:1: gate a is already declared in x.yaml:1"}},
		"a name in two places":   {map[string]string{"x.yaml": a, "y.json": "{apiVersion: v1, kind: List, items: [" + a + "]}"}, []string{"y.json:1: items[0]: gate a is already declared in x.yaml:1"}},
		"two values of one key": {map[string]string{"x.yaml": one("a", "{key: k, value: v, effect: NoSchedule}"), "y.yaml": one("b", "{key: k, effect: NoSchedule}")},
			[]string{"y.yaml:1: gate b and gate a (x.yaml:1) have the taint k:NoSchedule with different values"}},
		"two values of one key, one of them for later": {map[string]string{"x.yaml": one("a", "{key: k, value: v, effect: NoSchedule}"),
			"y.yaml": one("b", "{key: l, effect: NoSchedule}, recloseTaint: {key: k, effect: NoSchedule}")},
			[]string{"y.yaml:1: gate b and gate a (x.yaml:1) have the taint k:NoSchedule with different values"}},
		"two values of one key, both for later": {map[string]string{"x.yaml": one("a", "{key: m, effect: NoSchedule}, recloseTaint: {key: k, value: v, effect: NoSchedule}"),
			"y.yaml": one("b", "{key: l, effect: NoSchedule}, recloseTaint: {key: k, effect: NoSchedule}")},
			[]string{"y.yaml:1: gate b and gate a (x.yaml:1) have the taint k:NoSchedule with different values"}},
		"two values of one key in a gate": {map[string]string{"x.yaml": one("a", "{key: k, effect: NoSchedule}, recloseTaint: {key: k, value: v, effect: NoSchedule}")},
			[]string{"x.yaml:1: ", "spec.recloseTaint.value", "in more than its value"}},
		"a recloseTaint of Kubernetes' own": {map[string]string{"x.yaml": one("a", "{key: k, effect: NoSchedule}, recloseTaint: {key: node.kubernetes.io/not-ready, effect: NoSchedule}")},
			[]string{"x.yaml:1: ", "spec.recloseTaint.key", "belong to Kubernetes"}},
		"a list without items":      {map[string]string{"x.yaml": "{apiVersion: nodegate.dev/v1alpha1, kind: NodeGateList}"}, []string{"x.yaml:1: the list has no items", "items: []"}},
		"lists without a separator": {map[string]string{"x.yaml": block("a") + block("b")}, []string{"x.yaml:1: ", `mapping key "items" already defined`}},
		"a field of an item twice": {map[string]string{"x.yaml": strings.Replace(block("a"), "  kind: NodeGate\n", "  kind: NodeGate\n  kind: NodeGate\n", 1)},
			[]string{"x.yaml:1: ", `mapping key "kind" already defined`}},
		"another object in a list": {map[string]string{"x.yaml": "{apiVersion: v1, kind: List, items: [" + a + ", {apiVersion: v1, kind: Pod}]}"}, []string{"x.yaml:1: items[1]: "}},
		"a bad item":               {map[string]string{"x.yaml": "{apiVersion: v1, kind: List, items: [" + a + ", {kind: Pod}]}"}, []string{"x.yaml:1: items[1]: "}},
	} {
		t.Run(name, func(t *testing.T) {
			gates, err := readDirectory(directory(t, test.files)).gates()
			if err == nil || gates != nil {
				t.Fatalf("gates %v, error %v", gates, err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not contain %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestDirectoryThatCannotBeRead(t *testing.T) {
	dir := directory(t, map[string]string{"x.yaml": one("a", someTaint)})
	if err := os.Symlink("gone.yaml", filepath.Join(dir, "y.yaml")); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"missing": filepath.Join(dir, "none"), "a file": filepath.Join(dir, "x.yaml"), "a link to nothing": dir} {
		if gates, err := readDirectory(path).gates(); err == nil || gates != nil {
			t.Errorf("%s: gates %v, error %v", name, gates, err)
		}
	}
}

// The ConfigMap and the list in the documentation of gate files are valid.
func TestExamples(t *testing.T) {
	page, err := os.ReadFile("../../docs/from-istio.md")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, block := range strings.Split(string(page), "```yaml\n")[1:] {
		example, _, _ := strings.Cut(block, "```")
		var object struct {
			Kind string            `json:"kind"`
			Data map[string]string `json:"data"`
		}
		if err := yaml.Unmarshal([]byte(example), &object); err != nil {
			t.Fatal(err)
		}
		switch {
		case object.Kind == "NodeGateList":
			object.Data = map[string]string{"none.yaml": example}
		case object.Kind != "ConfigMap" || object.Data["config"] != "": // an example of Istio's configuration
			continue
		}
		if _, err := readDirectory(directory(t, object.Data)).gates(); err != nil {
			t.Error(err)
		}
		read++
	}
	if read != 2 {
		t.Errorf("%d examples, want the ConfigMap and the empty list", read)
	}
}

// Declared ignores other kinds in a stream.
func TestDeclared(t *testing.T) {
	const declares = "apiVersion: nodegate.dev/v1alpha1\nkind: NodeGate\nmetadata: {name: %s}\nspec:\n  nodeSelector: {}\n" +
		"  taint: {key: example.com/%[1]s, effect: NoSchedule}\n  openWhen: [{name: l, label: {key: l}}]\n"
	one, two := fmt.Sprintf(declares, "one"), fmt.Sprintf(declares, "two")
	for _, test := range []struct {
		name, content string
		want          string
		err           string
	}{
		{name: "gates among others", content: one + "---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: agent}\n---\n# nothing\n---\n" + two, want: "one two"},
		{name: "a list", content: "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(one), "\n", "\n  "), want: "one"},
		{name: "a gate after another object", content: "apiVersion: v1\nkind: ConfigMap\n...\n" + one, want: "one"},
		{name: "JSON objects", content: `{"apiVersion":"v1","kind":"ConfigMap"}` + "\n" + object(t, one) + "\n" + object(t, two), want: "one two"},
		{name: "text after another object", content: "{apiVersion: v1, kind: ConfigMap}\n{apiVersion: v1, kind: ConfigMap}\n", err: "f:1: "},
		{name: "a gate and another object without a separator", content: one + "apiVersion: v1\nkind: ConfigMap\n", err: `mapping key "kind" already defined`},
		{name: "other objects in a list", content: "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}, " + object(t, one) + ", {apiVersion: apps/v1, kind: DaemonSet}]}", want: "one"},
		{name: "another object that overrides what it merges", content: "apiVersion: v1\nkind: ConfigMap\nx: &base {a: '1', b: '2'}\ndata: {<<: *base, b: '3'}\n---\n" + one, want: "one"},
		{name: "only other objects in a list", content: "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ConfigMap}]}", want: ""},
		{name: "an item without a kind", content: "{apiVersion: v1, kind: List, items: [{apiVersion: v1}, " + object(t, one) + "]}", want: "one", err: "f:1: items[0]: "},
		{name: "another object in a list of gates", content: "{apiVersion: nodegate.dev/v1alpha1, kind: NodeGateList, items: [{apiVersion: v1, kind: ConfigMap}]}", err: "f:1: items[0]: "},
		{name: "documents without an object", content: "null\n---\n" + one + "---\n~\n---\nnull # two\n---\n" + two, want: "one two"},
		{name: "no gate", content: "apiVersion: v1\nkind: ConfigMap\n", want: ""},
		{name: "a broken rule", content: one + "---\n" + strings.Replace(two, "NoSchedule", "NoExecute", 1), want: "one", err: "f:9: "},
		{name: "no kind", content: "spec: {}\n", err: "f:1: "},
		{name: "not YAML", content: "a: [\n", err: "f:1: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			gates, err := Declared("f", []byte(test.content))
			var names []string
			for _, g := range gates {
				names = append(names, g.Name)
				if g.Spec.Mode != v1alpha1.ModeEnforce {
					t.Errorf("gate %s has no defaults: %+v", g.Name, g.Spec)
				}
			}
			if got := strings.Join(names, " "); got != test.want {
				t.Errorf("gates %q, want %q", got, test.want)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
		})
	}
}
