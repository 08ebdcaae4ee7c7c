// SPDX-License-Identifier: Apache-2.0

// Command performance updates docs/performance.md with the figures of the last
// runs of 'make bench' and 'make bench-scale', and with predictions for fleets of
// other sizes. All such numbers on the page come from bench/results.json and
// bench/scale/results.json.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

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
	}
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

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
