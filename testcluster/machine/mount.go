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

const settingsDir = "/proc/sys"

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
	if err := s.mountSettings(root); err != nil {
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
		{filepath.Join(s.Dir, nriDir), runtimePlugins},
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
	for i, image := range s.Images {
		binds = append(binds, bind{image, imagePath(i)})
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

// hostSettings are the kernel's settings that a kubelet changes, and that no namespace has
// of its own, below /proc/sys.
// Source: setupKernelTunables in k8s.io/kubernetes/pkg/kubelet/cm.
var hostSettings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// mountSettings gives the machine a boot ID and files of its own for hostSettings, so that
// the kubelet does not change the host's.
func (s *spec) mountSettings(root string) error {
	values := map[string]string{"kernel/random/boot_id": s.BootID + "\n"}
	for _, name := range hostSettings {
		value, err := os.ReadFile(filepath.Join(settingsDir, name))
		if err != nil {
			return err
		}
		values[name] = string(value)
	}
	for name, value := range values {
		file := filepath.Join(root, "settings", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(file, filepath.Join(root, settingsDir, name), "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
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
