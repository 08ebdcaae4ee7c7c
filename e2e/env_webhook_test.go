// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/certificate"
	"github.com/nodegate/nodegate/internal/controller"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// olderVersion is the newest that has no MutatingAdmissionPolicy v1. See OLDER in
// the Makefile.
const olderVersion = "1.35"

// olderEnv is an installation with the webhook on such an API server. Because there is no
// network for Services here, a proxy of the test replaces the Service.
type olderEnv struct {
	*env
	service *service
	// certificates is where replicas have the webhook's certificate from.
	certificates string
	// clients is by what the API server is known to replicas that ask.
	clients *clientCertificates
	// known has replicas answer only the API server.
	known bool
	// elects has one replica lead; otherwise all do. A leader that cannot renew
	// its lease ends, as it may on a machine that is very busy.
	elects bool
}

// newOlderEnv starts a cluster of the test's own. If the tests are to run on a
// certain version, it is of that one: newer ones can be asked to use the webhook,
// too.
func newOlderEnv(t *testing.T) *olderEnv {
	t.Helper()
	clustertest.SkipIfShort(t)
	t.Parallel() // it has a cluster of its own
	clients := newClientCertificates(t)
	c, err := testcluster.Start(t.Context(), testcluster.Options{
		KubernetesVersion: cmp.Or(os.Getenv(testcluster.VersionVariable), olderVersion), Components: []testcluster.Component{testcluster.APIServer}, Audit: true,
		ExtraArgs: map[testcluster.Component][]string{testcluster.APIServer: {"--admission-control-config-file=" + clients.configuration}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.Keep()
			t.Logf("the cluster's logs are in %s", c.Dir())
		}
		if err := errors.Join(c.Err(), c.Stop()); err != nil {
			t.Error(err)
		}
	})
	o := &olderEnv{env: &env{T: t, cluster: c, admin: newClient(t, c)}, service: newService(t), certificates: t.TempDir(), clients: clients}
	options := installation
	options.Birth = admission.ByWebhook
	o.must(o.installAs(t.Context(), options))
	o.callWebhookAt(o.service.Addr().String())
	o.certify(false)
	return o
}

// sub is the environment for one of the test's parts, which finds the cluster
// empty.
func (o *olderEnv) sub(t *testing.T) *olderEnv {
	t.Helper()
	e := &env{T: t, cluster: o.cluster, admin: o.admin}
	t.Cleanup(func() { e.clean(context.Background()) })
	return &olderEnv{env: e, service: o.service, certificates: o.certificates, clients: o.clients}
}

// callWebhookAt configures the API server to call the webhook at an address.
func (o *olderEnv) callWebhookAt(address string) {
	o.Helper()
	url := "https://" + address + admission.WebhookPath
	o.must(retry.RetryOnConflict(persistently, func() error {
		configuration := o.registration()
		clientConfig := &configuration.Webhooks[0].ClientConfig
		clientConfig.Service, clientConfig.URL = nil, &url
		return o.admin.Update(o.Context(), configuration)
	}))
}

func (o *olderEnv) registration() *admissionregistrationv1.MutatingWebhookConfiguration {
	o.Helper()
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	o.must(o.admin.Get(o.Context(), client.ObjectKey{Name: admission.BirthWebhook}, &configuration))
	return &configuration
}

// certify does what 'nodegate webhook-certificate' does, and what the kubelet then
// does with the Secret.
func (o *olderEnv) certify(renew bool) {
	o.Helper()
	o.must(certificate.Ensure(o.Context(), certificate.Options{
		Client: o.admin, Namespace: installation.Namespace, Renew: renew, Settle: time.Second,
		Hosts: []string{"127.0.0.1", admission.WebhookHost(installation.Namespace)}, Out: io.Discard, Progress: io.Discard,
	}))
	secret := o.secret()
	for _, name := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		o.must(os.WriteFile(filepath.Join(o.certificates, name), secret.Data[name], 0o600))
	}
}

func (o *olderEnv) secret() *corev1.Secret {
	o.Helper()
	var secret corev1.Secret
	o.must(o.admin.Get(o.Context(), client.ObjectKey{Namespace: installation.Namespace, Name: admission.WebhookSecret}, &secret))
	return &secret
}

// replica is a replica of nodegate.
type replica struct {
	address string
	metrics *prometheus.Registry
	stop    func()
}

// replica starts a replica that is not yet an endpoint of the Service.
func (o *olderEnv) replica() *replica {
	o.Helper()
	// It is free until somebody else takes it, as the cluster's own ports are.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	o.must(err)
	o.must(listener.Close())
	r := &replica{address: listener.Addr().String(), metrics: prometheus.NewRegistry()}
	r.stop = o.runController(func(p *controller.Process) {
		p.Registerer, p.LeaderElect = r.metrics, o.elects
		p.Webhook = &controller.Webhook{Address: r.address, CertificateDir: o.certificates, Period: 200 * time.Millisecond, IdleTimeout: 100 * time.Millisecond}
		if o.known {
			p.Webhook.ClientCAFile, p.Webhook.ClientNames = o.clients.authority, []string{clientName}
		}
	})
	return r
}

// serve starts replicas and waits until the Service has them, and the API server
// trusts them.
func (o *olderEnv) serve(n int) []*replica {
	o.Helper()
	var all []*replica
	for range n {
		all = append(all, o.replica())
	}
	for _, r := range all {
		o.eventually("a replica serves", func() error {
			if metric(r.metrics, "nodegate_webhook_certificate_expiry_timestamp_seconds") <= 0 {
				return errNotYet
			}
			return nil
		})
	}
	o.service.use(all...)
	return all
}

// service passes connections on, by turns, to replicas. It cannot read them.
type service struct {
	net.Listener
	mu       sync.Mutex
	replicas []*replica
	hung     bool
	turn     int
	open     map[net.Conn]chan struct{}
}

func newService(t *testing.T) *service {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &service{Listener: listener, open: map[net.Conn]chan struct{}{}}
	t.Cleanup(func() { _ = listener.Close(); s.use() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go s.pass(connection)
		}
	}()
	return s
}

// use replaces the endpoints of the Service, and closes all connections.
func (s *service) use(replicas ...*replica) { s.become(false, replicas...) }

// cut ends all connections, and returns when the API server knows: it would not
// try again what it sends into one that is broken.
func (s *service) cut() {
	s.mu.Lock()
	var ended []chan struct{}
	for c, done := range s.open {
		_ = c.(*net.TCPConn).CloseWrite()
		ended = append(ended, done)
	}
	s.mu.Unlock()
	for _, done := range ended {
		<-done
	}
}

// hang makes the Service accept connections without a response.
func (s *service) hang() { s.become(true) }

func (s *service) become(hung bool, replicas ...*replica) {
	s.mu.Lock()
	s.hung, s.replicas = hung, replicas
	s.mu.Unlock()
	s.cut()
}

func (s *service) pass(from net.Conn) {
	to, hung := s.connect()
	done := make(chan struct{})
	s.mu.Lock()
	s.open[from] = done
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, from)
		_ = from.Close()
		close(done)
	}()
	switch {
	case to != nil:
		defer to.Close()
		go func() { _, _ = io.Copy(from, to); _ = from.(*net.TCPConn).CloseWrite() }()
		_, _ = io.Copy(to, from)
	case hung:
		_, _ = io.Copy(io.Discard, from)
	}
}

// connect reaches the next replica that answers.
func (s *service) connect() (to net.Conn, hung bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range s.replicas {
		s.turn++
		if to, err := net.Dial("tcp", s.replicas[s.turn%len(s.replicas)].address); err == nil {
			return to, false
		}
	}
	return nil, s.hung
}

// born checks how a Node came out of its registration.
func born(node *corev1.Node, wantKeys ...string) error {
	for _, key := range wantKeys {
		if !hasTaint(node, key) {
			return fmt.Errorf("node %s was born with %q, want %v", node.Name, keys(node), wantKeys)
		}
	}
	if len(records(node)) != len(wantKeys) {
		return fmt.Errorf("node %s was born with records %v, want %d", node.Name, records(node), len(wantKeys))
	}
	return nil
}
