// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
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
	"github.com/nodegate/nodegate/testcluster/freeport"
)

// olderVersion is the newest version without MutatingAdmissionPolicy v1. See OLDER in the
// Makefile.
const olderVersion = "1.35"

// olderEnv is an installation with the webhook on an API server of that version. Because
// Services have no network here, a proxy of the test replaces the webhook's Service.
type olderEnv struct {
	*env
	service *service
	// certificates is the directory of the webhook's certificate.
	certificates string
	// clients authenticates the API server to replicas that require it.
	clients *clientCertificates
	// known is whether replicas serve only the API server.
	known bool
	// elects is whether the replicas elect a leader. Otherwise all of them lead. A leader
	// that cannot renew its Lease exits, which can happen on a very busy machine.
	elects bool
}

// newOlderEnv starts a cluster for one test, with olderVersion or the version that the
// environment specifies: newer versions also support the webhook.
func newOlderEnv(t *testing.T) *olderEnv {
	t.Helper()
	clients := newClientCertificates(t)
	e := newOwnCluster(t, testcluster.Options{
		KubernetesVersion: cmp.Or(os.Getenv(testcluster.VersionVariable), olderVersion), Components: []testcluster.Component{testcluster.APIServer},
		ExtraArgs: map[testcluster.Component][]string{testcluster.APIServer: {"--admission-control-config-file=" + clients.configuration}},
	})
	o := &olderEnv{env: e, service: newService(t), certificates: t.TempDir(), clients: clients}
	options := installation
	options.Birth = admission.ByWebhook
	o.must(o.installAs(t.Context(), options))
	o.callWebhookAt(o.service.Addr().String())
	o.certify(false)
	return o
}

// sub returns the environment for a subtest, which starts and ends with an empty cluster.
func (o *olderEnv) sub(t *testing.T) *olderEnv {
	t.Helper()
	e := o.in(t)
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

// certify creates the certificate as 'nodegate webhook-certificate' does, and writes it to
// files as the kubelet does for a mounted Secret.
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

// replica is a running replica of nodegate.
type replica struct {
	address string
	metrics *prometheus.Registry
	stop    func()
}

// replica starts a replica that is not yet an endpoint of the Service.
func (o *olderEnv) replica(change ...func(*controller.Process)) *replica {
	o.Helper()
	address, err := freeport.Address()
	o.must(err)
	r := &replica{address: address, metrics: prometheus.NewRegistry()}
	r.stop = o.runController(func(p *controller.Process) {
		p.Registerer, p.LeaderElect = r.metrics, o.elects
		p.Webhook = &controller.Webhook{Address: r.address, CertificateDir: o.certificates, Period: 200 * time.Millisecond, DrainTime: 2 * time.Second}
		if o.known {
			p.Webhook.ClientCAFile, p.Webhook.ClientNames = o.clients.authority, []string{clientName}
		}
		for _, f := range change {
			f(p)
		}
	})
	return r
}

// serve starts replicas, waits until they have the webhook's certificate, and makes them the
// endpoints of the Service.
func (o *olderEnv) serve(n int) []*replica {
	o.Helper()
	var all []*replica
	for range n {
		all = append(all, o.replica())
	}
	for _, r := range all {
		o.eventually("the replica has a certificate", func() error {
			return unless(metric(r.metrics, "nodegate_webhook_certificate_expiry_timestamp_seconds") > 0)
		})
	}
	o.service.use(all...)
	return all
}

// service forwards connections to replicas in turn, without terminating TLS.
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

// cut closes all connections, and returns when the API server has closed them, too: it would
// not retry a request that it sends on a broken connection.
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

// hang makes the Service accept connections and never respond.
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

// connect connects to the next replica that accepts the connection.
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

// born checks the taints and records with which a Node was created.
func born(node *corev1.Node, wantKeys ...string) error {
	for _, key := range wantKeys {
		if !hasTaint(node, key) {
			return fmt.Errorf("node %s was created with taints %q, want %v", node.Name, keys(node), wantKeys)
		}
	}
	if len(records(node)) != len(wantKeys) {
		return fmt.Errorf("node %s was created with records %v, want %d", node.Name, records(node), len(wantKeys))
	}
	return nil
}
