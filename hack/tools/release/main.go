// SPDX-License-Identifier: Apache-2.0

// Command release completes and signs a release. Without a key, it writes an SBOM for each
// program, and the checksums of all files. With a key, it verifies the checksums, signs
// them, and pushes the images with their signatures and attestations. Only the second step
// needs a secret, and it builds nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
)

type options struct {
	dist, version, key, image string
}

func main() {
	var o options
	flag.StringVar(&o.dist, "dist", "dist", "the directory of the release, with the images as OCI layouts image/ and agent-image/")
	flag.StringVar(&o.version, "version", "", "the version in the SBOMs (default: that of the programs)")
	flag.StringVar(&o.key, "key", "", "sign with the ECDSA P-256 private key in this PEM file, instead of writing SBOMs and checksums")
	flag.StringVar(&o.image, "image", "", "push the image to this name, such as registry.example.com/nodegate:v0.1.0, and the node agent's to nodegate-agent:v0.1.0; requires -key")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context) error {
	if o.key == "" && o.image != "" {
		return errors.New("-image requires -key")
	}
	if o.key == "" {
		if err := writeSBOMs(o.dist, o.version); err != nil {
			return err
		}
		if err := writeDigests(o.dist); err != nil {
			return err
		}
		return writeChecksums(o.dist)
	}
	signer, err := loadSigner(o.key)
	if err != nil {
		return err
	}
	if err := checkChecksums(o.dist); err != nil {
		return err
	}
	if err := signFile(signer, filepath.Join(o.dist, checksumsFile)); err != nil {
		return err
	}
	if o.image == "" {
		return nil
	}
	tag, err := name.NewTag(o.image)
	if err != nil {
		return fmt.Errorf("parsing the image name %q: %w", o.image, err)
	}
	return publishImages(ctx, signer, o.dist, tag)
}
