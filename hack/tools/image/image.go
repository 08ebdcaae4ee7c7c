// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// user is the user of the program. It is numeric, so that the kubelet can verify
// runAsNonRoot.
const user = "65532:65532"

// release describes the source of an image.
type release struct {
	version, revision, repository string
	created                       time.Time
	// name is the image's full name, with its tag.
	name string
}

// labels returns the annotations that the OCI image specification defines.
func (r *release) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "nodegate",
		"org.opencontainers.image.description": "Keeps pods off Kubernetes nodes until the nodes are ready for them",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.source":      r.repository,
		"org.opencontainers.image.url":         r.repository,
		"org.opencontainers.image.version":     r.version,
		"org.opencontainers.image.revision":    r.revision,
		"org.opencontainers.image.created":     r.created.Format(time.RFC3339),
	}
}

// compiled is the programs for one platform: files in a directory. The image runs the first one.
type compiled struct {
	platform v1.Platform
	dir      string
	names    []string
}

// check returns an error if a program could not run in an empty image.
func (c *compiled) check() error {
	for _, name := range c.names {
		file, err := elf.Open(filepath.Join(c.dir, name))
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		defer file.Close()
		for _, segment := range file.Progs {
			if segment.Type == elf.PT_INTERP || segment.Type == elf.PT_DYNAMIC {
				return fmt.Errorf("%s for %s is not static", name, &c.platform)
			}
		}
	}
	return nil
}

// layer returns a file system that contains only the programs.
func (c *compiled) layer(at time.Time) (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range c.names {
		content, err := os.ReadFile(filepath.Join(c.dir, name))
		if err != nil {
			return nil, fmt.Errorf("reading the program: %w", err)
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o555, Size: int64(len(content)), ModTime: at}
		if err := errors.Join(w.WriteHeader(header), writeAll(w, content)); err != nil {
			return nil, fmt.Errorf("writing the layer: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("writing the layer: %w", err)
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression))
}

func writeAll(w io.Writer, content []byte) error {
	_, err := w.Write(content)
	return err
}

// image returns the image for one platform.
func (c *compiled) image(r *release) (v1.Image, error) {
	layer, err := c.layer(r.created)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{
		Layer: layer, MediaType: types.OCILayer,
		History: v1.History{Created: v1.Time{Time: r.created}, CreatedBy: "hack/tools/image"},
	})
	if err != nil {
		return nil, fmt.Errorf("appending the layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the image's configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = c.platform.OS, c.platform.Architecture, c.platform.Variant
	config.Created = v1.Time{Time: r.created}
	config.Config = v1.Config{User: user, Entrypoint: []string{"/" + c.names[0]}, WorkingDir: "/", Labels: r.labels()}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, fmt.Errorf("configuring the image: %w", err)
	}
	return image, nil
}

// newIndex returns an index of the images for all platforms.
func newIndex(programs []compiled, r release) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for i := range programs {
		p := &programs[i]
		image, err := p.image(&r)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &p.platform}})
	}
	annotated, ok := mutate.Annotations(index, r.labels()).(v1.ImageIndex)
	if !ok {
		return nil, errors.New("annotating the index: the result is not an index")
	}
	return annotated, nil
}

// write writes the index as an OCI layout, and as an archive for 'docker load', 'ctr
// images import' and 'skopeo copy oci-archive:'. It validates the written layout.
func write(out string, index v1.ImageIndex, r release) error {
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("removing the previous layout: %w", err)
	}
	path, err := layout.Write(out, empty.Index)
	if err != nil {
		return fmt.Errorf("writing the layout: %w", err)
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.version,
		// The name that containerd gives the image when it imports the archive. Without it,
		// the name is only the version, which no pod can use.
		"io.containerd.image.name": r.name,
	})); err != nil {
		return fmt.Errorf("writing the layout: %w", err)
	}
	written, err := path.ImageIndex()
	if err != nil {
		return fmt.Errorf("reading the layout: %w", err)
	}
	if err := validate.Index(written); err != nil {
		return fmt.Errorf("validating the layout: %w", err)
	}
	return archive(out, r.created)
}

// archive writes the files of a directory to a tar file.
func archive(dir string, at time.Time) (err error) {
	file, err := os.Create(dir + ".tar")
	if err != nil {
		return fmt.Errorf("creating the archive: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := tar.NewWriter(file)
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: filepath.ToSlash(name), Mode: 0o644, Size: int64(len(content)), ModTime: at}
		return errors.Join(w.WriteHeader(header), writeAll(w, content))
	})
	if err := errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

// describe prints the image's digest, and the size for each platform.
func describe(out io.Writer, index v1.ImageIndex, where string) error {
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("computing the digest: %w", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("reading the index: %w", err)
	}
	fmt.Fprintf(out, "%s and %s.tar: %s\n", where, where, digest)
	for _, m := range manifest.Manifests {
		image, err := index.Image(m.Digest)
		if err != nil {
			return fmt.Errorf("reading the index: %w", err)
		}
		layers, err := image.Layers()
		if err != nil {
			return fmt.Errorf("reading the image: %w", err)
		}
		size, err := layers[0].Size()
		if err != nil {
			return fmt.Errorf("measuring the image: %w", err)
		}
		fmt.Fprintf(out, "  %s: %.1f MB compressed\n", m.Platform, float64(size)/1e6)
	}
	return nil
}
