// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodegate/nodegate/testcluster/components"
)

const (
	deschedulerUser = "system:serviceaccount:kube-system:descheduler-sa"
	// deschedulerRound is what the descheduler logs at the end of each round.
	deschedulerRound = "Number of evictions/requests"
	replicas         = 5
)

// Taints with NoSchedule evict nobody, but the descheduler's plugin RemovePodsViolatingNodeTaints
// evicts the pods that do not tolerate them, unless it is configured to ignore the taint.
func TestDescheduler(t *testing.T) {
	for name, test := range map[string]struct {
		evictor, plugin string // arguments in YAML
		evicts          bool
	}{
		"defaults":       {"{}", "{}", true},
		"excludedTaints": {"{}", "{excludedTaints: [" + keyA + "]}", false},
		"includedTaints": {"{}", "{includedTaints: [example.com/other]}", false},
		"nodeFit":        {"{nodeFit: true}", "{}", false}, // no other node fits the pods
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, components.Descheduler)
			gate := "descheduler-" + strings.ToLower(name)
			s.declare(gate, keyA)
			s.createNode(gate, map[string]string{siteLabel: gate, readyLabel: "true"})
			s.createNode(gate+"-other", nil) // the descheduler does nothing in a cluster of one node
			s.awaitGate(gate, gate, keyA, false)
			s.workload(gate+"-plain", gate, replicas, "[]")
			s.workload(gate+"-tolerant", gate, replicas, "[{operator: Exists}]")
			plain, tolerant := s.awaitRunning(gate+"-plain", replicas), s.awaitRunning(gate+"-tolerant", replicas)

			p := s.startDescheduler(test.evictor, test.plugin)
			p.awaitLogged(deschedulerRound, 2)
			if evicted := s.evicted(s.since, deschedulerUser); len(evicted) > 0 {
				t.Fatalf("evicted %v while the gate was open", evicted)
			}
			s.setReady(gate, false)
			s.awaitGate(gate, gate, keyA, true)
			if test.evicts {
				s.awaitEvicted(gate, plain)
			}
			p.awaitLogged(deschedulerRound, 3)

			want := 0
			if test.evicts {
				want = replicas
			}
			if evicted := s.evicted(s.since, deschedulerUser); len(evicted) != want {
				t.Errorf("evicted %v, want %d pods", evicted, want)
			}
			if evicted := s.evicted(s.since, shared.installation.Username()); len(evicted) > 0 {
				t.Errorf("nodegate evicted %v", evicted)
			}
			if now := s.awaitRunning(gate+"-tolerant", replicas); !slices.Equal(now, tolerant) {
				t.Errorf("pods that tolerate the taint were %v, and are %v", tolerant, now)
			}
			// Evicted pods are replaced, and run when the gate opens.
			s.setReady(gate, true)
			if now := s.awaitRunning(gate+"-plain", replicas); slices.Equal(now, plain) == test.evicts {
				t.Errorf("pods that do not tolerate the taint were %v, and are %v", plain, now)
			}
		})
	}
}

// startDescheduler starts the descheduler with the permissions in its own manifests.
func (s *site) startDescheduler(evictor, plugin string) *program {
	s.Helper()
	source, err := components.SourceDir(s.Context(), components.Descheduler)
	s.must(err)
	manifest, err := os.ReadFile(filepath.Join(source, "kubernetes/base/rbac.yaml"))
	s.must(err)
	s.apply(string(manifest))
	policy := filepath.Join(s.TempDir(), "policy.yaml")
	s.must(os.WriteFile(policy, fmt.Appendf(nil, `
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: taints
  pluginConfig:
  - {name: DefaultEvictor, args: %s}
  - {name: RemovePodsViolatingNodeTaints, args: %s}
  plugins:
    deschedule: {enabled: [RemovePodsViolatingNodeTaints]}
`, evictor, plugin), 0o600))
	_, port := s.address()
	return s.start(nil, "--kubeconfig="+s.kubeconfig("kube-system", "descheduler-sa"), "--policy-config-file="+policy,
		"--descheduling-interval=1s", "--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+s.TempDir(), "-v=2")
}

// awaitEvicted waits until the descheduler has evicted pods of a gate's node.
func (s *site) awaitEvicted(gate string, pods []string) {
	s.Helper()
	since := time.Now()
	s.eventually("the descheduler to evict pods", func(context.Context) error {
		evicted := s.evicted(s.since, deschedulerUser)
		if slices.ContainsFunc(pods, func(name string) bool { return !evicted[name] }) {
			return fmt.Errorf("%d are evicted", len(evicted))
		}
		return nil
	})
	s.Logf("with the default arguments, the descheduler evicted %d of %d pods %s after gate %s had closed", len(pods), 2*replicas, time.Since(since).Round(time.Second), gate)
}
