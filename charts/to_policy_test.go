// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/certificate"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/presets"
	"github.com/nodegate/nodegate/testcluster/freeport"
)

// Helm replaces the webhook by the policy, as after an upgrade of the cluster, while nodes are
// created. With the steps in docs/before-1.36.md, all of them are closed. Without these, Helm deletes
// the webhook before the API server uses the policy.
func TestSwitchFromWebhookToPolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "1.37")
	must(t, w.helm(object{"birth": "webhook", "webhook": object{"certificate": "existing"}}, "install", "nodegate", chart, "--create-namespace"))
	stopReplica := w.serveWebhook()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	created := &createdNodes{}
	running.Go(func() { created.run(ctx, w.admin) })
	created.awaitMore(t)

	w.keep("mutatingwebhookconfiguration", admission.BirthWebhook)
	w.keep("service", "-n", namespace, admission.WebhookService)
	must(t, w.helm(object{"birth": "auto"}, "upgrade", "nodegate", chart))
	w.get(namespace+"/"+admission.WebhookService, &corev1.Service{})
	// The webhook adds no tolerations. Helm creates this policy after that for nodes.
	eventually(t, "the API server to use the policies", func(ctx context.Context) error {
		daemon := requiredDaemon()
		daemon.Labels = map[string]string{"nodegate.dev/required": "true"}
		if err := w.admin.Create(ctx, daemon, client.DryRunAll); err != nil {
			return err
		}
		if len(daemon.Spec.Template.Spec.Tolerations) == 0 {
			return fmt.Errorf("no toleration was added")
		}
		return nil
	})
	created.awaitMore(t)
	stopReplica()
	created.awaitMore(t)
	must(t, w.admin.Delete(t.Context(), w.get(admission.BirthWebhook, &admissionregistrationv1.MutatingWebhookConfiguration{})))
	created.awaitMore(t)
	if open := created.open.Load(); open > 0 {
		t.Errorf("%d of %d nodes were created open", open, created.all.Load())
	}
}

// serveWebhook starts a replica that the API server calls, because Services have no network here,
// and waits until it is proved to close the default gate on new nodes. It returns a function that
// stops the replica.
func (w *world) serveWebhook() (stop func()) {
	w.Helper()
	address, err := freeport.Address()
	must(w.T, err)
	url := "https://" + address + admission.WebhookPath
	registration := w.get(admission.BirthWebhook, &admissionregistrationv1.MutatingWebhookConfiguration{}).(*admissionregistrationv1.MutatingWebhookConfiguration)
	registration.Webhooks[0].ClientConfig.Service, registration.Webhooks[0].ClientConfig.URL = nil, &url
	must(w.T, w.admin.Update(w.Context(), registration))
	must(w.T, certificate.Ensure(w.Context(), certificate.Options{
		Client: w.admin, Namespace: namespace, Settle: time.Millisecond, Hosts: []string{"127.0.0.1", admission.WebhookHost(namespace)}, Out: io.Discard, Progress: io.Discard,
	}))
	certificates, data := w.TempDir(), w.get(namespace+"/"+admission.WebhookSecret, &corev1.Secret{}).(*corev1.Secret).Data
	for _, name := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		write(w.T, filepath.Join(certificates, name), data[name])
	}
	i := &testbed.Installation{AllowedKeys: presets.TaintKeys(), ServiceAccount: types.NamespacedName{Namespace: namespace, Name: "nodegate"}}
	i.Program, err = testbed.BuildProgram(w.Context(), w.cluster.Dir())
	must(w.T, err)
	controller, err := testbed.StartController(w.Context(), w.cluster, i, "--birth=webhook", "--webhook-bind-address="+address, "--webhook-certificate-dir="+certificates)
	must(w.T, err)
	applier, err := testbed.NewApplier(w.cluster.Admin())
	must(w.T, err)
	must(w.T, testbed.AwaitGate(w.Context(), applier, defaultGate))
	return func() { must(w.T, controller.Stop()) }
}

// createdNodes counts nodes that are created in dry runs, and those without the default gate's
// taint.
type createdNodes struct{ all, open atomic.Int64 }

func (c *createdNodes) run(ctx context.Context, admin client.Client) {
	for ctx.Err() == nil {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "born", Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
		if admin.Create(ctx, node, client.DryRunAll) != nil {
			continue // otherwise, awaitMore fails
		}
		if !tainted(node) {
			c.open.Add(1)
		}
		c.all.Add(1)
	}
}

// awaitMore waits until a hundred more nodes have been created.
func (c *createdNodes) awaitMore(t *testing.T) {
	t.Helper()
	want := c.all.Load() + 100
	eventually(t, "nodes to be created", func(context.Context) error {
		if got := c.all.Load(); got < want {
			return fmt.Errorf("%d of %d nodes", got, want)
		}
		return nil
	})
}
