// SPDX-License-Identifier: Apache-2.0

// Command performance updates docs/performance.md with the figures of the last
// run of 'make bench', and with predictions for fleets of other sizes. All such
// numbers on the page come from bench/results.json.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/nodegate/nodegate/bench/report"
)

const (
	results = "bench/results.json"
	page    = "docs/performance.md"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "performance:", err)
		os.Exit(1)
	}
}

func run() error {
	r, err := read(results)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	filled, err := fill(string(text), r)
	if err != nil {
		return fmt.Errorf("filling in %s: %w", page, err)
	}
	if err := os.WriteFile(page, []byte(filled), 0o644); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// read reads the results of a run. If there are none, it returns an empty report.
func read(file string) (*report.Report, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &report.Report{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading results: %w", err)
	}
	var r report.Report
	if err := json.Unmarshal(content, &r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return &r, nil
}
