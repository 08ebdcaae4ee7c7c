// SPDX-License-Identifier: Apache-2.0

// Command performance writes the pages of results of the last runs of 'make bench' and 'make
// bench-scale', and updates docs/performance.md with their figures and with predictions for
// fleets of other sizes. All such numbers come from bench/results.json and
// bench/scale/results.json.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nodegate/nodegate/bench/report"
)

const page = "docs/performance.md"

func main() {
	if err := update(); err != nil {
		fmt.Fprintln(os.Stderr, "performance:", err)
		os.Exit(1)
	}
}

func update() error {
	content, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	text := string(content)
	for _, from := range runs {
		r, err := from.read()
		if err != nil {
			return err
		}
		if text, err = from.fill(text, r); err != nil {
			return fmt.Errorf("filling in %s: %w", page, err)
		}
		if err := from.write(r); err != nil {
			return err
		}
	}
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// write writes the page of results next to them, if there are any.
func (from run) write(r *report.Report) error {
	if len(r.Results) == 0 {
		return nil
	}
	var content bytes.Buffer
	r.Page(&content)
	if err := os.WriteFile(from.page(), content.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the page of results: %w", err)
	}
	return nil
}

// page returns the file of the page of results.
func (from run) page() string { return filepath.Join(filepath.Dir(from.results), "RESULTS.md") }

// read returns the results of the last run. If there are none, it returns an empty report.
func (from run) read() (*report.Report, error) {
	content, err := os.ReadFile(from.results)
	if errors.Is(err, fs.ErrNotExist) {
		return &report.Report{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading results: %w", err)
	}
	var r report.Report
	if err := json.Unmarshal(content, &r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", from.results, err)
	}
	return &r, nil
}
