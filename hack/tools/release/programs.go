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
	all, err := files(zipped)
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		if strings.HasPrefix(f.name, "kubectl-gate") {
			return f.content, nil
		}
	}
	return nil, errors.New("it has no file kubectl-gate*")
}

// files returns all files of an archive.
func files(archive io.Reader) (all []program, err error) {
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading an archive: %w", err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", header.Name, err)
		}
		all = append(all, program{header.Name, content})
	}
}
