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
	"slices"
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
	"github.com/nodegate/nodegate/internal/install"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/await/awaittest"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// The error for a ServiceAccount without permissions contains all missing ones.
func TestMissingPermissions(t *testing.T) {
	c := clustertest.Shared(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := testcluster.WriteKubeconfig(path, c.User("nobody")); err != nil {
		t.Fatal(err)
	}
	t.Parallel() // each nodegate waits for permissions
	args := []string{"controller", "--kubeconfig", path, "--allowed-taint-keys", "example.com/key", "--metrics-bind-address=0", "--health-probe-bind-address=0"}
	t.Run("NodeGates", func(t *testing.T) {
		t.Parallel()
		_, stderr, status := run(t, args...)
		oneClearLine(t, stderr, "patch nodes", "list daemonsets.apps", "patch nodegates/status.nodegate.dev",
			"update leases.coordination.k8s.io in nodegate-system", "create podtemplates in nodegate-system", "nodegate manifests")
		if status != 1 {
			t.Errorf("status %d, want 1", status)
		}
	})
	t.Run("gates from files", func(t *testing.T) {
		t.Parallel()
		_, stderr, _ := run(t, slices.Concat(args, []string{"--gates", t.TempDir()})...)
		oneClearLine(t, stderr, "patch nodes", "create podtemplates in nodegate-system", "nodegate manifests --without-crd")
		if strings.Contains(stderr, "nodegates") {
			t.Errorf("permissions for NodeGates are required:\n%s", stderr)
		}
	})
}

// An administrator has all permissions, but the guards would reject its writes. The error
// contains the required identity.
func TestAdministratorIsNotNodegate(t *testing.T) {
	c := clustertest.Shared(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := testcluster.WriteKubeconfig(path, c.User("boss", "system:masters")); err != nil {
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
	reader  string // a token for reading metrics
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
	r := &replica{t: t, health: unused(t), metrics: unused(t), reader: tokenOf(t, "reader", install.MetricsReader)}
	r.Cmd = nodegate(context.Background(), t, append([]string{"controller", "--kubeconfig", kubeconfig, "--allowed-taint-keys", "example.com/key",
		"--metrics-bind-address", r.metrics, "--health-probe-bind-address", r.health}, args...)...)
	r.Stdout, r.Stderr = r, r
	if err := clustertest.Shared(t).StartProcess(r.Cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.Process.Kill() // fails if the process has exited
		_ = r.Wait()
		if t.Failed() {
			r.mu.Lock()
			defer r.mu.Unlock()
			t.Logf("log of a replica:\n%s", r.log.String())
		}
	})
	return r
}

// healthy requests a health endpoint of the replica.
func (r *replica) healthy(path string) error {
	_, err := read("http://" + r.health + path)
	return err
}

// read returns the content at a URL.
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

// terminate stops the replica like the kubelet.
func (r *replica) terminate() {
	r.t.Helper()
	if err := r.Process.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	defer time.AfterFunc(await.Silence, func() { _ = r.Process.Kill() }).Stop()
	if err := r.Wait(); err != nil {
		r.t.Errorf("the terminated replica exited with: %v", err)
	}
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	awaittest.Until(t, what, func(context.Context) error { return check() })
}

// applyManifests applies the output of 'nodegate manifests'.
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

// installedCluster installs nodegate. It returns an administrator's client, and the path of a
// kubeconfig of nodegate's ServiceAccount.
func installedCluster(t *testing.T) (api client.Client, kubeconfig string) {
	t.Helper()
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
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := testcluster.WriteKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	return api, kubeconfig
}

// lease returns the Lease of the leader election.
func lease(t *testing.T, api client.Client) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: v1alpha1.LeaseName}}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return lease
}

// createGateAndNode creates the gate "agent", and the Node "n1" on which it is closed.
func createGateAndNode(t *testing.T, api client.Client) {
	t.Helper()
	gate := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "nodegate.dev/v1alpha1", "kind": "NodeGate", "metadata": map[string]any{"name": "agent"},
		"spec": map[string]any{
			"nodeSelector": map[string]any{}, "taint": map[string]any{"key": "example.com/key", "effect": "NoSchedule"},
			"openWhen": []any{map[string]any{"name": "label", "label": map[string]any{"key": "fit"}}},
		},
	}}
	for _, object := range []client.Object{gate, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}} {
		if err := api.Create(t.Context(), object); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
}

// A replica that loses the Lease becomes a standby, and can lead again without a restart.
func TestLeaderThatLosesTheLease(t *testing.T) {
	api, path := installedCluster(t)
	createGateAndNode(t, api)
	r := startReplica(t, path, "--leader-elect-identity=first", "--leader-elect-lease-duration=10s")
	leads := func(want string) func() error {
		return func() error {
			served, err := r.served("/metrics")
			for _, line := range []string{`leader_election_master_status{name="nodegate"} ` + want, `nodegate_gate_nodes{gate="agent",state="selected"} ` + want} {
				if err == nil && strings.Contains(served, line+"\n") != (want == "1" || strings.HasPrefix(line, "leader")) {
					err = fmt.Errorf("unexpected: %s", line)
				}
			}
			return err
		}
	}
	eventually(t, "it leads, and counts nodes", leads("1"))

	if holder := ptr.Deref(lease(t, api).Spec.HolderIdentity, ""); holder != "first" {
		t.Errorf("%q holds the Lease, want the replica", holder)
	}
	eventually(t, "another one gets the Lease", func() error {
		taken := lease(t, api)
		taken.Spec.HolderIdentity, taken.Spec.LeaseDurationSeconds = new("another"), new(int32(3600))
		return api.Update(t.Context(), taken)
	})
	eventually(t, "it is a standby, and counts no nodes", leads("0"))
	if served, err := r.served("/metrics"); err != nil || !strings.Contains(served, "\nnodegate_lease_losses_total 1\n") {
		t.Errorf("the metrics do not contain the loss of the Lease (%v)", err)
	}
	if _, err := r.served("/nodes/n1"); err == nil || !strings.Contains(err.Error(), "is not the leader") {
		t.Errorf("a standby answers about a node: %v", err)
	}
	if err := errors.Join(r.healthy("/readyz"), r.healthy("/healthz")); err != nil {
		t.Errorf("a standby is not healthy: %v", err)
	}

	released := lease(t, api)
	released.Spec.HolderIdentity = new("")
	if err := api.Update(t.Context(), released); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it leads again", leads("1"))
	eventually(t, "it answers about a node", func() error {
		answer, err := r.served("/nodes/n1")
		if err == nil && !strings.Contains(answer, `"gate": "agent"`) {
			err = fmt.Errorf("answer: %s", answer)
		}
		return err
	})
	r.terminate()
}

func TestReplicasTakeTurns(t *testing.T) {
	api, path := installedCluster(t)
	holder := func() string { return ptr.Deref(lease(t, api).Spec.HolderIdentity, "") }

	// No replica takes over because another one is slow.
	const lasts = "--leader-elect-lease-duration=60s"
	first := startReplica(t, path, lasts)
	eventually(t, "the first replica is ready and leads", func() error {
		if holder() == "" {
			return errors.New("no leader")
		}
		return first.healthy("/readyz")
	})
	leader := holder()
	if d := ptr.Deref(lease(t, api).Spec.LeaseDurationSeconds, 0); d != 60 {
		t.Errorf("the Lease lasts for %d seconds, want those of the flag", d)
	}
	second := startReplica(t, path, lasts)
	eventually(t, "the second replica is ready", func() error { return second.healthy("/readyz") })
	if err := errors.Join(first.healthy("/healthz"), second.healthy("/healthz")); err != nil {
		t.Errorf("not alive: %v", err)
	}
	if now := holder(); now != leader {
		t.Fatalf("%s leads although %s is alive", now, leader)
	}

	first.terminate()
	if now := holder(); now == leader {
		t.Errorf("%s has exited without releasing its lease", leader)
	}
	eventually(t, "the second replica leads", func() error {
		if now := holder(); now == "" || now == leader {
			return fmt.Errorf("the lease is held by %q", now)
		}
		return nil
	})
	// It maintains the parameter of the birth policy.
	createGateAndNode(t, api)
	eventually(t, "it answers about a node", func() error {
		answer, err := second.served("/nodes/n1")
		if err == nil && !strings.Contains(answer, `"gate": "agent"`) {
			err = fmt.Errorf("answer: %s", answer)
		}
		return err
	})
	eventually(t, "the second replica works", func() error {
		return api.Get(t.Context(), client.ObjectKey{Namespace: defaultNamespace, Name: v1alpha1.BirthParameter}, &corev1.PodTemplate{})
	})
	eventually(t, "the metrics report that gates close at birth", func() error {
		served, err := second.served("/metrics")
		if err == nil && !strings.Contains(served, `nodegate_birth_closing_proved{gate="agent"} 1`) {
			err = errors.New("not reported")
		}
		return err
	})
	second.terminate()
	if now := holder(); now != "" {
		t.Errorf("the lease is held by %q although all replicas have exited", now)
	}
}
