// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nodegate/nodegate/internal/cli/clitest"
)

// The flags -f and -R select files as in kubectl.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"one.yaml":        clitest.Manifest("one", ""),
		"two.json":        `{"apiVersion":"nodegate.dev/v1alpha1","kind":"NodeGate","metadata":{"name":"two"},"spec":{"nodeSelector":{},"taint":{"key":"example.com/a","effect":"NoSchedule"},"openWhen":[{"name":"l","label":{"key":"l"}}]}}`,
		"notes.txt":       clitest.Manifest("never", ""),
		"deep/three.yml":  clitest.Manifest("three", "") + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
		"again/one.yaml":  clitest.Manifest("one", ""),
		"bad/bad.yaml":    strings.Replace(clitest.Manifest("bad", ""), "NoSchedule", "Never", 1),
		"none/other.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name  string
		files files
		stdin string
		want  string
		err   string
	}{
		{name: "a file", files: files{names: []string{"one.yaml"}}, want: "one"},
		{name: "any file that is named", files: files{names: []string{"notes.txt"}}, want: "never"},
		{name: "a directory", files: files{names: []string{"."}}, want: "one two"},
		{name: "a directory and another", files: files{names: []string{"deep", "one.yaml"}}, want: "three one"},
		{name: "recursively", files: files{names: []string{"deep"}, recursive: true}, want: "three"},
		{name: "standard input", files: files{names: []string{"-"}}, stdin: clitest.Manifest("in", ""), want: "in"},
		{name: "duplicate gate", files: files{names: []string{"one.yaml", "again"}}, err: "gate one is already declared in"},
		{name: "invalid gate", files: files{names: []string{"bad"}}, err: "bad.yaml:1: "},
		{name: "no gate", files: files{names: []string{"none", "none/other.yaml"}}, err: "no NodeGate found in none or none/other.yaml; subdirectories are only read with -R"},
		{name: "no gate, recursively", files: files{names: []string{"none"}, recursive: true}, err: "no NodeGate found in none$"},
		{name: "no file", files: files{names: []string{"missing.yaml"}}, err: "no such file"},
		{name: "nothing on standard input", files: files{names: []string{"-"}}, err: "no NodeGate found in standard input"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Chdir(dir)
			gates, err := test.files.gates(strings.NewReader(test.stdin))
			var names []string
			for _, g := range gates {
				names = append(names, g.Name)
			}
			if got := strings.Join(names, " "); got != test.want {
				t.Errorf("gates are %q, want %q", got, test.want)
			}
			if (err == nil) != (test.err == "") || err != nil && !regexp.MustCompile(test.err).MatchString(err.Error()) {
				t.Errorf("error %v, want %q", err, test.err)
			}
		})
	}
}
