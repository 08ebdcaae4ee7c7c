// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// program is a program of a release.
type program struct {
	name    string // such as kubectl-gate_linux_amd64
	content []byte
}

// sbomPath returns the path of the program's SBOM.
func (p *program) sbomPath(dist string) string { return filepath.Join(dist, p.name+".cdx.json") }

// archivedPrograms returns the plugin in each of its archives.
func archivedPrograms(dist string) ([]program, error) {
	paths, err := filepath.Glob(filepath.Join(dist, "kubectl-gate_*.tar.gz"))
	if err != nil || len(paths) == 0 {
		return nil, errors.Join(fmt.Errorf("%s has no archive kubectl-gate_*.tar.gz: run 'make dist-plugin' first", dist), err)
	}
	var programs []program
	for _, path := range paths {
		content, err := fromArchive(path)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		programs = append(programs, program{strings.TrimSuffix(filepath.Base(path), ".tar.gz"), content})
	}
	return programs, nil
}

func fromArchive(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	zipped, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	return first(zipped, "kubectl-gate")
}

// first returns the first file whose name starts with a prefix.
func first(archive io.Reader, prefix string) ([]byte, error) {
	for files := tar.NewReader(archive); ; {
		header, err := files.Next()
		if err != nil {
			return nil, fmt.Errorf("finding a file %q: %w", prefix+"*", err)
		}
		if strings.HasPrefix(header.Name, prefix) {
			return io.ReadAll(files)
		}
	}
}

// platformImage is the image for one platform, with its program.
type platformImage struct {
	digest  v1.Hash
	program program
}

// imageIndex returns the only image of an OCI layout.
func imageIndex(dir string) (v1.ImageIndex, error) {
	path, err := layout.FromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the image: %w; run 'make release' first", err)
	}
	all, err := path.ImageIndex()
	if err != nil {
		return nil, fmt.Errorf("reading the layout: %w", err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("reading the layout: %w", err)
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("%s has %d images, want one", dir, len(manifest.Manifests))
	}
	return all.ImageIndex(manifest.Manifests[0].Digest)
}

// platformImages returns the images for all platforms of a layout.
func platformImages(dir string) ([]platformImage, error) {
	index, err := imageIndex(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("reading the index: %w", err)
	}
	var images []platformImage
	for _, m := range manifest.Manifests {
		content, err := fromImage(index, m.Digest)
		if err != nil {
			return nil, fmt.Errorf("reading the image for %s: %w", m.Platform, err)
		}
		images = append(images, platformImage{m.Digest, program{"nodegate_" + m.Platform.OS + "_" + m.Platform.Architecture, content}})
	}
	return images, nil
}

func fromImage(index v1.ImageIndex, digest v1.Hash) ([]byte, error) {
	image, err := index.Image(digest)
	if err != nil {
		return nil, err
	}
	layers, err := image.Layers()
	if err != nil {
		return nil, err
	}
	if len(layers) != 1 {
		return nil, fmt.Errorf("the image has %d layers, want one", len(layers))
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		return nil, err
	}
	defer content.Close()
	return first(content, "")
}
