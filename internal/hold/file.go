// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	// Dir is the directory on the node with the state. It must survive reboots.
	Dir = "/var/lib/nodegate"
	// BootIDFile is where Linux shows the ID of the current boot.
	BootIDFile = "/proc/sys/kernel/random/boot_id"

	stateFile  = "hold.json"
	temporary  = stateFile + ".*" // is to replace the state
	pluginFile = "plugin-boot"
)

// Store is the directory that the agent and the plugin have in common.
type Store struct{ Dir string }

// Prepare creates the directory, unless it exists, and removes what writes of the state have left that
// a power cut has interrupted. If another process is writing the state, that write fails.
func (s Store) Prepare() error {
	if err := s.create(); err != nil {
		return err
	}
	files, _ := filepath.Glob(filepath.Join(s.Dir, temporary)) // fails only for a malformed pattern
	for _, file := range files {
		_ = os.Remove(file) // what remains only uses space
	}
	return nil
}

func (s Store) create() error { return os.MkdirAll(s.Dir, 0o700) }

// Read returns the state, or an empty one if there is none.
func (s Store) Read() (*State, error) {
	content, err := os.ReadFile(filepath.Join(s.Dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return &State{}, nil
	}
	if err != nil {
		return nil, err
	}
	var state State
	if err := json.Unmarshal(content, &state); err != nil {
		return nil, fmt.Errorf("parsing %s: %w", filepath.Join(s.Dir, stateFile), err)
	}
	return &state, nil
}

// Changed returns information about the current file of the state, or nil if there is none, and
// whether it differs from what Changed returned before.
func (s Store) Changed(before fs.FileInfo) (fs.FileInfo, bool) {
	now, err := os.Stat(filepath.Join(s.Dir, stateFile))
	if err != nil {
		return nil, before != nil
	}
	return now, before == nil || !os.SameFile(before, now) || !before.ModTime().Equal(now.ModTime())
}

// Write replaces the state. It is on the disk when Write returns.
func (s Store) Write(state *State) error {
	content, err := json.Marshal(state)
	if err != nil {
		return err
	}
	_, err = s.replace(content, always)
	return err
}

// Update replaces the state, or removes it if it has no gates, so that no pod waits. If the file
// has changed since Changed returned before, it stays as it is, and Update returns false. The
// disk may take seconds, so the comparison is the last thing before the replacement.
func (s Store) Update(before fs.FileInfo, state *State) (updated bool, err error) {
	unchanged := func() bool {
		_, changed := s.Changed(before)
		return !changed
	}
	if len(state.Gates) == 0 {
		if unchanged() {
			updated, err = true, s.Remove()
		}
		return updated, err
	}
	content, err := json.Marshal(state)
	if err != nil {
		return false, err
	}
	return s.replace(content, unchanged)
}

// Remove removes the state, so that no pod waits.
func (s Store) Remove() error {
	err := os.Remove(filepath.Join(s.Dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// PluginStarted records that the runtime has started the plugin in a boot. It overwrites the former
// record, because a full disk has no space for another file. The record is of no use in any other
// boot, so the power may fail at any time.
func (s Store) PluginStarted(boot string) error {
	if err := s.create(); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(s.Dir, pluginFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := file.WriteString(boot + "\n")
	return errors.Join(err, file.Truncate(int64(n)), file.Close())
}

// PluginBoot returns the latest boot in which the runtime has started the plugin, or an empty
// string.
func (s Store) PluginBoot() string {
	id, _ := BootID(filepath.Join(s.Dir, pluginFile))
	return id
}

// always lets replace replace a file in any case.
func always() bool { return true }

// replace replaces the file of the state as a whole, even if the power fails, and reports whether it
// has. When the content is on the disk, it asks may whether the file is still to be replaced.
func (s Store) replace(content []byte, may func() bool) (replaced bool, err error) {
	if err := s.create(); err != nil {
		return false, err
	}
	file, err := os.CreateTemp(s.Dir, temporary)
	if err != nil {
		return false, err
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil && may() {
		err = os.Rename(file.Name(), filepath.Join(s.Dir, stateFile))
		replaced = err == nil
	}
	if !replaced {
		return false, errors.Join(err, os.Remove(file.Name()))
	}
	return true, syncDir(s.Dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// BootID reads the ID of a boot from a file such as BootIDFile.
func BootID(file string) (string, error) {
	id, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the boot ID: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}
