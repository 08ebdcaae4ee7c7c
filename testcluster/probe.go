// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/testcluster/await"
)

const (
	probeInterval = 50 * time.Millisecond
	probeTimeout  = 2 * time.Second
)

// probePaths are the paths of the components' readiness endpoints.
var probePaths = map[Component]string{
	// Installed programs may be older than 3.5.11, the first with /readyz.
	Etcd:              "/health",
	APIServer:         "/readyz",
	Scheduler:         "/readyz",
	ControllerManager: "/healthz",
	Controllers:       "/healthz",
	KWOK:              "/healthz",
}

// probe returns nil if a component is ready. The response must be authenticated
// by one of this cluster's certificates, because another process may be listening
// on the port.
func (c *Cluster) probe(ctx context.Context, component Component) error {
	client, err := c.probeClient(component)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	url := "https://" + address(c.port(component)) + probePaths[component]
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
	return fmt.Errorf("GET %s: %s: %s", url, response.Status, strings.TrimSpace(string(body)))
}

func (c *Cluster) probeClient(component Component) (*http.Client, error) {
	trusted, user := c.credentials.users, c.credentials.admin
	if component == Etcd {
		trusted, user = c.credentials.etcd, c.credentials.etcdUser
	}
	config, err := tlsConfig(trusted, user)
	if err != nil {
		return nil, fmt.Errorf("loading the probe's certificate: %w", err)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}, nil
}

// tlsConfig returns the TLS configuration of a client that trusts only one
// authority and authenticates as the user.
func tlsConfig(trusted *authority, user pair) (*tls.Config, error) {
	roots := x509.NewCertPool()
	roots.AddCert(trusted.certificate)
	certificate, err := tls.X509KeyPair(user.certificate, user.key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		RootCAs:      roots,
		Certificates: []tls.Certificate{certificate},
		MinVersion:   tls.VersionTLS12,
	}, nil
}

// awaitReady waits until a process is ready. It fails as soon as the process, or
// another component that should be running, has ended, and when the process has
// neither written to its log nor changed its response for await.Silence.
func (c *Cluster) awaitReady(ctx context.Context, p *process) error {
	ctx, progress, stop := await.Watch(ctx, await.Silence)
	defer stop()
	var written int64
	responses := map[string]bool{}
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	// Another process on the port may never answer, but the component that did
	// not get the port exits soon.
	probing, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.done:
			cancel()
		case <-probing.Done():
		}
	}()
	for {
		err := c.probe(probing, p.component)
		if err == nil {
			return nil
		}
		if size := p.logSize(); size != written || !responses[err.Error()] {
			written, responses[err.Error()] = size, true
			progress()
		}
		select {
		case <-p.done:
			return p.exitError()
		case <-c.done:
			return c.endError()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; last response: %w; log: %s",
				p.component, context.Cause(ctx), err, p.logFile)
		case <-ticker.C:
		}
	}
}

// awaitDefaultServiceAccount waits until pods can be created in the namespace
// "default", which is the last step of a cluster's start. It does not wait if no
// component that creates ServiceAccounts runs.
func (c *Cluster) awaitDefaultServiceAccount(ctx context.Context) error {
	if !slices.ContainsFunc([]Component{ControllerManager, Controllers}, c.active) {
		return nil
	}
	client, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-c.done:
			cancel(c.endError())
		case <-ctx.Done():
		}
	}()
	return await.Until(ctx, "the default ServiceAccount", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}
