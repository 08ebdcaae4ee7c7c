// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// releaseImage is an image of a release: an OCI layout in the release's directory.
type releaseImage struct {
	layout string
	// suffix distinguishes its repository from that of the first image.
	suffix string
}

// images are all images of a release: the controller's, and the node agent's.
var images = []releaseImage{{layout: "image"}, {layout: "agent-image", suffix: "-agent"}}

// digestFile returns the name of the file with the image's digest, so that the checksums cover
// the image.
func (i *releaseImage) digestFile() string { return i.layout + "-digest.txt" }

// tag returns the tag to which the image is pushed. first is that of the first image.
func (i *releaseImage) tag(first name.Tag) name.Tag {
	repository := first.Context().Repo(first.Context().RepositoryStr() + i.suffix)
	return repository.Tag(first.TagStr())
}

// index returns the only index of the layout, and its digest.
func (i *releaseImage) index(dist string) (v1.ImageIndex, v1.Hash, error) {
	dir := filepath.Join(dist, i.layout)
	path, err := layout.FromPath(dir)
	if err != nil {
		return nil, v1.Hash{}, fmt.Errorf("opening the image: %w; run 'make release' first", err)
	}
	all, err := path.ImageIndex()
	if err != nil {
		return nil, v1.Hash{}, fmt.Errorf("reading the layout: %w", err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, v1.Hash{}, fmt.Errorf("reading the layout: %w", err)
	}
	if len(manifest.Manifests) != 1 {
		return nil, v1.Hash{}, fmt.Errorf("%s has %d images, want one", dir, len(manifest.Manifests))
	}
	digest := manifest.Manifests[0].Digest
	index, err := all.ImageIndex(digest)
	return index, digest, err
}

// check returns an error if the image is not that of the release.
func (i *releaseImage) check(dist string) error {
	index, digest, err := i.index(dist)
	if err != nil {
		return err
	}
	if err := validate.Index(index); err != nil {
		return fmt.Errorf("validating the image: %w", err)
	}
	want, err := os.ReadFile(filepath.Join(dist, i.digestFile()))
	if err != nil {
		return fmt.Errorf("reading the digest of the image: %w", err)
	}
	if text := strings.TrimSpace(string(want)); text != digest.String() {
		return fmt.Errorf("the image is %s, but %s has %s: run 'make release' again", digest, i.digestFile(), text)
	}
	return nil
}

// writeDigests writes the digests of all images.
func writeDigests(dist string) error {
	for _, i := range images {
		_, digest, err := i.index(dist)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dist, i.digestFile()), []byte(digest.String()+"\n"), 0o644); err != nil {
			return fmt.Errorf("writing the digest of the image: %w", err)
		}
	}
	return nil
}

// platformImage is the image for one platform, with its programs.
type platformImage struct {
	digest   v1.Hash
	programs []program
}

// platforms returns the images for all platforms of the layout.
func (i *releaseImage) platforms(dist string) ([]platformImage, error) {
	index, _, err := i.index(dist)
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("reading the index: %w", err)
	}
	var all []platformImage
	for _, m := range manifest.Manifests {
		programs, err := fromImage(index, m.Digest)
		if err != nil {
			return nil, fmt.Errorf("reading the image for %s: %w", m.Platform, err)
		}
		for p := range programs {
			programs[p].name += "_" + m.Platform.OS + "_" + m.Platform.Architecture
		}
		all = append(all, platformImage{m.Digest, programs})
	}
	return all, nil
}

// fromImage returns the files of an image.
func fromImage(index v1.ImageIndex, digest v1.Hash) ([]program, error) {
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
	programs, err := files(content)
	return programs, errors.Join(err, content.Close())
}
