// SPDX-License-Identifier: Apache-2.0

package birth

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A parameter is the PodTemplate that a policy reads, which contains entries of gates.
type parameter[E any] struct {
	client client.Client
	// have is the current state of the PodTemplate. write updates it.
	have corev1.PodTemplate
	// render returns the PodTemplate with these entries.
	render func([]E) *corev1.PodTemplate
	// correct returns have with what the policy reads from want, and whether that changed it.
	correct func(have, want *corev1.PodTemplate) (*corev1.PodTemplate, bool)
}

// store writes the entries. If the API server denies that, store writes those that it
// accepts, and calls reject for each of the others. An entry that it has accepted earlier may
// be among them, because it checks all entries at every write. Their removal from the
// parameter changes nothing: the policies ignore entries that are not allowed.
//
// It returns an error that does not concern single entries.
func (p *parameter[E]) store(ctx context.Context, entries []E, reject func(E, error)) error {
	err := p.write(ctx, entries)
	if !isDenied(err) {
		return err
	}
	if err := p.try(ctx, nil); err != nil {
		return err
	}
	accepted, err := p.accepted(ctx, entries, reject)
	if err != nil {
		return err
	}
	return p.write(ctx, accepted)
}

// write creates the PodTemplate, or corrects it if it exists.
func (p *parameter[E]) write(ctx context.Context, entries []E) error {
	corrected, changed := p.corrected(entries)
	if !changed {
		return nil
	}
	if err := send(ctx, p.client, corrected); err != nil {
		return err
	}
	p.have = *corrected
	return nil
}

// try does the same in a dry run, even if nothing changes, because the existing entries may no
// longer be allowed.
func (p *parameter[E]) try(ctx context.Context, entries []E) error {
	corrected, _ := p.corrected(entries)
	return send(ctx, client.NewDryRunClient(p.client), corrected)
}

// corrected returns the PodTemplate with these entries, and whether that changes it.
func (p *parameter[E]) corrected(entries []E) (*corev1.PodTemplate, bool) {
	want := p.render(entries)
	if p.have.ResourceVersion == "" {
		return want, true
	}
	return p.correct(&p.have, want)
}

// accepted returns the entries that the API server accepts, and calls reject for each of the
// others. It tries halves, so that few requests are needed if it rejects few entries.
func (p *parameter[E]) accepted(ctx context.Context, entries []E, reject func(E, error)) ([]E, error) {
	err := p.try(ctx, entries)
	switch {
	case err == nil:
		return entries, nil
	case !isDenied(err):
		return nil, err
	case len(entries) <= 1:
		for _, e := range entries {
			reject(e, err)
		}
		return nil, nil
	}
	half := len(entries) / 2
	first, err := p.accepted(ctx, entries[:half], reject)
	if err != nil {
		return nil, err
	}
	second, err := p.accepted(ctx, entries[half:], reject)
	return slices.Concat(first, second), err
}

func isDenied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// send creates the PodTemplate, or updates it if it exists.
func send(ctx context.Context, c client.Client, p *corev1.PodTemplate) error {
	if p.ResourceVersion == "" {
		if err := c.Create(ctx, p); err != nil {
			return fmt.Errorf("creating PodTemplate %s/%s: %w", p.Namespace, p.Name, err)
		}
		return nil
	}
	if err := c.Update(ctx, p); err != nil {
		return fmt.Errorf("updating PodTemplate %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}
