// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nodegate/nodegate/internal/access"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/telemetry"
	"github.com/nodegate/nodegate/internal/webhook"
)

// Webhook configures how a process serves the webhook that closes gates at birth. Every
// replica serves it.
type Webhook struct {
	// Address is the address to listen on, such as ":9443". Required.
	Address string
	// CertificateDir is the directory in which the certificate is mounted. Required.
	CertificateDir string
	// ClientCAFile contains the CA certificates of permitted clients, as PEM; empty
	// permits all clients.
	ClientCAFile string
	// ClientNames contains the common names of permitted clients. Empty permits every client
	// with a certificate of these CAs.
	ClientNames []string
	// Period is webhook.Mounted.Period. Zero selects the default.
	Period time.Duration
	// DrainTime is webhook.Server.DrainTime. Zero selects the default.
	DrainTime time.Duration
}

// Validate returns an error if the address or the permitted clients are invalid.
func (w *Webhook) Validate() error {
	_, text, err := net.SplitHostPort(w.Address)
	if err != nil {
		return fmt.Errorf("reading the webhook's address: %w", err)
	}
	if port, err := strconv.Atoi(text); err != nil || port < 1 || port > 65535 {
		return fmt.Errorf("reading the webhook's address: port %q is not a number from 1 to 65535", text)
	}
	if len(w.ClientNames) > 0 && w.ClientCAFile == "" {
		return errors.New("names of the webhook's clients require the CA certificates of these clients")
	}
	return nil
}

// clientCAs reads the CA certificates of permitted clients; nil permits all.
func (w *Webhook) clientCAs() (*x509.CertPool, error) {
	if w.ClientCAFile == "" {
		return nil, nil
	}
	pool, err := cert.NewPool(w.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the CA certificates of the webhook's clients: %w", err)
	}
	return pool, nil
}

// serveWebhook adds the webhook to the manager.
func (p *Process) serveWebhook(m manager.Manager, gates func() ([]gate.Gate, bool)) error {
	if err := p.Webhook.Validate(); err != nil {
		return err
	}
	clients, err := p.Webhook.clientCAs()
	if err != nil {
		return err
	}
	certificate := &webhook.Mounted{
		Dir: p.Webhook.CertificateDir, Host: admission.WebhookHost(p.Options.Namespace), Period: p.Webhook.Period,
		OnLoad: telemetry.NewCertificateValidity(p.Registerer), Log: p.Options.Log,
	}
	mux := http.NewServeMux()
	mux.Handle(admission.WebhookPath, &webhook.Handler{Gates: gates, Log: p.Options.Log})
	server := &webhook.Server{
		Address: p.Webhook.Address, Handler: mux, GetCertificate: certificate.GetCertificate,
		ClientCAs: clients, ClientNames: p.Webhook.ClientNames, DrainTime: p.Webhook.DrainTime,
	}
	return errors.Join(
		m.Add(server),
		m.Add(certificate),
		m.AddReadyzCheck("webhook", access.Check(p.Options.Log, "webhook", certificate.Ready)),
	)
}

// birthGates returns the gates that close at birth, and whether they are known. They are shared
// and must not be modified.
func (c *Controller) birthGates() ([]gate.Gate, bool) {
	set := c.set.Load()
	return set.AtBirth, set.Seq > 0
}
