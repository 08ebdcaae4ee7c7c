// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// Formats of cosign; see its SIGNATURE_SPEC.md and ATTESTATION_SPEC.md.
const (
	simpleSigning       types.MediaType = "application/vnd.dev.cosign.simplesigning.v1+json"
	envelope            types.MediaType = "application/vnd.dsse.envelope.v1+json"
	statement                           = "application/vnd.in-toto+json"
	statementType                       = "https://in-toto.io/Statement/v0.1"
	cycloneDX                           = "https://cyclonedx.org/bom"
	signatureAnnotation                 = "dev.cosignproject.cosign/signature"
	predicateAnnotation                 = "predicateType"
)

// object is a JSON object.
type object = map[string]any

// publication pushes signed artifacts to a repository.
type publication struct {
	signer     signature.Signer
	dist       string
	repository name.Repository
	options    []remote.Option
}

// publishImages pushes and signs all images of a release, after it has checked them all.
func publishImages(ctx context.Context, s signature.Signer, dist string, first name.Tag) error {
	for _, i := range images {
		if err := i.check(dist); err != nil {
			return err
		}
	}
	for _, i := range images {
		p := publication{s, dist, i.tag(first).Context(), []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}}
		if err := p.publish(i, i.tag(first)); err != nil {
			return err
		}
	}
	return nil
}

// publish pushes and signs an image: the index, and the image and SBOMs of each platform. It
// pushes the tag last, so that the tag never refers to an image without a signature.
func (p *publication) publish(i releaseImage, tag name.Tag) error {
	index, digest, err := i.index(p.dist)
	if err != nil {
		return err
	}
	platforms, err := i.platforms(p.dist)
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(p.repository.Digest(digest.String()), index, p.options...); err != nil {
		return fmt.Errorf("pushing the image: %w", err)
	}
	if err := p.sign(digest); err != nil {
		return err
	}
	for _, image := range platforms {
		if err := p.sign(image.digest); err != nil {
			return err
		}
		if err := p.attest(image); err != nil {
			return err
		}
	}
	if err := remote.Tag(tag, index, p.options...); err != nil {
		return fmt.Errorf("tagging the image: %w", err)
	}
	fmt.Printf("pushed and signed %s@%s\n", p.repository, digest)
	return nil
}

// sign pushes the signature of an image, in the "simple signing" format.
func (p *publication) sign(digest v1.Hash) error {
	content, err := json.Marshal(payload.Cosign{Image: p.repository.Digest(digest.String()), ClaimedIdentity: p.repository.Name()})
	if err != nil {
		return fmt.Errorf("encoding the signature of %s: %w", digest, err)
	}
	sig, err := p.signer.SignMessage(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("signing %s: %w", digest, err)
	}
	return p.push(digest, "sig", mutate.Addendum{
		Layer: static.NewLayer(content, simpleSigning), MediaType: simpleSigning,
		Annotations: map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(sig)},
	})
}

// attest pushes the SBOMs of an image's programs, as signed in-toto statements.
func (p *publication) attest(image platformImage) error {
	var attestations []mutate.Addendum
	for i := range image.programs {
		content, err := p.attestation(image.digest, &image.programs[i])
		if err != nil {
			return err
		}
		attestations = append(attestations, mutate.Addendum{
			Layer: static.NewLayer(content, envelope), MediaType: envelope,
			Annotations: map[string]string{signatureAnnotation: "", predicateAnnotation: cycloneDX},
		})
	}
	return p.push(image.digest, "att", attestations...)
}

// attestation returns a program's SBOM as a signed statement about an image.
func (p *publication) attestation(digest v1.Hash, of *program) ([]byte, error) {
	bom, err := os.ReadFile(of.sbomPath(p.dist))
	if err != nil {
		return nil, fmt.Errorf("reading an SBOM: %w", err)
	}
	text, err := json.Marshal(object{
		"_type": statementType, "predicateType": cycloneDX, "predicate": json.RawMessage(bom),
		"subject": []object{{"name": p.repository.Name(), "digest": object{digest.Algorithm: digest.Hex}}},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the attestation of %s: %w", of.name, err)
	}
	content, err := dsse.WrapSigner(p.signer, statement).SignMessage(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("signing the SBOM of %s: %w", of.name, err)
	}
	return content, nil
}

// push pushes an artifact with layers, to the tag under which cosign finds the signature or
// attestations of an image.
func (p *publication) push(digest v1.Hash, suffix string, layers ...mutate.Addendum) error {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	artifact, err := mutate.Append(base, layers...)
	if err != nil {
		return fmt.Errorf("creating the artifact of %s: %w", digest, err)
	}
	if err := remote.Write(p.repository.Tag(digest.Algorithm+"-"+digest.Hex+"."+suffix), artifact, p.options...); err != nil {
		return fmt.Errorf("pushing the artifact of %s: %w", digest, err)
	}
	return nil
}
