// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// If the directory of gates is invalid, the process keeps running, is not ready, logs the
// error, and continues when the directory is corrected. Its permissions are those of an
// installation without the CRD.
func TestGatesFromADirectory(t *testing.T) {
	c := clustertest.Shared(t)
	api, err := client.New(c.Admin(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	applyManifests(t, api, "--without-crd")
	config, err := c.ServiceAccount(t.Context(), defaultNamespace, defaultServiceAccount)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := testcluster.WriteKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	// As after an installation: a leader that takes over does not know that the files are complete.
	if err := client.IgnoreNotFound(api.Delete(t.Context(), lease(t, api))); err != nil {
		t.Fatal(err)
	}
	gates := t.TempDir()
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(gates, "gates.yaml"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("kind: NodeGate\n")
	// A replica that lost the Lease and led again would have taken over.
	r := startReplica(t, kubeconfig, "--leader-elect-lease-duration=60s", "--gates", gates)
	shows := func(sample string) {
		t.Helper()
		eventually(t, "the metrics contain "+sample, func() error {
			served, err := r.served("/metrics")
			if err == nil && !strings.Contains(served, sample+"\n") {
				err = errors.New("they do not")
			}
			return err
		})
	}
	shows("nodegate_gates_complete 0")
	eventually(t, "the log contains the error", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !strings.Contains(r.log.String(), "gates.yaml:1: the document is not a NodeGate") {
			return errors.New("it does not")
		}
		return nil
	})
	if r.healthy("/readyz") == nil || r.healthy("/healthz") != nil {
		t.Error("want the replica alive and not ready")
	}
	write(`apiVersion: nodegate.dev/v1alpha1
kind: NodeGate
metadata: {name: from-a-file}
spec:
  nodeSelector: {}
  taint: {key: example.com/key, effect: NoSchedule}
  openWhen: [{name: fit, label: {key: fit}}]
`)
	shows("nodegate_gates_complete 1")
	shows(`nodegate_gate_condition{condition="Ready",gate="from-a-file"} 1`)
	eventually(t, "the replica is ready", func() error { return r.healthy("/readyz") })
	r.terminate()
}
