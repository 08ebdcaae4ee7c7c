// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/certificate"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/webhook"
)

// Webhook is how a process serves the webhook that closes gates at birth. Every
// replica serves it; the leader looks after its certificate.
type Webhook struct {
	// Address is where to listen, such as ":9443". Required.
	Address string
	// Hosts are the names and addresses by which the API server calls the
	// webhook. Default: that of its Service.
	Hosts []string
	// Period and Settle are those of the certificate. Zero for the defaults.
	Period, Settle time.Duration
	// IdleTimeout is that of webhook.Server. Zero for the default.
	IdleTimeout time.Duration
}

// Validate says what is wrong with the address.
func (w *Webhook) Validate() error {
	_, text, err := net.SplitHostPort(w.Address)
	if err != nil {
		return fmt.Errorf("reading the webhook's address: %w", err)
	}
	if port, err := strconv.Atoi(text); err != nil || port < 1 || port > 65535 {
		return fmt.Errorf("reading the webhook's address: port %q is none between 1 and 65535", text)
	}
	return nil
}

// serveWebhook adds to the manager what the webhook needs.
func (p *Process) serveWebhook(m manager.Manager, c *Controller, api client.Client) error {
	c.birth.by = admission.ByWebhook
	if err := p.Webhook.Validate(); err != nil {
		return err
	}
	options := certificate.Options{
		Client:        api,
		Secret:        client.ObjectKey{Namespace: p.Options.Namespace, Name: admission.WebhookSecret},
		Configuration: admission.BirthWebhook,
		Hosts:         p.Webhook.Hosts,
		Period:        p.Webhook.Period, Settle: p.Webhook.Settle,
		Log: p.Options.Log,
	}
	if options.Hosts == nil {
		options.Hosts = []string{admission.WebhookHost(p.Options.Namespace)}
	}
	expiry := newCertificateExpiry(p.Registerer)
	holder := certificate.NewHolder(options, func(until time.Time) { expiry.Set(float64(until.Unix())) })
	mux := http.NewServeMux()
	mux.Handle(admission.WebhookPath, &webhook.Handler{Gates: c.birthGates, Log: p.Options.Log})
	server := &webhook.Server{Address: p.Webhook.Address, Handler: mux, GetCertificate: holder.GetCertificate, IdleTimeout: p.Webhook.IdleTimeout}
	return errors.Join(
		m.Add(server),
		m.Add(everywhere(holder.Follow)),
		m.Add(inLeader(certificate.NewKeeper(options).Run)),
		m.AddReadyzCheck("webhook", check(holder.Ready)),
	)
}

// birthGates returns the gates that close at birth; false while they are not
// known. One that would have Nodes refused is not among them.
func (c *Controller) birthGates() ([]gate.Gate, bool) {
	set := c.set.Load()
	var gates []gate.Gate
	for i := range set.gates {
		name := set.gates[i].Name
		if set.closesAtBirth(name) && admission.Writable(set.declared[name]) == nil {
			gates = append(gates, set.gates[i])
		}
	}
	return gates, set.seq > 0
}
