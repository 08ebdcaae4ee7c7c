// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A bind makes a file or directory of the host visible on the machine.
type bind struct{ from, to string }

// mountAll mounts the machine's root file system and makes it the root.
func (s *spec) mountAll() error {
	root := filepath.Join(s.Dir, rootDir)
	// Nothing that is mounted from now on is visible to others.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	binds, err := s.binds(root)
	if err != nil {
		return err
	}
	for _, b := range binds {
		if err := b.mount(root); err != nil {
			return fmt.Errorf("%s: %w", b.to, err)
		}
	}
	for _, dir := range []string{"/run/dbus", "/tmp", "/root", "/old"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
		return err
	}
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""); err != nil {
		return err
	}
	if err := s.mountBootID(root); err != nil {
		return err
	}
	return pivot(root)
}

// binds returns what the machine has of the host, in order, and creates the links to
// directories of programs.
func (s *spec) binds(root string) ([]bind, error) {
	binds := []bind{
		{"/dev", "/dev"}, {"/sys", "/sys"}, {"/usr", "/usr"},
		{filepath.Join(s.Dir, diskDir), "/var"}, {filepath.Join(s.Dir, etcDir), "/etc"},
		{filepath.Join(s.Dir, filepath.Base(SharedDir)), SharedDir}, {filepath.Join(s.Dir, linkDir), "/" + linkDir},
	}
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		target, err := os.Readlink(dir)
		switch {
		case err == nil:
			if err := os.Symlink(target, filepath.Join(root, dir)); err != nil {
				return nil, err
			}
		case errors.Is(err, fs.ErrNotExist):
		default:
			binds = append(binds, bind{dir, dir})
		}
	}
	for c, file := range s.Programs {
		binds = append(binds, bind{file, filepath.Join(programDir, string(c))})
	}
	if s.Image != "" {
		binds = append(binds, bind{s.Image, "/image.tar"})
	}
	return binds, nil
}

func (b *bind) mount(root string) error {
	to := filepath.Join(root, b.to)
	info, err := os.Stat(b.from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
		err = os.WriteFile(to, nil, 0o755)
	}
	if err != nil {
		return err
	}
	return unix.Mount(b.from, to, "", unix.MS_BIND|unix.MS_REC, "")
}

// mountBootID gives the boot an ID of its own.
func (s *spec) mountBootID(root string) error {
	file := filepath.Join(root, "boot_id")
	if err := os.WriteFile(file, []byte(s.BootID+"\n"), 0o444); err != nil {
		return err
	}
	return unix.Mount(file, filepath.Join(root, "proc/sys/kernel/random/boot_id"), "", unix.MS_BIND, "")
}

// pivot makes a mounted file system the root, and unmounts the previous one.
func pivot(root string) error {
	if err := unix.PivotRoot(root, filepath.Join(root, "old")); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/old", unix.MNT_DETACH); err != nil {
		return err
	}
	// Kubernetes mounts volumes with bidirectional propagation.
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}
