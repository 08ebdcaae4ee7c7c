// SPDX-License-Identifier: Apache-2.0

// Package clitest contains what the tests of kubectl gate and of the packages that compute
// its output share: gates, records, and the comparison with files of testdata.
package clitest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gatefile"
)

var update = flag.Bool("update", false, "write the output to testdata")

// Now is the time of decisions.
var Now = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

// Records of gate agent.
const (
	// Birth is a record that the API server writes.
	Birth = `{"state":"Closed","reason":"Birth","boot":"b","taint":"example.com/a:NoSchedule","source":"crd"}`
	// Opened is the record of a gate that is open because its signals hold.
	Opened = `{"state":"Open","reason":"SignalsHold","since":"2026-03-01T02:10:00Z","boot":"b","source":"crd"}`
)

// Follows is a gate with closeWhen, in YAML.
const Follows = `
metadata: {name: follows}
spec:
  nodeSelector: {matchLabels: {pool: a}}
  taint: {key: example.com/b, effect: NoSchedule}
  closeWhen: [{name: broken, label: {key: broken}}]`

// ByLabel returns a gate that opens by a label, in YAML. more is appended to its spec.
func ByLabel(name, more string) string {
	return "metadata: {name: " + name + "}\nspec:\n  taint: {key: example.com/a, effect: NoSchedule}\n  openWhen: [{name: fit, label: {key: fit}}]\n  " + more
}

// Manifest returns the manifest of the same gate.
func Manifest(name, more string) string {
	return "apiVersion: nodegate.dev/v1alpha1\nkind: NodeGate\nmetadata: {name: " + name + "}\nspec:\n  nodeSelector: {}\n" +
		"  taint: {key: example.com/a, effect: NoSchedule}\n  openWhen: [{name: fit, label: {key: fit}}]\n  " + more + "\n"
}

// Declare parses NodeGates that were created half an hour ago, without defaults.
func Declare(t *testing.T, texts ...string) []v1alpha1.NodeGate {
	t.Helper()
	var declared []v1alpha1.NodeGate
	for _, text := range texts {
		var ng v1alpha1.NodeGate
		if err := yaml.UnmarshalStrict([]byte(text), &ng); err != nil {
			t.Fatal(err)
		}
		ng.CreationTimestamp.Time = Now.Add(-30 * time.Minute)
		declared = append(declared, ng)
	}
	return declared
}

// Decode reads manifests as from files, with validation and defaults. The gates were
// created two hours ago.
func Decode(t *testing.T, texts ...string) []v1alpha1.NodeGate {
	t.Helper()
	var all []v1alpha1.NodeGate
	for _, text := range texts {
		gates, err := gatefile.Declared("gate.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range gates {
			g.CreationTimestamp.Time = Now.Add(-2 * time.Hour)
			all = append(all, *g)
		}
	}
	return all
}

// Golden compares output with a file of testdata.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
