// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// The linker removes methods that are never called, unless linked code looks up methods by
// names that are known only at run time, like text/template. It then keeps all methods, which
// makes the program half as large again, also in memory. The test checks a method that is
// never called, of a type that is in every program. It reads ELF symbols, which programs for
// other systems do not have.
func TestWhatNobodyCallsIsLeftOut(t *testing.T) {
	if testing.Short() {
		t.Skip("links nodegate: run without -short")
	}
	program := filepath.Join(t.TempDir(), "nodegate")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, output)
	}
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == name })
	}
	if !has("time.Time.Sub") {
		t.Fatal("the program's symbols are unknown")
	}
	if has("time.Time.GobEncode") {
		t.Error("methods that are never called are linked: see go build -ldflags=-dumpdep for the references to <ReflectMethod>")
	}
}
