// SPDX-License-Identifier: Apache-2.0

package clocks_test

import (
	"math"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nodegate/nodegate/e2e/torture/clocks"
)

func TestRates(t *testing.T) {
	if err := clocks.Supported(); err != nil {
		t.Skip(err)
	}
	program := filepath.Join(t.TempDir(), "print")
	source, err := filepath.Abs("testdata/print")
	if err != nil {
		t.Fatal(err)
	}
	if err := clocks.Build(t.Context(), source, program); err != nil {
		t.Fatal(err)
	}
	for _, rate := range []float64{0.5, 1, 2} {
		slow, err := clocks.AtRate(program, rate)
		if err != nil {
			t.Fatal(err)
		}
		output, err := exec.CommandContext(t.Context(), slow).Output()
		if err != nil {
			t.Fatal(err)
		}
		got, err := strconv.ParseFloat(strings.TrimSpace(string(output)), 64)
		if err != nil || math.Abs(got-rate) > 0.01*rate {
			t.Errorf("the clock goes %s times as fast as the wall clock, want %g (%v)", strings.TrimSpace(string(output)), rate, err)
		}
	}
}
