// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
)

// How often closing at birth is looked at: at once when gates change, soon
// again until it is proved (policies take up to a second to take effect), and
// now and then ever after, for it can be switched off at any time.
const (
	birthSoon    = time.Second
	birthLater   = 15 * time.Second
	birthProved  = 5 * time.Minute
	birthHasty   = 10 // how many times soon before later
	birthTimeout = 10 * time.Second
)

// birth keeps the birth policy's parameters in line with the gates, and finds
// out whether the API server really closes gates at birth.
type birth struct {
	client    client.Client
	namespace string
	log       logr.Logger
	wake      chan struct{}

	mu    sync.Mutex
	proof map[string]error // by gate; nil error: proved
}

func newBirth(c client.Client, namespace string, log logr.Logger) *birth {
	return &birth{client: c, namespace: namespace, log: log, wake: make(chan struct{}, 1), proof: map[string]error{}}
}

// changed has everything looked at soon.
func (b *birth) changed() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run works until the context ends.
func (b *birth) run(ctx context.Context, clk clock.WithTicker, current *atomic.Pointer[gateSet]) {
	hurry := birthHasty
	timer := clk.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
			hurry = birthHasty
		case <-timer.C():
		}
		wait := birthProved
		if !b.look(ctx, current.Load()) {
			wait = birthLater
			if hurry--; hurry > 0 {
				wait = birthSoon
			}
		}
		timer.Reset(wait)
	}
}

// look brings the parameters in line and proves every gate. It tells whether
// all is well.
func (b *birth) look(ctx context.Context, set *gateSet) bool {
	ctx, cancel := context.WithTimeout(ctx, birthTimeout)
	defer cancel()
	syncErr := b.syncParameters(ctx, set)
	proof := make(map[string]error)
	well := syncErr == nil
	for name, ng := range set.declared {
		if !set.acceptance[name].Accepted {
			continue
		}
		err := b.prove(ctx, ng)
		if err != nil && syncErr != nil {
			err = syncErr // the cause, rather than its consequence
		}
		proof[name] = err
		well = well && err == nil
	}
	if ctx.Err() != nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, err := range proof {
		if was, known := b.proof[name]; !known || (was == nil) != (err == nil) {
			b.log.Info("closing at birth checked", "gate", name, "proved", err == nil)
		}
	}
	b.proof = proof
	return well
}

// proved returns nil if new nodes are known to be closed by the API server,
// and otherwise why not.
func (b *birth) proved(gateName string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err, known := b.proof[gateName]
	if !known {
		return errors.New("whether new nodes are closed has not been checked yet")
	}
	return err
}

// syncParameters makes the parameters what the accepted gates ask for. While
// it is not known which gates exist, no parameter is removed.
func (b *birth) syncParameters(ctx context.Context, set *gateSet) error {
	var want []*corev1.PodTemplate
	for _, name := range set.names() {
		if !set.acceptance[name].Accepted {
			continue
		}
		p, err := admission.Parameter(b.namespace, set.declared[name])
		if err != nil {
			return fmt.Errorf("rendering birth parameter of gate %s: %w", name, err)
		}
		want = append(want, p)
	}
	var have corev1.PodTemplateList
	err := b.client.List(ctx, &have, client.InNamespace(b.namespace), client.HasLabels{v1alpha1.ParameterLabel})
	if err != nil {
		return fmt.Errorf("listing birth parameters: %w", err)
	}
	changes := admission.Plan(want, have.Items)
	var errs []error
	for _, p := range changes.Create {
		errs = append(errs, wrap("creating birth parameter", b.client.Create(ctx, p)))
	}
	for _, p := range changes.Update {
		errs = append(errs, wrap("updating birth parameter", b.client.Update(ctx, p)))
	}
	for _, p := range changes.Delete {
		if set.complete || set.deleted[p.Name] {
			errs = append(errs, wrap("deleting birth parameter", client.IgnoreNotFound(b.client.Delete(ctx, p))))
		}
	}
	return errors.Join(errs...)
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// prove has the API server create a node that the gate selects, in a dry run,
// and looks whether it comes back closed.
func (b *birth) prove(ctx context.Context, ng *v1alpha1.NodeGate) error {
	probe, ok := admission.Probe(ng)
	if !ok {
		return nil // no node can ever be selected
	}
	err := b.client.Create(ctx, probe, client.DryRunAll)
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("a node named %s exists: delete it, the name is needed for probes", probe.Name)
	}
	if err != nil {
		return fmt.Errorf("creating a probe node in a dry run: %w", err)
	}
	return admission.Proved(ng, probe)
}
