// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// The formats that cosign reads: see SIGNATURE_SPEC.md and ATTESTATION_SPEC.md there.
const (
	simpleSigning       types.MediaType = "application/vnd.dev.cosign.simplesigning.v1+json"
	envelope            types.MediaType = "application/vnd.dsse.envelope.v1+json"
	statement                           = "application/vnd.in-toto+json"
	statementType                       = "https://in-toto.io/Statement/v0.1"
	cycloneDX                           = "https://cyclonedx.org/bom"
	signatureAnnotation                 = "dev.cosignproject.cosign/signature"
	predicateAnnotation                 = "predicateType"
)

// object is an object of JSON.
type object = map[string]any

// publication is where an image is published, and by whom.
type publication struct {
	*signer
	dist       string
	repository name.Repository
	options    []remote.Option
}

// publishImage pushes the image of a release, signed: the index, and the image and
// SBOM of each platform. The tag comes last, so that it never names an image whose
// signature is still missing.
func publishImage(ctx context.Context, s *signer, dist string, tag name.Tag) error {
	dir := filepath.Join(dist, imageLayout)
	index, err := imageIndex(dir)
	if err != nil {
		return err
	}
	if err := validate.Index(index); err != nil {
		return fmt.Errorf("checking the image: %w", err)
	}
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("hashing the image: %w", err)
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
	if err := p.sign(ctx, digest); err != nil {
		return err
	}
	for _, image := range images {
		if err := p.sign(ctx, image.digest); err != nil {
			return err
		}
		if err := p.attest(ctx, image); err != nil {
			return err
		}
	}
	if err := remote.Tag(tag, index, p.options...); err != nil {
		return fmt.Errorf("tagging the image: %w", err)
	}
	fmt.Printf("pushed and signed %s@%s\n", p.repository, digest)
	return nil
}

func (p *publication) sign(ctx context.Context, digest v1.Hash) error {
	signature, err := p.signature(ctx, p.repository, digest)
	if err != nil {
		return fmt.Errorf("signing %s: %w", digest, err)
	}
	if err := remote.Write(beside(p.repository, digest, "sig"), signature, p.options...); err != nil {
		return fmt.Errorf("pushing the signature of %s: %w", digest, err)
	}
	return nil
}

func (p *publication) attest(ctx context.Context, image platformImage) error {
	bom, err := os.ReadFile(image.program.sbomPath(p.dist))
	if err != nil {
		return fmt.Errorf("reading an SBOM: %w", err)
	}
	attestation, err := p.attestation(ctx, p.repository, image.digest, bom)
	if err != nil {
		return fmt.Errorf("attesting the SBOM of %s: %w", image.program.name, err)
	}
	if err := remote.Write(beside(p.repository, image.digest, "att"), attestation, p.options...); err != nil {
		return fmt.Errorf("pushing the SBOM of %s: %w", image.program.name, err)
	}
	return nil
}

// beside is the tag under which cosign looks for what belongs to an image.
func beside(repository name.Repository, digest v1.Hash, what string) name.Tag {
	return repository.Tag(digest.Algorithm + "-" + digest.Hex + "." + what)
}

// signature returns the signature of an image, in the format "simple signing".
func (s *signer) signature(ctx context.Context, repository name.Repository, digest v1.Hash) (v1.Image, error) {
	payload, err := json.Marshal(object{
		"critical": object{
			"identity": object{"docker-reference": repository.Name()},
			"image":    object{"docker-manifest-digest": digest.String()},
			"type":     "cosign container image signature",
		},
		"optional": nil,
	})
	if err != nil {
		return nil, err
	}
	signature, err := s.Sign(ctx, payload)
	if err != nil {
		return nil, err
	}
	return artifact(payload, simpleSigning, map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(signature)})
}

// attestation returns the SBOM of an image as a signed in-toto statement.
func (s *signer) attestation(ctx context.Context, repository name.Repository, digest v1.Hash, bom []byte) (v1.Image, error) {
	text, err := json.Marshal(object{
		"_type": statementType, "predicateType": cycloneDX, "predicate": json.RawMessage(bom),
		"subject": []object{{"name": repository.Name(), "digest": object{digest.Algorithm: digest.Hex}}},
	})
	if err != nil {
		return nil, err
	}
	wrapper, err := dsse.NewEnvelopeSigner(s)
	if err != nil {
		return nil, err
	}
	signed, err := wrapper.SignPayload(ctx, statement, text)
	if err != nil {
		return nil, err
	}
	content, err := json.Marshal(signed)
	if err != nil {
		return nil, err
	}
	return artifact(content, envelope, map[string]string{signatureAnnotation: "", predicateAnnotation: cycloneDX})
}

// artifact wraps content as an image of one layer.
func artifact(content []byte, kind types.MediaType, annotations map[string]string) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.Append(base, mutate.Addendum{Layer: static.NewLayer(content, kind), MediaType: kind, Annotations: annotations})
}
