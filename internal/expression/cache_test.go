// SPDX-License-Identifier: Apache-2.0

package expression

import (
	"runtime"
	"testing"
)

// An expression is compiled once while it is in use, and is not kept afterwards.
func TestCache(t *testing.T) {
	const text = `labels.cache == "a"`
	if IsCompiled(text) {
		t.Fatal("compiled before the first call")
	}
	e := mustCompile(t, text)
	if !IsCompiled(text) || mustCompile(t, text) != e {
		t.Error("compiled twice")
	}
	if IsCompiled(text + " ") {
		t.Error("another text has the same expression")
	}
	runtime.KeepAlive(e)
	for held := true; held; _, held = compiled.byText.Load(text) { // a cleanup runs some time later
		runtime.GC()
	}
	if IsCompiled(text) {
		t.Error("kept although it is not in use")
	}
	if _, err := Compile("labels"); err == nil || IsCompiled("labels") {
		t.Errorf("an error is cached: %v", err)
	}
}
