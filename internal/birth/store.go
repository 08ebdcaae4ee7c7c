// SPDX-License-Identifier: Apache-2.0

package birth

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/admission"
)

// A parameter is the PodTemplate that a policy reads, which contains entries of gates.
type parameter[E any] struct {
	client   client.Client
	clock    clock.PassiveClock
	rejected *rejections[E]
	// have is the current state of the PodTemplate. write updates it.
	have corev1.PodTemplate
	// render returns the PodTemplate with these entries.
	render func([]E) *corev1.PodTemplate
}

// rejections are the entries that the API server has rejected. They are left out of the
// parameter until they change, but at most BirthLater, because it takes many requests to
// find them.
type rejections[E any] struct {
	// until is the time at which they are tried again.
	until time.Time
	all   []rejection[E]
}

// rejection is an entry that the API server has rejected because of err.
type rejection[E any] struct {
	entry E
	err   error
}

// leaveOut returns the entries that are not known to be rejected, and calls reject for each
// of the others.
func (r *rejections[E]) leaveOut(entries []E, now time.Time, reject func(E, error)) (others []E) {
	if !now.Before(r.until) {
		r.all = nil
	}
	for _, e := range entries {
		i := slices.IndexFunc(r.all, func(one rejection[E]) bool { return equality.Semantic.DeepEqual(one.entry, e) })
		if i < 0 {
			others = append(others, e)
		} else {
			reject(e, r.all[i].err)
		}
	}
	return others
}

// store writes the entries. If the API server denies that, store writes those that it
// accepts, and calls reject for each of the others. An entry that it has accepted earlier may
// be among them, because it checks all entries at every write. Their removal from the
// parameter changes nothing: the policies ignore entries that are not allowed.
//
// It returns an error that does not concern single entries.
func (p *parameter[E]) store(ctx context.Context, entries []E, reject func(E, error)) error {
	entries = p.rejected.leaveOut(entries, p.clock.Now(), reject)
	err := p.write(ctx, entries)
	if !isDenied(err) {
		return err
	}
	if err := p.try(ctx, nil); err != nil {
		return err
	}
	search, cancel := context.WithTimeout(ctx, birthSearch)
	defer cancel()
	accepted, err := p.accepted(search, entries, func(e E, err error) {
		p.rejected.until = p.clock.Now().Add(BirthLater)
		p.rejected.all = append(p.rejected.all, rejection[E]{e, err})
		reject(e, err)
	})
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
	return admission.Corrected(&p.have, want)
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
	ctx, cancel := context.WithTimeout(ctx, birthTimeout)
	defer cancel()
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
