// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// checksumsFile contains the SHA-256 of every file of a release, in the format of sha256sum.
const checksumsFile = "checksums.txt"

// checksums returns the contents of checksumsFile. Directories, such as the layouts
// of images, are not included.
func checksums(dist string) ([]byte, error) {
	entries, err := os.ReadDir(dist) // sorted
	if err != nil {
		return nil, fmt.Errorf("listing the release: %w", err)
	}
	var out bytes.Buffer
	for _, entry := range entries {
		if !entry.Type().IsRegular() || strings.HasPrefix(entry.Name(), checksumsFile) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dist, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading the release: %w", err)
		}
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(content), entry.Name())
	}
	return out.Bytes(), nil
}

func writeChecksums(dist string) error {
	text, err := checksums(dist)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dist, checksumsFile), text, 0o644); err != nil {
		return fmt.Errorf("writing the checksums: %w", err)
	}
	return nil
}

// checkChecksums returns an error if a release does not match its checksums. Therefore,
// only files on which two builds agree are signed.
func checkChecksums(dist string) error {
	want, err := os.ReadFile(filepath.Join(dist, checksumsFile))
	if err != nil {
		return fmt.Errorf("reading the checksums: %w; run 'make release' first", err)
	}
	got, err := checksums(dist)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("the files of %s do not match %s: run 'make release' again", dist, checksumsFile)
	}
	return nil
}
