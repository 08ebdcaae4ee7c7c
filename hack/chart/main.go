// SPDX-License-Identifier: Apache-2.0

// Command chart writes the parts of the Helm chart that follow from elsewhere:
// the objects that 'nodegate manifests' prints, as a template; the CRD; and the
// presets. What it writes is committed, and never edited.
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
	flag.Parse()
	if err := run(*chart); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(chart string) error {
	installation, err := template()
	if err != nil {
		return fmt.Errorf("making a template of the installation: %w", err)
	}
	files := map[string][]byte{
		"templates/installation.yaml": installation,
		"crds/nodegates.yaml":         crd.Manifest(),
	}
	for _, name := range presets.Names() {
		if files["files/presets/"+name+".yaml"], err = presets.Read(name); err != nil {
			return err
		}
	}
	// A preset that is gone must not live on in the chart.
	if err := os.RemoveAll(filepath.Join(chart, "files", "presets")); err != nil {
		return fmt.Errorf("removing former presets: %w", err)
	}
	for name, content := range files {
		path := filepath.Join(chart, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("writing the chart: %w", err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("writing the chart: %w", err)
		}
	}
	return nil
}
