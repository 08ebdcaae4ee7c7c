// SPDX-License-Identifier: Apache-2.0

// Package e2e holds tests of the whole controller, under its own restricted
// ServiceAccount, against a real control plane.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/install"
	"github.com/nodegate/nodegate/presets"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// Taint keys that the tested installation allows.
const (
	keyA = "test.nodegate.dev/a"
	keyB = "test.nodegate.dev/b"
)

var installation = install.Options{
	Namespace:      "nodegate-system",
	ServiceAccount: "nodegate",
	AllowedTaintKeys: append([]string{
		keyA, keyA + ":PreferNoSchedule", keyA + ":NoExecute", keyB, keyB + ":NoExecute", v1alpha1.TaintOutOfService + ":NoExecute",
	}, presets.TaintKeys()...),

	AllowedStampAnnotations: []string{stampKey},
}

// daemonNamespace is the namespace of the tests' daemons.
const daemonNamespace = "daemons"

// simultaneous is the number of tests that run at the same time, unless -parallel is given.
// Most of them wait most of the time, each in a cluster of its own.
const simultaneous = 4

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard()) // each test's controller has its own logger
	// Tests simulate the kubelets and the DaemonSet controller, to determine when
	// something happens. The demo runs the real DaemonSet controller.
	clustertest.InParallel(simultaneous)
	clustertest.Main(m, testcluster.Options{Components: []testcluster.Component{testcluster.APIServer}, Audit: true})
}

// newEnv returns a cluster with only nodegate installed, which the test has to itself until it
// ends. Then it is cleaned up.
func newEnv(t *testing.T) *env {
	t.Helper()
	clustertest.SkipWithoutMutatingPolicies(t)
	c := clustertest.Idle(t, func(c *testcluster.Cluster) error {
		return (&env{T: t, cluster: c, admin: newClient(t, c)}).install(context.Background())
	})
	e := &env{T: t, cluster: c, admin: newClient(t, c)}
	log := e.readAuditLog()
	e.earlier = auditMark{len(log.events), len(log.watches)}
	before, err := e.objectKeys(t.Context())
	e.must(err)
	t.Cleanup(func() {
		ctx := context.Background() // the test's own context has ended
		e.clean(ctx)
		if err := errors.Join(e.closeNothing(ctx), e.leavesNothing(ctx, before)); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	return e
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatalf("building scheme: %v", err)
	}
	return scheme
}

func newClient(t *testing.T, c *testcluster.Cluster) client.WithWatch {
	t.Helper()
	api, err := client.NewWithWatch(c.Admin(), client.Options{Scheme: newScheme(t)})
	if err != nil {
		t.Fatalf("building client: %v", err)
	}
	return api
}

// install applies the output of 'nodegate manifests', in its order.
func (e *env) install(ctx context.Context) error {
	return e.installAs(ctx, installation)
}

// installAs is install with other options.
func (e *env) installAs(ctx context.Context, options install.Options) error {
	if err := e.applyAs(ctx, options); err != nil {
		return err
	}
	return e.addDaemonNamespace(ctx)
}

// addDaemonNamespace creates the namespace of the daemons, and waits until the guards are in
// force.
func (e *env) addDaemonNamespace(ctx context.Context) error {
	if err := e.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: daemonNamespace}}); err != nil {
		return fmt.Errorf("creating namespace: %w", err)
	}
	// No controller manager runs that would create it.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: "default"}}
	if err := e.admin.Create(ctx, account); err != nil {
		return fmt.Errorf("creating service account: %w", err)
	}
	return e.awaitPolicies(ctx)
}

// apply applies the manifests, and waits until NodeGates are served.
func (e *env) apply(ctx context.Context) error { return e.applyAs(ctx, installation) }

func (e *env) applyAs(ctx context.Context, options install.Options) error {
	if err := e.applyManifests(ctx, options); err != nil {
		return err
	}
	return await.Until(ctx, "NodeGates to be served", func(ctx context.Context) error {
		return e.admin.List(ctx, &v1alpha1.NodeGateList{})
	})
}

func (e *env) applyManifests(ctx context.Context, options install.Options) error {
	var manifests bytes.Buffer
	if err := install.Write(&manifests, options); err != nil {
		return err
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(&manifests, 4096)
	for {
		var object unstructured.Unstructured
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("decoding manifests: %w", err)
		}
		config := client.ApplyConfigurationFromUnstructured(&object)
		if err := e.admin.Apply(ctx, config, client.FieldOwner("e2e"), client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
}

// controllerClient returns a client with the controller's credentials.
func (e *env) controllerClient(ctx context.Context) (client.Client, error) {
	config, err := e.cluster.ServiceAccount(ctx, installation.Namespace, installation.ServiceAccount)
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: e.admin.Scheme()})
}

// awaitPolicies waits until the API server enforces the policies that restrict the
// controller.
func (e *env) awaitPolicies(ctx context.Context) error {
	confined, err := e.controllerClient(ctx)
	if err != nil {
		return err
	}
	return await.Until(ctx, "the guards to be in force", func(ctx context.Context) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "not-allowed"}}
		err := confined.Create(ctx, node)
		switch {
		case err == nil:
			return errors.Join(errors.New("the controller may create nodes"), e.admin.Delete(ctx, node))
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
			return nil
		}
		return err
	})
}

// clean deletes the objects that tests create.
func (e *env) clean(ctx context.Context) {
	now := client.GracePeriodSeconds(0)
	err := errors.Join(
		e.admin.DeleteAllOf(ctx, &v1alpha1.NodeGate{}),
		e.admin.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(daemonNamespace), now),
		e.admin.DeleteAllOf(ctx, &corev1.Node{}),
		e.admin.DeleteAllOf(ctx, &coordinationv1.Lease{}, client.InNamespace(installation.Namespace)),
		e.deleteDaemonSets(ctx),
		e.deleteParameters(ctx),
	)
	if err != nil {
		e.Errorf("cleaning up: %v", err)
	}
}
