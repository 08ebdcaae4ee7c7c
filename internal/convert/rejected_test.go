// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"strings"
	"testing"
)

// rejection is an input that cannot be converted, and the expected error with its line.
type rejection struct {
	text string
	line int
	want string
}

func checkRejections(t *testing.T, run func(Source) *Result, extension string, cases map[string]rejection) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := run(Source{Name: "input" + extension, Data: []byte(c.text)})
			prefix := fmt.Sprintf("input%s:%d: error: ", extension, c.line)
			if c.line == 0 {
				prefix = fmt.Sprintf("input%s: error: ", extension)
			}
			found := false
			for line := range strings.Lines(findingsText(r)) {
				found = found || strings.HasPrefix(line, prefix) && strings.Contains(line, c.want)
			}
			if !found || r.Gates != nil {
				t.Errorf("want %q with %q and no gates, got %d gates and:\n%s", prefix, c.want, len(r.Gates), findingsText(r))
			}
		})
	}
}

func tainterFile(s Source) *Result { return Tainter(s, TainterOptions{}) }

// matcher returns a matcher of Tainter with one replacement.
func matcher(old, replacement string) string {
	const text = `[[reconciler.matchers]]
taint = { effect = "NoSchedule", key = "example.com/a", value = "b" }

[[reconciler.matchers.conditions]]
type = 'Disk'
status = 'True'
`
	if !strings.Contains(text, old) {
		panic(old)
	}
	return strings.Replace(text, old, replacement, 1)
}

func TestSeedTainterConvertRefuses(t *testing.T) {
	checkRejections(t, tainterFile, ".toml", map[string]rejection{
		"nothing":              {"", 1, `no "reconciler"`},
		"not TOML":             {matcher("taint =", "taint"), 2, "reading TOML"},
		"a duplicate key":      {matcher("type = 'Disk'", "type = 'Disk'\ntype = 'Disk'"), 6, "reading TOML"},
		"no matchers":          {"[reconciler]\n", 1, `no "matchers"`},
		"an empty list":        {"[reconciler]\nmatchers = []\n", 2, "matchers is empty"},
		"not a list":           {"[reconciler.matchers]\n", 1, "not a list"},
		"no taint":             {matcher("taint = { effect = \"NoSchedule\", key = \"example.com/a\", value = \"b\" }", ""), 1, `no "taint"`},
		"unknown key":          {matcher("status =", "statuses ="), 6, `unknown key "statuses", which Tainter ignores`},
		"unknown part":         {matcher("[[reconciler.matchers]]", "[metrics]\nport = 1\n[[reconciler.matchers]]"), 1, `unknown key "metrics"`},
		"unknown server key":   {"[server]\nprot = 1\n" + matcher("Disk", "Disk"), 2, `server has the unknown key "prot"`},
		"unknown effect":       {matcher("NoSchedule", "noschedule"), 2, `"noschedule"`},
		"no key":               {matcher(`key = "example.com/a", `, ""), 2, `no "key"`},
		"an empty key":         {matcher("example.com/a", ""), 2, "key is empty"},
		"an empty value":       {matcher(`"b"`, `""`), 2, "value is empty"},
		"not a string":         {matcher(`"b"`, `1`), 2, `write "1"`},
		"a bad key":            {matcher("example.com/a", "a b"), 1, "taint key must be a qualified name"},
		"a key of core":        {matcher("example.com/a", "node.kubernetes.io/unreachable"), 1, "belong to Kubernetes"},
		"a key of Karpenter":   {matcher("example.com/a", "karpenter.sh/unregistered"), 1, "affects every gate"},
		"a bad value":          {matcher(`"b"`, `"b c"`), 1, "taint value must be"},
		"no conditions":        {"[[reconciler.matchers]]\ntaint = { effect = \"NoSchedule\", key = \"a\", value = \"b\" }\n", 1, `no "conditions"`},
		"an empty conditions":  {"[[reconciler.matchers]]\ntaint = { effect = \"NoSchedule\", key = \"a\", value = \"b\" }\nconditions = []\n", 3, "taints every node of the cluster"},
		"patterns of anything": {matcher("type = 'Disk'\nstatus = 'True'", "type = '.*'\nstatus = ''"), 4, "match every node"},
		"no status":            {matcher("status = 'True'\n", ""), 4, `no "status"`},
		"a bad expression":     {matcher("Disk", "Di(sk"), 5, "gates use RE2, which cannot parse it"},
		"verbose mode":         {matcher("Disk", "(?x) D i s k"), 5, "cannot parse it"},
		"set operations":       {matcher("Disk", "[a-z&&[^b]]"), 5, "set operations"},
		"another value": {matcher("Disk", "Disk") + strings.Replace(matcher(`"b"`, `"c"`), "example.com/a", "example.com/a", 1), 7,
			`the value "c" here and "b" in line 1`},
		"a long pattern":      {matcher("Disk", strings.Repeat("Disk", 200)), 1, "may not be more than 512"},
		"too many conditions": {matcher("Disk", "Disk") + strings.Repeat("[[reconciler.matchers.conditions]]\ntype = '^A$'\nstatus = 'True'\n", 16), 1, "must have at most 16 items"},
	})
	checkRejections(t, tainterFile, ".yaml", map[string]rejection{
		"nothing":         {"", 0, "the input is empty"},
		"not YAML":        {"a: b\nc: d: e\n", 2, "reading YAML"},
		"two documents":   {"reconciler: {matchers: []}\n---\na: 1\n", 3, "one document only"},
		"a duplicate key": {"reconciler:\n  matchers: []\n  matchers: []\n", 3, "twice"},
		"a boolean":       {"reconciler:\n  matchers:\n  - taint: {key: a, value: b, effect: NoSchedule}\n    conditions:\n    - type: Ready\n      status: True\n", 6, `write "True"`},
		"a merge":         {"reconciler: {<<: {}, matchers: []}\n", 1, `unknown key "<<"`},
		"not text":        {"\xff\xfe", 0, "UTF-8"},
		"no mapping":      {"- a\n", 1, "not a mapping"},
		"null conditions": {"reconciler:\n  matchers:\n  - taint: {key: a, value: b, effect: NoSchedule}\n    conditions:\n", 3, `no "conditions"`},
	})
	checkRejections(t, tainterFile, ".ini", map[string]rejection{"ini": {"[a]\n", 0, "--format"}})
	checkRejections(t, tainterFile, ".ron", map[string]rejection{"ron": {"()", 0, "TOML, YAML or JSON"}})
}

func TestSeedIstioConvertRefuses(t *testing.T) {
	checkRejections(t, Istio, ".yaml", map[string]rejection{
		"nothing":                 {"# nothing\n", 0, "the input is empty"},
		"an empty list":           {"[]\n", 0, "names no pods"},
		"another kind":            {"kind: Secret\ndata: {a: b}\n", 1, "neither a ConfigMap nor a list"},
		"no data":                 {"kind: ConfigMap\n", 1, "no data"},
		"not a list":              {"kind: ConfigMap\ndata:\n  config: |\n    a: b\n", 4, "not a list"},
		"bad YAML in a ConfigMap": {"kind: ConfigMap\ndata:\n  config: |\n    - a: b\n    - {\n", 5, "in config: reading YAML"},
		"unknown key":             {"- {name: a, selectors: a=b, namespace: c}\n", 1, `unknown key "selectors"`},
		"every namespace":         {"- name: a\n  selector: a=b\n", 1, "add the namespace"},
		"every pod":               {"- name: a\n  namespace: b\n", 1, "add a selector"},
		"an extra comma":          {"- namespace: b\n  selector: a=b,\n", 2, "remove the comma"},
		"a comma within brackets": {"- namespace: b\n  selector: a in (b,c)\n", 2, "split at commas"},
		"numbers":                 {"- namespace: b\n  selector: a > 1\n", 2, "cannot compare numbers"},
		"a bad namespace":         {"- namespace: B\n  selector: a=b\n", 0, "namespace must be a DNS label"},
		"two documents":           {"- {namespace: b, selector: a=b}\n---\n- {namespace: b, selector: c=d}\n", 3, "one document only"},
		"two in a ConfigMap":      {"kind: ConfigMap\ndata:\n  config: |\n    - {namespace: b, selector: a=b}\n    ---\n    - {namespace: b, selector: c=d}\n", 6, "one document only"},
		"an empty file":           {"kind: ConfigMap\ndata: {config: ''}\n", 0, "names no pods"},
	})
}

func TestSeedNidhoggConvertRefuses(t *testing.T) {
	const daemon = "daemonsets: [{name: a, namespace: b}]\n"
	checkRejections(t, Nidhogg, ".yaml", map[string]rejection{
		"nothing":        {"", 0, "the input is empty"},
		"no selector":    {daemon, 1, "kubectl get daemonset -n b a -o yaml"},
		"another daemon": {daemon + "---\nkind: DaemonSet\nmetadata: {name: a, namespace: c}\n", 1, "never opens on nodes on which the DaemonSet does not run"},
		"no metadata":    {daemon + "---\nkind: DaemonSet\nmetadata: {name: a}\n", 3, "no metadata.namespace"},
		"daemons only":   {"kind: DaemonSet\nmetadata: {name: a, namespace: b}\n", 0, "no configuration of nidhogg"},
		"a bad effect":   {"nodeSelector: {}\ntaintEffect: Evict\n" + daemon, 2, "for which nidhogg uses NoSchedule"},
		"unknown value":  {"configuration:\n  nodeSelector: {}\n  labels: {}\n", 3, `unknown key "labels"`},
		"no nodes":       {daemon + "nodeSelector: []\n", 2, "selects no node"},
		"not a list":     {daemon + "nodeSelector:\n  node-role.kubernetes.io/node\n", 2, "write it as a list"},
		"a bad selector": {daemon + "nodeSelector:\n- a in b\n", 3, "is invalid"},
		"numbers":        {daemon + "nodeSelector: [a > 1]\n", 2, "cannot compare numbers"},
		"no daemonsets":  {"nodeSelector: {}\n", 1, `no "daemonsets"`},
		"an empty list":  {"nodeSelector: {}\ndaemonsets: []\n", 2, "daemonsets is empty"},
		"no namespace":   {"nodeSelector: {}\ndaemonsets:\n- name: a\n", 3, `no "namespace"`},
		"unknown key":    {"nodeSelector: {}\nlabels: {}\n" + daemon, 2, `unknown key "labels"`},
		"a long name":    {"nodeSelector: {}\ndaemonsets: [{name: " + strings.Repeat("a", 70) + ", namespace: b}]\n", 2, "qualified name"},
		"a bad delay":    {"nodeSelector: {}\ntaintRemovalDelayInSeconds: soon\n" + daemon, 2, "number of seconds"},
		"two files":      {"kind: ConfigMap\ndata:\n  a: |\n    nodeSelector: {}\n  b: |\n    nodeSelector: {}\n", 5, "several files"},
		"in a ConfigMap": {"kind: ConfigMap\ndata:\n  a: |\n    nodeSelector: {}\n    demonsets: []\n", 5, `unknown key "demonsets"`},
		"a long delay":   {"nodeSelector: {}\ntaintRemovalDelayInSeconds: 100000\n" + daemon, 2, "openAfterSeconds"},
	})
}

func TestSeedNodeReadinessControllerConvertRefuses(t *testing.T) {
	rule := func(old, replacement string) string {
		const text = `apiVersion: readiness.node.x-k8s.io/v1alpha1
kind: NodeReadinessRule
metadata: {name: a}
spec:
  conditions:
  - {type: A, requiredStatus: "True"}
  taint: {key: readiness.k8s.io/a, effect: NoSchedule}
  enforcementMode: continuous
  nodeSelector: {matchLabels: {a: b}}
`
		if !strings.Contains(text, old) {
			panic(old)
		}
		return strings.Replace(text, old, replacement, 1)
	}
	var longConditions strings.Builder
	for i := range 20 {
		fmt.Fprintf(&longConditions, "  - {type: %s%d, requiredStatus: 'True'}\n", strings.Repeat("A", 300), i)
	}
	unknown := rule("{matchLabels: {a: b}}", "{matchExpressions: [{key: a, operator: Gt, values: ['1']}]}")
	checkRejections(t, NodeReadinessRules, ".yaml", map[string]rejection{
		"nothing":         {"", 0, "the input is empty"},
		"no rule":         {"kind: Pod\n", 0, "no NodeReadinessRule"},
		"another group":   {rule("readiness.node.x-k8s.io", "example.com"), 2, `has the apiVersion "example.com/v1alpha1"`},
		"no kind":         {rule("", "") + "---\n" + rule("kind: NodeReadinessRule\n", ""), 11, "has no kind"},
		"no name":         {rule("name: a", "generateName: a"), 2, "no metadata.name"},
		"unknown field":   {rule("  taint:", "  gracePeriod: 60s\n  taint:"), 7, `unknown key "gracePeriod"`},
		"outside of spec": {rule("spec:", "conditions: []\nspec:"), 4, `unknown key "conditions"`},
		"no conditions":   {rule("  conditions:\n  - {type: A, requiredStatus: \"True\"}\n", ""), 4, "no conditions"},
		"a boolean":       {rule(`"True"`, "True"), 6, `write "True"`},
		"another status":  {rule(`"True"`, `"true"`), 6, `requiredStatus is "true", want True, False or Unknown`},
		"another default": {rule(`"True"`, `"True", defaultStatus: "No"`), 6, `defaultStatus is "No", want True, False or Unknown`},
		"no mode":         {rule("  enforcementMode: continuous\n", ""), 4, `no "enforcementMode"`},
		"another mode":    {rule("continuous", "always"), 8, `"always"`},
		"another effect":  {rule("NoSchedule", "Evict"), 7, `"Evict"`},
		"no taint":        {rule("  taint: {key: readiness.k8s.io/a, effect: NoSchedule}\n", ""), 4, "no taint"},
		"a bad taint key": {rule("readiness.k8s.io/a", "readiness.k8s.io/a/b"), 7, "qualified name"},
		"no selector":     {rule("  nodeSelector: {matchLabels: {a: b}}\n", ""), 4, "no nodeSelector"},
		"a bad selector":  {rule("{matchLabels: {a: b}}", "{matchExpressions: [{key: a, operator: In}]}"), 2, "operators In and NotIn need"},
		"a bad operator":  {unknown, 2, `Unsupported value: "Gt"`},
		"another policy":  {rule("  taint:", "  conditionPolicy: oneOf\n  taint:"), 7, `"oneOf"`},
		"long types":      {rule(`  - {type: A, requiredStatus: "True"}`, longConditions.String()), 5, "divide the rule into several"},
	})
	// The API server also reports that it did not check other rules, and nobody can correct that in the input.
	if r := NodeReadinessRules(Source{Name: "rule", Data: []byte(unknown)}); r.Errors() != 1 {
		t.Errorf("an unsupported operator is %d errors, want 1:\n%s", r.Errors(), findingsText(r))
	}
}

func TestSeedNodetaintshandlerConvertRefuses(t *testing.T) {
	run := func(s Source) *Result { return NodeTaintsHandler(s, "kube-system") }
	deployment := func(env string) string {
		return "kind: Deployment\nspec:\n  template:\n    spec:\n      containers:\n      - name: a\n        env:\n        - " + env + "\n"
	}
	checkRejections(t, run, "", map[string]rejection{
		"unknown variable":   {"A=b\nSTARTUP_BACKFIL=1\n", 2, "STARTUP_BACKFIL is unknown"},
		"not a variable":     {"A=b\nSTARTUP_BACKFILL\n", 2, "NAME=VALUE"},
		"in a Deployment":    {deployment("{name: STARTUP_HOLD, value: '30'}"), 8, "STARTUP_HOLD is unknown"},
		"elsewhere":          {deployment("{name: STARTUP_BACKFILL, valueFrom: {configMapKeyRef: {name: a, key: b}}}"), 8, "not in this file"},
		"in a ConfigMap":     {deployment("{name: A, value: b}\n        envFrom: [{configMapRef: {name: x}}]"), 9, "the variables of envFrom are not in this file"},
		"in a Secret":        {strings.Replace(deployment("{name: A, value: b}"), "env:\n        - {name: A, value: b}", "envFrom:\n        - secretRef: {name: x}", 1), 7, "write STARTUP_BACKFILL in env"},
		"a number":           {deployment("{name: STARTUP_BACKFILL, value: 1}"), 8, `write "1"`},
		"no namespace":       {"kind: DaemonSet\nspec: {template: {metadata: {labels: {startup.k8s.io/component: init}}}}\n", 1, "no metadata.namespace"},
		"not an object":      {"- a\n", 1, "not a mapping"},
		"no separator":       {"apiVersion: v1\nkind: Service\napiVersion: apps/v1\nkind: Deployment\n", 3, "a line with ---"},
		"another kind":       {"kind: Pod\nspec: {containers: [{name: a, env: [{name: STARTUP_BACKFILL, value: '1'}]}]}\n", 0, "neither a Deployment nor"},
		"another DaemonSet":  {"kind: DaemonSet\nmetadata: {namespace: a}\n", 0, "neither a Deployment nor"},
		"another program":    {"services: {}\n", 0, "neither a Deployment nor"},
		"containers no list": {"kind: Deployment\nspec: {template: {spec: {containers: {a: b}}}}\n", 2, "not a list"},
	})
}

// Errors of one line are in a stable order.
func TestReadinessRuleErrorsAreStable(t *testing.T) {
	input := Source{Name: "input.yaml", Data: []byte(`{apiVersion: readiness.node.x-k8s.io/v1alpha1, kind: NodeReadinessRule, metadata: {name: a}, x: 1, y: 1, z: 1,
spec: {nodeSelector: {matchLabels: {a: 1, b: 2, c: 3, d: 4}}}}`)}
	want := findingsText(NodeReadinessRules(input))
	if strings.Count(want, "unknown key") != 3 || strings.Count(want, `write "`) != 4 {
		t.Errorf("the findings are\n%s", want)
	}
	for range 20 {
		if got := findingsText(NodeReadinessRules(input)); got != want {
			t.Fatalf("the findings are\n%sand then\n%s", want, got)
		}
	}
}
