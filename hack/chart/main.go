// SPDX-License-Identifier: Apache-2.0

// Command chart generates parts of the Helm chart: the output of 'nodegate
// manifests' as a template; the CRD, also for kustomize; and the presets. The
// generated files are committed, and must not be edited.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodegate/nodegate/internal/crd"
	"github.com/nodegate/nodegate/presets"
)

func main() {
	chart := flag.String("chart", "charts/nodegate", "the directory of the chart")
	base := flag.String("base", "deploy/base", "the directory of the kustomize base")
	flag.Parse()
	if err := run(*chart, *base); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(chart, base string) error {
	installation, err := template()
	if err != nil {
		return fmt.Errorf("generating the template of the installation: %w", err)
	}
	copies := filepath.Join(chart, "files", "presets")
	files := map[string][]byte{
		filepath.Join(chart, "templates", "installation.yaml"): installation,
		filepath.Join(chart, "crds", "nodegates.yaml"):         crd.Manifest(),
		filepath.Join(base, "crd.yaml"):                        crd.Manifest(),
	}
	for _, name := range presets.Names() {
		if files[filepath.Join(copies, name+".yaml")], err = presets.Read(name); err != nil {
			return err
		}
	}
	// Remove deleted presets from the chart.
	if err := os.RemoveAll(copies); err != nil {
		return fmt.Errorf("removing former presets: %w", err)
	}
	for path, content := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("writing the chart: %w", err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("writing the chart: %w", err)
		}
	}
	return nil
}
