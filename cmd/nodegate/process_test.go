// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/cluster"
	"github.com/nodegate/nodegate/cluster/await"
	"github.com/nodegate/nodegate/cluster/await/awaittest"
	"github.com/nodegate/nodegate/cluster/clustertest"
)

// A ServiceAccount without rights learns of all that it lacks.
func TestMissingPermissions(t *testing.T) {
	c := clustertest.Shared(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cluster.WriteKubeconfig(path, c.User("nobody")); err != nil {
		t.Fatal(err)
	}
	_, stderr, status := run(t, "controller", "--kubeconfig", path, "--allowed-taint-keys", "example.com/key", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	oneClearLine(t, stderr, "patch nodes", "list daemonsets.apps", "patch nodegates/status.nodegate.dev",
		"update leases.coordination.k8s.io in nodegate-system", "create podtemplates in nodegate-system", "nodegate manifests")
	if status != 1 {
		t.Errorf("status %d, want 1", status)
	}
	_, stderr, _ = run(t, "controller", "--kubeconfig", path, "--allowed-taint-keys", "example.com/key", "--gates", t.TempDir(),
		"--metrics-bind-address=0", "--health-probe-bind-address=0")
	oneClearLine(t, stderr, "patch nodes", "create podtemplates in nodegate-system", "nodegate manifests --without-crd")
	if strings.Contains(stderr, "nodegates") {
		t.Errorf("with gates from files, it asks for rights to NodeGates:\n%s", stderr)
	}
}

// An administrator may do everything, and would be refused where only nodegate
// writes: that is told at once, with who it should be.
func TestAdministratorIsNotNodegate(t *testing.T) {
	c := clustertest.Shared(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cluster.WriteKubeconfig(path, c.User("boss", "system:masters")); err != nil {
		t.Fatal(err)
	}
	_, stderr, status := run(t, "controller", "--kubeconfig", path, "--metrics-bind-address=0", "--health-probe-bind-address=0")
	oneClearLine(t, stderr, `"boss"`, "run as system:serviceaccount:nodegate-system:nodegate")
	if status != 1 {
		t.Errorf("status %d, want 1", status)
	}
}

// replica is one process of a Deployment.
type replica struct {
	*exec.Cmd
	t       *testing.T
	health  string
	metrics string
	mu      sync.Mutex
	log     bytes.Buffer
}

func (r *replica) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func startReplica(t *testing.T, kubeconfig string, args ...string) *replica {
	t.Helper()
	r := &replica{t: t, health: unused(t), metrics: unused(t)}
	r.Cmd = nodegate(context.Background(), t, append([]string{"controller", "--kubeconfig", kubeconfig, "--allowed-taint-keys", "example.com/key",
		"--metrics-bind-address", r.metrics, "--health-probe-bind-address", r.health}, args...)...)
	r.Stdout, r.Stderr = r, r
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.Process.Kill() // in vain if it has ended
		_ = r.Wait()
		if t.Failed() {
			r.mu.Lock()
			defer r.mu.Unlock()
			t.Logf("log of a replica:\n%s", r.log.String())
		}
	})
	return r
}

// healthy asks the replica how it is.
func (r *replica) healthy(path string) error {
	_, err := read("http://" + r.health + path)
	return err
}

// read returns what is served at an address.
func read(url string) (string, error) {
	response, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(string(body))
	}
	return string(body), err
}

// terminate ends the replica as the kubelet would.
func (r *replica) terminate() {
	r.t.Helper()
	if err := r.Process.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	defer time.AfterFunc(await.Silence, func() { _ = r.Process.Kill() }).Stop()
	if err := r.Wait(); err != nil {
		r.t.Errorf("a replica that was terminated ended with: %v", err)
	}
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	awaittest.Until(t, what, func(context.Context) error { return check() })
}

// applyManifests applies what 'nodegate manifests' prints.
func applyManifests(t *testing.T, api client.Client, args ...string) {
	t.Helper()
	stdout, stderr, status := run(t, append([]string{"manifests", "--allowed-taint-keys", "example.com/key"}, args...)...)
	if status != 0 {
		t.Fatal(stderr)
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(stdout), 4096)
	for {
		var object unstructured.Unstructured
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if err := api.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(&object), client.FieldOwner("test")); err != nil {
			t.Fatalf("applying %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

func TestReplicasTakeTurns(t *testing.T) {
	c := clustertest.Shared(t)
	api, err := client.New(c.Admin(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	applyManifests(t, api)
	config, err := c.ServiceAccount(t.Context(), defaultNamespace, defaultServiceAccount)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cluster.WriteKubeconfig(path, config); err != nil {
		t.Fatal(err)
	}
	holder := func() string {
		lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: "nodegate"}}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(&lease), &lease); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return ptr.Deref(lease.Spec.HolderIdentity, "")
	}

	first := startReplica(t, path)
	eventually(t, "the first replica is ready and leads", func() error {
		if holder() == "" {
			return errors.New("nobody leads")
		}
		return first.healthy("/readyz")
	})
	leader := holder()
	second := startReplica(t, path)
	eventually(t, "the second replica is ready", func() error { return second.healthy("/readyz") })
	if err := errors.Join(first.healthy("/healthz"), second.healthy("/healthz")); err != nil {
		t.Errorf("not alive: %v", err)
	}
	if now := holder(); now != leader {
		t.Fatalf("%s leads, while %s is alive", now, leader)
	}

	first.terminate()
	if now := holder(); now == leader {
		t.Errorf("%s has ended and not given its lease back", leader)
	}
	eventually(t, "the second replica leads", func() error {
		if now := holder(); now == "" || now == leader {
			return fmt.Errorf("the lease is held by %q", now)
		}
		return nil
	})
	// It works: a pod template says that it looks after births.
	gate := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "nodegate.dev/v1alpha1", "kind": "NodeGate", "metadata": map[string]any{"name": "agent"},
		"spec": map[string]any{
			"nodeSelector": map[string]any{}, "taint": map[string]any{"key": "example.com/key", "effect": "NoSchedule"},
			"openWhen": []any{map[string]any{"name": "label", "label": map[string]any{"key": "fit"}}},
		},
	}}
	if err := api.Create(t.Context(), gate); err != nil {
		t.Fatal(err)
	}
	if err := api.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it tells how the gates stand on one node", func() error {
		told, err := read("http://" + second.metrics + "/nodes/n1")
		if err == nil && !strings.Contains(told, `"gate": "agent"`) {
			err = fmt.Errorf("it tells %s", told)
		}
		return err
	})
	eventually(t, "the second replica works", func() error {
		return api.Get(t.Context(), client.ObjectKey{Namespace: defaultNamespace, Name: v1alpha1.BirthParameter}, &corev1.PodTemplate{})
	})
	eventually(t, "the metrics tell that births are closed", func() error {
		served, err := read("http://" + second.metrics + "/metrics")
		if err == nil && !strings.Contains(served, `nodegate_birth_closing_proved{gate="agent"} 1`) {
			err = errors.New("they do not")
		}
		return err
	})
	second.terminate()
	if now := holder(); now != "" {
		t.Errorf("the lease is held by %q although everybody has ended", now)
	}
}
