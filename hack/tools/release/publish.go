// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
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

// publishImage pushes and signs the image of a release: the index, and the image and SBOM
// of each platform. It pushes the tag last, so that the tag never refers to an image
// without a signature.
func publishImage(ctx context.Context, s signature.Signer, dist string, tag name.Tag) error {
	dir := filepath.Join(dist, imageLayout)
	index, err := imageIndex(dir)
	if err != nil {
		return err
	}
	if err := validate.Index(index); err != nil {
		return fmt.Errorf("validating the image: %w", err)
	}
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("computing the digest: %w", err)
	}
	if err := checkDigest(dist, digest); err != nil {
		return err
	}
	images, err := platformImages(dir)
	if err != nil {
		return err
	}
	p := publication{s, dist, tag.Context(), []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}}
	if err := remote.WriteIndex(p.repository.Digest(digest.String()), index, p.options...); err != nil {
		return fmt.Errorf("pushing the image: %w", err)
	}
	if err := p.sign(digest); err != nil {
		return err
	}
	for _, image := range images {
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
	return p.push(digest, "sig", content, simpleSigning, map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(sig)})
}

// attest pushes the SBOM of an image, as a signed in-toto statement.
func (p *publication) attest(image platformImage) error {
	bom, err := os.ReadFile(image.program.sbomPath(p.dist))
	if err != nil {
		return fmt.Errorf("reading an SBOM: %w", err)
	}
	text, err := json.Marshal(object{
		"_type": statementType, "predicateType": cycloneDX, "predicate": json.RawMessage(bom),
		"subject": []object{{"name": p.repository.Name(), "digest": object{image.digest.Algorithm: image.digest.Hex}}},
	})
	if err != nil {
		return fmt.Errorf("encoding the attestation of %s: %w", image.program.name, err)
	}
	content, err := dsse.WrapSigner(p.signer, statement).SignMessage(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("signing the SBOM of %s: %w", image.program.name, err)
	}
	return p.push(image.digest, "att", content, envelope, map[string]string{signatureAnnotation: "", predicateAnnotation: cycloneDX})
}

// push pushes an image whose only layer is the content, to the tag under which cosign
// finds the signature or attestation of an image.
func (p *publication) push(digest v1.Hash, suffix string, content []byte, kind types.MediaType, annotations map[string]string) error {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	artifact, err := mutate.Append(base, mutate.Addendum{Layer: static.NewLayer(content, kind), MediaType: kind, Annotations: annotations})
	if err != nil {
		return fmt.Errorf("creating the artifact of %s: %w", digest, err)
	}
	if err := remote.Write(p.repository.Tag(digest.Algorithm+"-"+digest.Hex+"."+suffix), artifact, p.options...); err != nil {
		return fmt.Errorf("pushing the artifact of %s: %w", digest, err)
	}
	return nil
}
