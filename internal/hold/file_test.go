// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"os"
	"path/filepath"
	"testing"
)

// A state that has changed since it was read is neither replaced nor removed.
func TestUpdate(t *testing.T) {
	shorter := &State{Boot: "shorter", Gates: []Gate{{Name: "cni"}}}
	for name, state := range map[string]*State{"replaced": shorter, "removed": {}} {
		store := Store{Dir: t.TempDir()}
		must(t, store.Write(&State{Boot: "before"}))
		file, _ := store.Changed(nil)
		must(t, store.Write(&State{Boot: "written meanwhile"}))
		if updated, err := store.Update(file, state); updated || err != nil {
			t.Errorf("%s: a state that has changed is updated: %t, %v", name, updated, err)
		}
		expectBoot(t, store, "written meanwhile")
		file, _ = store.Changed(nil)
		if updated, err := store.Update(file, state); !updated || err != nil {
			t.Errorf("%s: a state that has not changed is updated: %t, %v", name, updated, err)
		}
		expectBoot(t, store, state.Boot)
	}
}

// Whether a file may be replaced is decided when the new content is on the disk, which may take
// seconds.
func TestReplaceDecidesLast(t *testing.T) {
	store := Store{Dir: t.TempDir()}
	must(t, store.Write(&State{Boot: "before"}))
	replaced, err := store.replace([]byte("content"), func() bool {
		files, err := filepath.Glob(filepath.Join(store.Dir, temporary))
		must(t, err)
		if len(files) != 1 {
			t.Fatalf("the temporary files are %v, want one", files)
		}
		if content, err := os.ReadFile(files[0]); err != nil || string(content) != "content" {
			t.Errorf("the temporary file contains %q (%v)", content, err)
		}
		return false
	})
	if replaced || err != nil {
		t.Errorf("replaced: %t, %v", replaced, err)
	}
	expectBoot(t, store, "before")
	if files, err := os.ReadDir(store.Dir); err != nil || len(files) != 1 {
		t.Errorf("the directory has %v, %v", files, err)
	}
}

// Files that were written when the power failed do not accumulate.
func TestInterruptedWritesLeaveNothing(t *testing.T) {
	store := Store{Dir: t.TempDir()}
	must(t, store.Write(&State{Boot: "before"}))
	must(t, store.PluginStarted("now"))
	for range 3 {
		file, err := os.CreateTemp(store.Dir, temporary)
		must(t, err)
		must(t, file.Close())
	}
	must(t, store.Prepare())
	if files, err := os.ReadDir(store.Dir); err != nil || len(files) != 2 {
		t.Errorf("the directory has %v, %v", files, err)
	}
	expectBoot(t, store, "before")
	if boot := store.PluginBoot(); boot != "now" {
		t.Errorf("the plugin was started in boot %q", boot)
	}
}

// The record of the plugin's start can also be written when the disk is full. Otherwise, the agent
// would report that no pod is held.
func TestPluginStartNeedsNoSpace(t *testing.T) {
	store := Store{Dir: t.TempDir()}
	var before os.FileInfo
	for _, boot := range []string{"boot-1", "boot-2", "a longer boot", "boot-3"} {
		must(t, store.PluginStarted(boot))
		file, err := os.Stat(filepath.Join(store.Dir, pluginFile))
		must(t, err)
		if before != nil && !os.SameFile(before, file) {
			t.Error("the record is another file")
		}
		if got := store.PluginBoot(); got != boot {
			t.Errorf("the plugin was started in boot %q, want %q", got, boot)
		}
		before = file
	}
}

func expectBoot(t *testing.T, store Store, want string) {
	t.Helper()
	state, err := store.Read()
	must(t, err)
	if state.Boot != want {
		t.Errorf("the state is of boot %q, want %q", state.Boot, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
