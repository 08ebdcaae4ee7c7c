// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const matcher = `[[reconciler.matchers]]
taint = { effect = "NoSchedule", key = "example.com/disk", value = "bad" }
conditions = [{ type = "DiskPressure", status = "True" }]
`

// convertCommand runs 'nodegate convert' within the test.
func convertCommand(stdin string, args ...string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	root := newRoot()
	root.SetArgs(append([]string{"convert"}, args...))
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&errs)
	err = root.Execute()
	return out.String(), errs.String(), err
}

// Gates are printed to standard output. Differences are reported there in comments, and on
// standard error.
func TestConvert(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tainter.toml")
	if err := os.WriteFile(path, []byte(matcher), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		stdin  string
		args   []string
		stdout []string
		stderr []string
	}{
		"a file":    {"", []string{"tainter", path}, []string{"kind: NodeGate", "# - \"DiskPressure=True\"", ".*DiskPressure.*"}, []string{path + ":3: note: ", "reopen: Manual"}},
		"as whole":  {"", []string{"tainter", "--anchor", path}, []string{"type: DiskPressure"}, []string{"--anchor"}},
		"the input": {matcher, []string{"tainter", "-"}, []string{"# stdin:1", "kind: NodeGate"}, []string{"stdin:3: note: "}},
		"a format": {`{"reconciler": {"matchers": [{"taint": {"key": "a", "value": "b", "effect": "NoSchedule"}, "conditions": [{"type": "^A$", "status": "^B$"}]}]}}`,
			[]string{"tainter", "--format=json", "-"}, []string{"kind: NodeGate"}, []string{"stdin: note: "}},
		"istio":   {"- {name: a, namespace: b, selector: 'c=d, e=f'}", []string{"istio", "-"}, []string{"NodeReadiness", "OnRegression"}, []string{"stdin:1: note: "}},
		"nidhogg": {"{daemonsets: [{name: a, namespace: b}], nodeSelector: {}}", []string{"nidhogg", "-"}, []string{"nidhogg.uswitch.com/b.a"}, []string{"stdin: note: "}},
		"rules": {"{apiVersion: readiness.node.x-k8s.io/v1alpha1, kind: NodeReadinessRule, metadata: {name: a}, spec: {conditions: [{type: A, requiredStatus: 'True'}], " +
			"taint: {key: readiness.k8s.io/a, effect: NoSchedule}, enforcementMode: bootstrap-only, nodeSelector: {}}}",
			[]string{"node-readiness-controller", "-"}, []string{"reclosePolicy: Never"}, []string{"stdin: note: "}},
		"another namespace": {"", []string{"nodetaintshandler", "--init-namespace=warm-up"}, []string{"namespace: warm-up"}, []string{"in namespace warm-up only", "--init-namespace"}},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, err := convertCommand(test.stdin, test.args...)
			if err != nil {
				t.Fatal(err, stderr)
			}
			for _, part := range test.stdout {
				if !strings.Contains(stdout, part) {
					t.Errorf("no %q in:\n%s", part, stdout)
				}
			}
			for _, part := range test.stderr {
				if !strings.Contains(stderr, part) {
					t.Errorf("no %q in:\n%s", part, stderr)
				}
			}
		})
	}
}

const initDaemonSet = "kind: DaemonSet\nmetadata: {name: init, namespace: warm-up}\nspec: {template: {metadata: {labels: {startup.k8s.io/component: init}}}}\n"

// The namespace that a manifest specifies counts. The note mentions --init-namespace only where the
// flag has an effect.
func TestConvertInitNamespaceOfManifests(t *testing.T) {
	for _, args := range [][]string{{"nodetaintshandler", "-"}, {"nodetaintshandler", "--init-namespace=warm-up", "-"}} {
		stdout, stderr, err := convertCommand(initDaemonSet, args...)
		if err != nil || !strings.Contains(stdout, "namespace: warm-up") || !strings.Contains(stderr, "in namespace warm-up only") {
			t.Errorf("%v: %v\n%s\n%s", args, err, stdout, stderr)
		}
		if strings.Contains(stdout+stderr, "--init-namespace") {
			t.Errorf("%v: --init-namespace has no effect, but is mentioned:\n%s", args, stderr)
		}
	}
}

// If meaning would be lost, no gates are printed.
func TestConvertRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		stdin string
		args  []string
		want  string // in standard error or in the error
	}{
		"an empty list of conditions": {strings.Replace(matcher, `[{ type = "DiskPressure", status = "True" }]`, "[]", 1), []string{"tainter", "-"}, "stdin:3: error: without conditions"},
		"one error":                   {strings.Replace(matcher, `[{ type = "DiskPressure", status = "True" }]`, "[]", 1), []string{"tainter", "-"}, "stdin was not converted: fix the errors above, and run the command again"},
		"one of two":                  {matcher + strings.Replace(matcher, "status", "state", 1), []string{"tainter", "-"}, "stdin:6: error: "},
		"no file":                     {"", []string{"tainter", "/nowhere/x.toml"}, "/nowhere/x.toml"},
		"no argument":                 {"", []string{"istio"}, "takes one FILE"},
		"unknown format":              {matcher, []string{"tainter", "--format=ini", "-"}, "--format"},
		"another namespace":           {initDaemonSet, []string{"nodetaintshandler", "--init-namespace=other", "-"}, `stdin: error: --init-namespace is "other", but the initialization DaemonSets of the input run in namespace warm-up`},
		"the default namespace":       {initDaemonSet, []string{"nodetaintshandler", "--init-namespace=kube-system", "-"}, `--init-namespace is "kube-system"`},
		"one of two namespaces":       {initDaemonSet + "---\n" + strings.Replace(initDaemonSet, "warm-up", "other", 1), []string{"nodetaintshandler", "--init-namespace=other", "-"}, "namespace other and warm-up: omit the flag"},
		"an unknown tool":             {"", []string{"cilium"}, "use one of istio, nidhogg"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, err := convertCommand(test.stdin, test.args...)
			if err == nil || stdout != "" {
				t.Fatalf("error %v, printed %q", err, stdout)
			}
			if all := stderr + err.Error(); !strings.Contains(all, test.want) {
				t.Errorf("no %q in:\n%s", test.want, all)
			}
		})
	}
}

func TestConvertHelp(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}} {
		stdout, _, err := convertCommand("", args...)
		for _, tool := range []string{"tainter", "istio", "nidhogg", "node-readiness-controller", "nodetaintshandler", "Examples:"} {
			if err != nil || !strings.Contains(stdout, tool) {
				t.Errorf("%v: no %q in:\n%s", args, tool, stdout)
			}
		}
	}
}
