// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd"
)

var update = flag.Bool("update", false, "write the golden files")

// tools contains the conversion of each folder of testdata.
var tools = map[string]func(Source) *Result{
	"tainter": func(s Source) *Result {
		return Tainter(s, TainterOptions{Anchor: strings.HasPrefix(s.Name, "anchor")})
	},
	"istio":                     Istio,
	"nidhogg":                   Nidhogg,
	"node-readiness-controller": NodeReadinessRules,
	"nodetaintshandler":         func(s Source) *Result { return NodeTaintsHandler(s, "") },
}

// inputs returns the golden cases of a tool.
func inputs(t testing.TB, tool string) []Source {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", tool, "*"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no test data of %s (%v)", tool, err)
	}
	var all []Source
	for _, path := range paths {
		if strings.HasSuffix(path, ".gates") || strings.HasSuffix(path, ".findings") {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Source{Name: filepath.Base(path), Data: data})
	}
	return all
}

// TestGolden converts all of testdata, and compares gates and findings.
func TestGolden(t *testing.T) {
	for tool, run := range tools {
		for _, source := range inputs(t, tool) {
			name := tool + "/" + source.Name
			t.Run(name, func(t *testing.T) {
				r := run(source)
				golden(t, name+".findings", findingsText(r))
				golden(t, name+".gates", yamlOf(t, r))
				checkGates(t, r)
			})
		}
	}
}

// A gate that closes on existing nodes when it is applied is announced, with what to remove.
func TestExistingNodesAreNoted(t *testing.T) {
	closing := 0
	for tool, run := range tools {
		for _, source := range inputs(t, tool) {
			r := run(source)
			for i := range r.Gates {
				mode := r.Gates[i].NodeGate.Spec.ExistingNodes
				if mode != v1alpha1.ExistingClose && mode != v1alpha1.ExistingCloseIfIdle {
					continue
				}
				closing++
				if !strings.Contains(strings.Join(r.notes, "\n"), "existingNodes: "+string(mode)) {
					t.Errorf("%s/%s: no note says that gate %s closes on existing nodes", tool, source.Name, r.Gates[i].NodeGate.Name)
				}
			}
		}
	}
	if closing < 10 {
		t.Errorf("only %d gates close on existing nodes", closing)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); update it with -update:\n%s", path, diff)
	}
}

func findingsText(r *Result) string {
	var b strings.Builder
	for _, f := range r.Findings {
		b.WriteString(f.String() + "\n")
	}
	return b.String()
}

func yamlOf(t testing.TB, r *Result) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteYAML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// tester is implemented by tests and fuzz targets.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// checkGates checks that each gate equals the printed one, that the API server would accept
// it, and that names are unique.
func checkGates(t tester, r *Result) []*v1alpha1.NodeGate {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteYAML(&b); err != nil {
		t.Fatalf("writing: %v", err)
	}
	_, documents, _ := strings.Cut(b.String(), "---\n")
	var out []*v1alpha1.NodeGate
	names := map[string]bool{}
	for i, document := range strings.Split(documents, "\n---\n") {
		if len(r.Gates) == 0 {
			break
		}
		printed, err := crd.Decode([]byte(document))
		if err != nil {
			t.Errorf("%v:\n%s", err, document)
			continue
		}
		if names[printed.Name] {
			t.Errorf("two gates have the name %s", printed.Name)
		}
		names[printed.Name] = true
		out = append(out, printed)
		checkPrinted(t, document, printed, &r.Gates[i].NodeGate)
	}
	if len(out) != len(r.Gates) {
		t.Errorf("%d of %d gates were printed", len(out), len(r.Gates))
	}
	return out
}

// checkPrinted compares the printed gate to the original, both with defaults.
func checkPrinted(t tester, document string, printed, gate *v1alpha1.NodeGate) {
	t.Helper()
	want, err := defaulted(gate)
	if err != nil {
		t.Errorf("%v:\n%s", err, document)
		return
	}
	if diff := cmp.Diff(want.Spec, printed.Spec, cmpopts.EquateEmpty()); diff != "" || want.Name != printed.Name {
		t.Errorf("the printed gate differs (-want +printed):\n%s\n%s", diff, document)
	}
}

// defaulted returns the gate as the API server would store it.
func defaulted(gate *v1alpha1.NodeGate) (*v1alpha1.NodeGate, error) {
	whole := gate.DeepCopy()
	whole.APIVersion, whole.Kind = v1alpha1.GroupVersion.String(), crd.Kind
	data, err := yaml.Marshal(whole)
	if err != nil {
		return nil, err
	}
	return crd.Decode(data)
}
