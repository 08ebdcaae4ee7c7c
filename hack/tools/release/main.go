// SPDX-License-Identifier: Apache-2.0

// Command release finishes and signs a release. Without a key it writes an SBOM
// beside each program in the directory, and the checksums of everything. With a key
// it checks those, signs them, and pushes the image with its signatures and
// attestations. Only the second step needs a secret, and it builds nothing.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
)

// imageLayout is the OCI layout, relative to the release's directory.
const imageLayout = "image"

type options struct {
	dist, version, key, image string
}

func main() {
	var o options
	flag.StringVar(&o.dist, "dist", "dist", "the directory of the release; its image is the OCI layout image/")
	flag.StringVar(&o.version, "version", "", "the version that SBOMs name; default: what the programs say")
	flag.StringVar(&o.key, "key", "", "sign with this ECDSA P-256 private key, a PEM file; default: write SBOMs and checksums")
	flag.StringVar(&o.image, "image", "", "with -key: push the image to this name, such as registry.example.com/nodegate:v0.1.0")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context) error {
	if o.key == "" {
		if err := writeSBOMs(o.dist, o.version); err != nil {
			return err
		}
		if err := writeDigest(o.dist); err != nil {
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
	if err := signer.signFile(filepath.Join(o.dist, checksumsFile)); err != nil {
		return err
	}
	if o.image == "" {
		return nil
	}
	tag, err := name.NewTag(o.image)
	if err != nil {
		return fmt.Errorf("parsing the image name %q: %w", o.image, err)
	}
	return publishImage(ctx, signer, o.dist, tag)
}
