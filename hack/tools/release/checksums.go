// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// checksumsFile contains the SHA-256 of every file of a release, in the format of sha256sum.
const checksumsFile = "checksums.txt"

// checksums returns the contents of checksumsFile. Directories, such as the image's
// layout, are not included.
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

// digestFile contains the digest of the image, so that the checksums cover the image.
const digestFile = "image-digest.txt"

func writeDigest(dist string) error {
	index, err := imageIndex(filepath.Join(dist, imageLayout))
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("computing the digest: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dist, digestFile), []byte(digest.String()+"\n"), 0o644); err != nil {
		return fmt.Errorf("writing the digest of the image: %w", err)
	}
	return nil
}

// checkDigest returns an error if the image is not that of the release.
func checkDigest(dist string, digest v1.Hash) error {
	want, err := os.ReadFile(filepath.Join(dist, digestFile))
	if err != nil {
		return fmt.Errorf("reading the digest of the image: %w", err)
	}
	if strings.TrimSpace(string(want)) != digest.String() {
		return fmt.Errorf("the image is %s, but %s has %s: run 'make release' again", digest, digestFile, bytes.TrimSpace(want))
	}
	return nil
}
