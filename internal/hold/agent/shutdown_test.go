// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/hold"
	"github.com/nodegate/nodegate/internal/kube/jsonclient"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/testbed"
)

const announcement = `{"type":"GracefulNodeShutdownInProgress","status":"True","message":"` + v1alpha1.ShutdownMessagePrefix + boot + `"}`

// The policy in the agent's manifest lets a pod on a node change one condition of this Node, and
// not what another writer has announced.
func TestAgentIsConfined(t *testing.T) {
	s := kubetest.Start(t)
	apply(t, s, "../../../deploy/agent/announces-shutdowns.yaml")
	mine := s.Node(t, "mine", booted)
	other := s.Node(t, "other", booted)
	announced := s.Node(t, "announced", booted, withCondition("True", "another writer's"))
	ended := s.Node(t, "ended", booted, withCondition("False", "another writer's"))
	rebooted := s.Node(t, "rebooted", booted, withCondition("True", v1alpha1.ShutdownMessagePrefix+"a former boot"))
	for name, test := range map[string]struct {
		node, on      *corev1.Node // on is the node of the pod whose token is used
		patch, denial string
	}{
		"announces a shutdown":                  {mine, mine, conditions(announcement), ""},
		"withdraws it":                          {mine, mine, conditions(`{"type":"GracefulNodeShutdownInProgress","$patch":"delete"}`), ""},
		"announces after another writer":        {ended, ended, conditions(announcement), ""},
		"another node":                          {other, mine, conditions(announcement), "own node"},
		"no node in the token":                  {mine, nil, conditions(announcement), "own node"},
		"another condition":                     {mine, mine, conditions(`{"type":"Ready","status":"False"}`), "only change the condition"},
		"no boot in the message":                {mine, mine, conditions(`{"type":"GracefulNodeShutdownInProgress","status":"True"}`), "current boot"},
		"another boot":                          {mine, mine, conditions(strings.Replace(announcement, boot, "another", 1)), "current boot"},
		"more than the boot":                    {mine, mine, conditions(strings.Replace(announcement, boot, boot+" and the next", 1)), "current boot"},
		"withdraws that of a former boot":       {rebooted, rebooted, conditions(`{"type":"GracefulNodeShutdownInProgress","$patch":"delete"}`), ""},
		"a long reason":                         {mine, mine, conditions(strings.Replace(announcement, `"status"`, `"reason":"`+strings.Repeat("x", 65)+`","status"`, 1)), "current boot"},
		"denies a shutdown":                     {mine, mine, conditions(`{"type":"GracefulNodeShutdownInProgress","status":"False","message":"x"}`), "current boot"},
		"an unknown status":                     {mine, mine, conditions(`{"type":"GracefulNodeShutdownInProgress","status":"Unknown"}`), "current boot"},
		"changes what another writer ended":     {ended, ended, conditions(`{"type":"GracefulNodeShutdownInProgress","status":"False","message":"x"}`), "current boot"},
		"announces in a later boot":             {rebooted, rebooted, conditions(announcement), ""},
		"what another writer announced":         {announced, announced, conditions(announcement), "another writer"},
		"removes what another writer announced": {announced, announced, conditions(`{"type":"GracefulNodeShutdownInProgress","$patch":"delete"}`), "another writer"},
		"capacity":                              {mine, mine, `{"status":{"capacity":{"cpu":"100"}}}`, "only change the condition"},
		"a label, through the status":           {mine, mine, `{"metadata":{"labels":{"x":"y"}}}`, "only change the condition"},
		"an annotation":                         {mine, mine, `{"metadata":{"annotations":{"x":"y"}}}`, "only change the condition"},
	} {
		client, err := kubernetes.NewForConfig(asAgent(s.Admin(), test.on))
		if err != nil {
			t.Fatal(err)
		}
		kubetest.Eventually(t, name, func() bool { // the API server has to learn of the policy and the permissions
			_, err := client.CoreV1().Nodes().Patch(t.Context(), test.node.Name, types.StrategicMergePatchType, []byte(test.patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
			if test.denial == "" {
				return err == nil
			}
			return err != nil && strings.Contains(err.Error(), test.denial)
		})
	}
	client, err := kubernetes.NewForConfig(asAgent(s.Admin(), mine))
	if err != nil {
		t.Fatal(err)
	}
	// A condition that is in the list again and again could make the Node too large for heartbeats.
	twice := `[{"op":"add","path":"/status/conditions","value":[` + announcement + `,` + announcement + `]}]`
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), "mine", types.JSONPatchType, []byte(twice), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status"); err == nil || !strings.Contains(err.Error(), "current boot") {
		t.Errorf("announcing a shutdown twice: %v", err)
	}
	// So could ever more managers that apply it, whose number the API server does not limit.
	applied := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"mine"},` + strings.TrimPrefix(conditions(announcement), "{")
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), "mine", types.ApplyPatchType, []byte(applied), metav1.PatchOptions{FieldManager: "any", DryRun: []string{metav1.DryRunAll}}, "status"); err == nil || !strings.Contains(err.Error(), "server-side apply") {
		t.Errorf("announcing a shutdown by server-side apply: %v", err)
	}
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), "mine", types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{}); err == nil {
		t.Error("the agent may change the Node itself")
	}
}

// The agent announces a shutdown, which it withdraws when the shutdown is cancelled or when it
// starts in the next boot, and leaves alone what another writer has announced.
func TestAnnounce(t *testing.T) {
	s := kubetest.Start(t)
	apply(t, s, "../../../deploy/agent/announces-shutdowns.yaml")
	s.Node(t, "mine", booted, recorded("Closed", boot))
	s.Node(t, "announced", booted, withCondition("True", "another writer's"))
	message := func(node string) (message string) {
		t.Helper()
		for _, c := range read(t, s, node).Status.Conditions {
			if c.Type == corev1.NodeGracefulNodeShutdownInProgress && c.Status == corev1.ConditionTrue {
				message = c.Message
			}
		}
		return message
	}
	agent := func(node string) *Agent {
		t.Helper()
		a := &Agent{Client: clientFor(t, asAgent(s.Admin(), read(t, s, node))), Node: node, Boot: boot, Log: slog.New(slog.DiscardHandler)}
		a.prepare()
		ctx, stop := context.WithCancel(t.Context()) // what it has read stays as it is now
		var reading sync.WaitGroup
		reading.Go(func() { a.nodes.Run(ctx) })
		kubetest.Eventually(t, "Node", a.nodes.Synced)
		stop()
		reading.Wait()
		return a
	}
	a := agent("mine")
	a.announce(t.Context(), true)
	if got, want := message("mine"), v1alpha1.ShutdownMessagePrefix+boot; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
	a.announce(t.Context(), false) // its store does not have the condition yet
	if got := message("mine"); got != "" {
		t.Errorf("after the cancellation, the message is %q", got)
	}
	a.announce(t.Context(), true)
	agent("mine").announce(t.Context(), false) // in the next boot
	if got := message("mine"); got != "" {
		t.Errorf("after a start, the message is %q", got)
	}
	for _, shutdown := range []bool{true, false} {
		agent("announced").announce(t.Context(), shutdown)
		if got := message("announced"); got != "another writer's" {
			t.Errorf("the message of another writer became %q", got)
		}
	}
}

// An error is logged once while it persists, and again after logind was usable in between.
func TestErrorsOfLogindAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		attempts := 0
		follow := func(context.Context, string, string, func(context.Context, bool)) error {
			switch attempts++; attempts {
			case 4:
				<-time.After(24 * time.Hour)
			case 7:
				stop()
			}
			return errors.New("no such file or directory")
		}
		var out strings.Builder
		a := &Agent{Bus: "bus", Log: slog.New(slog.NewTextHandler(&out, nil)), follow: follow}
		a.followShutdowns(ctx)
		if got := strings.Count(out.String(), "shutdowns cannot be announced"); got != 2 {
			t.Errorf("%d errors were logged in %d attempts, want 2:\n%s", got, attempts, &out)
		}
	})
}

// On a node without logind, the agent tries again at growing intervals: for each attempt, the bus
// tries to start logind, and writes to the system's log. When logind was usable in between, the agent
// soon uses it again.
func TestMissingLogindIsTriedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), 4*time.Hour)
		defer stop()
		began := time.Now()
		var attempts []time.Duration // since the start
		follow := func(context.Context, string, string, func(context.Context, bool)) error {
			attempts = append(attempts, time.Since(began))
			if time.Since(began) > time.Hour && time.Since(began) < 2*time.Hour {
				<-time.After(time.Hour)
			}
			return errors.New("no such name")
		}
		a := &Agent{Bus: "bus", Log: slog.New(slog.DiscardHandler), follow: follow}
		a.followShutdowns(ctx)
		var gaps []time.Duration
		for i, at := range attempts[1:] {
			gaps = append(gaps, at-attempts[i])
		}
		used := slices.IndexFunc(gaps, func(d time.Duration) bool { return d >= time.Hour })
		if used < 0 || gaps[0] != reconnectAfter || gaps[used] != time.Hour+reconnectAfter {
			t.Fatalf("the attempts were at %v", attempts)
		}
		// In three hours: one a minute, and some more after the start and after logind was used.
		if most := 3*60 + 2*4; len(attempts) > most || slices.Max(gaps[:used]) > reconnectAtMost {
			t.Errorf("%d attempts, at %v", len(attempts), attempts)
		}
	})
}

// Run returns when the agent no longer follows logind: an announcement may be in progress.
func TestRunWaitsForAnnouncements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var following, ended atomic.Bool
		follow := func(ctx context.Context, _, _ string, _ func(context.Context, bool)) error {
			following.Store(true)
			<-ctx.Done()
			<-time.After(time.Second)
			ended.Store(true)
			return nil
		}
		a := &Agent{Client: clientOf(t, nil), Node: "mine", Boot: boot, Uptime: func() time.Duration { return time.Hour }, Store: hold.Store{Dir: t.TempDir()}, Bus: "bus", Log: slog.New(slog.DiscardHandler), follow: follow}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := a.Run(ctx); err != nil || !following.Load() || !ended.Load() {
			t.Errorf("Run returned %v, followed logind: %v, and has ended that: %v", err, following.Load(), ended.Load())
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func apply(t *testing.T, s *kubetest.Server, file string) {
	t.Helper()
	manifest, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := testbed.ParseObjects(manifest)
	if err != nil {
		t.Fatal(err)
	}
	applier, err := testbed.NewApplier(s.Admin())
	if err != nil {
		t.Fatal(err)
	}
	if err := applier.Apply(t.Context(), objects...); err != nil {
		t.Fatal(err)
	}
}

// clientFor returns a client with the credentials of a configuration.
func clientFor(t *testing.T, config *rest.Config) *jsonclient.Client {
	t.Helper()
	c, err := config.TransportConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := jsonclient.New(config.Host, c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// asAgent acts as the agent, with a token that is bound to a pod on a node.
func asAgent(admin *rest.Config, node *corev1.Node) *rest.Config {
	config := rest.CopyConfig(admin)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:kube-system:nodegate-agent", Groups: []string{"system:serviceaccounts", "system:authenticated"},
	}
	if node != nil {
		config.Impersonate.Extra = map[string][]string{
			"authentication.kubernetes.io/node-name": {node.Name}, "authentication.kubernetes.io/node-uid": {string(node.UID)},
		}
	}
	return config
}

// booted gives a Node the agent's boot.
func booted(n *corev1.Node) { n.Status.NodeInfo.BootID = boot }

// withCondition gives a Node the condition that announces a shutdown.
func withCondition(status corev1.ConditionStatus, message string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeGracefulNodeShutdownInProgress, Status: status, Message: message})
	}
}

// conditions returns a patch of conditions.
func conditions(c string) string {
	patch, _ := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{json.RawMessage(c)}}})
	return string(patch)
}

func read(t *testing.T, s *kubetest.Server, node string) *corev1.Node {
	t.Helper()
	n, err := s.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
