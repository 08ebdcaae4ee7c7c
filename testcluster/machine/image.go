// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
)

// ImageName is the name of the image that BuildImage writes.
const ImageName = "nodegate.test/pod:1"

const podPackage = "github.com/nodegate/nodegate/testcluster/machine/pod"

// BuildImage writes an image archive with the program pod, whose arguments are the
// container's, and with the programs of further packages. A program has the name of its
// package, in the root directory.
func BuildImage(ctx context.Context, file string, packages ...string) error {
	dir := file + ".programs"
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	packages = append([]string{podPackage}, packages...)
	// The image has no libraries. Other ways to link statically would compile all packages again.
	build := exec.CommandContext(ctx, "go", append([]string{"build", "-ldflags=-linkmode=external -extldflags=-static", "-o", dir + "/"}, packages...)...)
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %v: %w:\n%s", packages, err, output)
	}
	var programs []entry
	for _, p := range packages {
		content, err := os.ReadFile(filepath.Join(dir, path.Base(p)))
		if err != nil {
			return err
		}
		programs = append(programs, entry{path.Base(p), 0o755, content})
	}
	archive, err := imageArchive(programs)
	if err != nil {
		return fmt.Errorf("writing an image: %w", err)
	}
	return os.WriteFile(file, archive, 0o644)
}

// entry is a file in a tar archive.
type entry struct {
	name    string
	mode    int64
	content []byte
}

// imageArchive returns an image of one layer with programs, in the format of 'docker save'.
// It runs the first one.
func imageArchive(programs []entry) ([]byte, error) {
	layer, err := tarball(programs...)
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/" + programs[0].name}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{ImageName}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, err
	}
	return tarball(entry{"manifest.json", 0o644, manifest}, entry{"config.json", 0o644, config}, entry{"layer.tar", 0o644, layer})
}

func tarball(entries ...entry) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.content)), Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
