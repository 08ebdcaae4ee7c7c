// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	defaultPeriod = 10 * time.Second
	defaultSettle = 5 * time.Minute
	// hurry is how much more often a replica looks that has nothing to serve with.
	hurry = 10
	// stepPause comes between two steps.
	stepPause      = 50 * time.Millisecond
	requestTimeout = 5 * time.Second
)

// Options say where certificates are kept, and for whom. Zero values have
// sensible meanings, except where noted.
type Options struct {
	// Client reads from the API server, not from a cache: what two leaders do at
	// once rests on it. Required.
	Client client.Client
	// Secret is where keys and certificates are kept. It must exist. Required.
	Secret client.ObjectKey
	// Configuration is the name of the MutatingWebhookConfiguration. Required.
	Configuration string
	// Hosts are the names and addresses by which the API server calls the
	// webhook. Required.
	Hosts []string
	// Period is how often everything is looked at. Default: 10 s.
	Period time.Duration
	// Settle is how long it may take until every API server has heard of a new
	// authority. Default: 5 min.
	Settle time.Duration
	// Clock tells the time. Default: the real one.
	Clock clock.WithTicker
	// Log receives one line for each change.
	Log logr.Logger
}

func (o Options) withDefaults() Options {
	if o.Period == 0 {
		o.Period = defaultPeriod
	}
	if o.Settle == 0 {
		o.Settle = defaultSettle
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

// Keeper makes and rotates certificates, and publishes their authority.
type Keeper struct {
	Options
	// newest is the authority that was last seen to be published, and since when
	// this process has found it so.
	newest []byte
	since  time.Time
	failed bool
}

// NewKeeper returns a keeper, to be run by the leader.
func NewKeeper(o Options) *Keeper { return &Keeper{Options: o.withDefaults()} }

// Run works until the context ends.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		pause := k.Period
		again, err := k.step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !k.failed:
			k.Log.Error(err, "cannot look after the webhook's certificate, retrying")
		case again:
			pause = stepPause
		}
		k.failed = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-k.Clock.After(pause):
		}
	}
}

// step takes at most one step, and tells whether another may follow at once.
//
// The order of reading matters where two leaders work at once: what is published
// comes from a Secret that was read after the configuration, which is not written
// if it has changed since. So nobody takes back what another has published.
func (k *Keeper) step(ctx context.Context) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	if err := k.Client.Get(ctx, client.ObjectKey{Name: k.Configuration}, &configuration); err != nil {
		return false, fmt.Errorf("reading the MutatingWebhookConfiguration: %w", err)
	}
	var secret corev1.Secret
	if err := k.Client.Get(ctx, k.Secret, &secret); err != nil {
		return false, fmt.Errorf("reading the Secret: %w", err)
	}
	m := parse(secret.Data)
	changed, err := m.advance(k.Clock.Now(), k.Hosts, k.published(&configuration, &m))
	if err != nil {
		return false, err
	}
	if changed {
		if secret.Data, err = m.data(); err != nil {
			return false, err
		}
		if err := k.Client.Update(ctx, &secret); err != nil {
			return false, fmt.Errorf("updating the Secret: %w", err)
		}
		k.Log.Info("webhook certificates renewed", "authorities", len(m.authorities), "authorityUntil", m.signer.Leaf.NotAfter)
	}
	wrote, err := k.publish(ctx, &configuration, encode(m.authorities))
	return changed || wrote, err
}

// published reads what the API server is told to trust: what all webhooks of the
// configuration have in common.
func (k *Keeper) published(configuration *admissionregistrationv1.MutatingWebhookConfiguration, m *material) published {
	var p published
	for i := range configuration.Webhooks {
		these, _ := cert.ParseCertsPEM(configuration.Webhooks[i].ClientConfig.CABundle)
		if i == 0 {
			p.authorities = these
			continue
		}
		for _, c := range p.authorities {
			if !contains(these, c) {
				p.authorities = nil // not published everywhere is not published
				break
			}
		}
	}
	if m.signer == nil || !contains(p.authorities, m.signer.Leaf) {
		k.newest = nil
		return p
	}
	if now := k.Clock.Now(); !bytes.Equal(k.newest, m.signer.Leaf.Raw) {
		k.newest, k.since = m.signer.Leaf.Raw, now
	} else {
		p.settled = now.Sub(k.since) >= k.Settle
	}
	return p
}

// publish tells the API server whom to trust, unless it has been told. Whoever
// else writes the bundle, such as a tool that applies manifests without it, has
// it put right.
func (k *Keeper) publish(ctx context.Context, configuration *admissionregistrationv1.MutatingWebhookConfiguration, bundle []byte) (wrote bool, err error) {
	operations := []map[string]any{{"op": "test", "path": "/metadata/resourceVersion", "value": configuration.ResourceVersion}}
	for i := range configuration.Webhooks {
		if !bytes.Equal(configuration.Webhooks[i].ClientConfig.CABundle, bundle) {
			operations = append(operations, map[string]any{"op": "add", "path": fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), "value": bundle})
		}
	}
	if len(operations) == 1 {
		return false, nil
	}
	body, err := json.Marshal(operations)
	if err != nil {
		return false, fmt.Errorf("marshalling the patch: %w", err)
	}
	if err := k.Client.Patch(ctx, configuration, client.RawPatch(types.JSONPatchType, body)); err != nil {
		return false, fmt.Errorf("patching the MutatingWebhookConfiguration: %w", err)
	}
	k.Log.Info("webhook authorities published", "configuration", k.Configuration)
	return true, nil
}
