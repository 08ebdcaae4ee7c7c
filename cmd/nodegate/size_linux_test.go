// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// The linker leaves out methods that nobody calls, unless something that is linked
// looks methods up by a name that is known at run time only, as text/template does:
// then it keeps them all, and the program is half as large again, in memory too.
// This is a method that nobody calls, of a type that is in any program. The symbols
// are those of ELF, which other systems' programs do not have.
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
		t.Fatal("the program's symbols cannot be told")
	}
	if has("time.Time.GobEncode") {
		t.Error("methods that nobody calls are linked: see go build -ldflags=-dumpdep for what leads to <ReflectMethod>")
	}
}
