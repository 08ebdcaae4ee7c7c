// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/hold"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

func TestMain(m *testing.M) {
	clustertest.Main(m, testcluster.Options{Components: []testcluster.Component{testcluster.APIServer}})
}

// With the permissions of its manifest, the agent writes what the API server has about its own
// node, as soon as it has read everything and whenever something changes.
func TestAgent(t *testing.T) {
	s := kubetest.Start(t)
	s.Define(t)
	t.Cleanup(func() { s.Undefine(t) })
	namespace := clustertest.Namespace(t, s.Cluster)
	apply(t, s, "../../../deploy/agent/agent.yaml")
	config, err := s.Cluster.ServiceAccount(t.Context(), metav1.NamespaceSystem, "nodegate-agent")
	if err != nil {
		t.Fatal(err)
	}
	s.Gate(t, "g")
	change := []byte(`{"spec":{"bypassedPods":"Hold","holdSeconds":7}}`)
	if _, err := s.Dynamic.Resource(v1alpha1.Resource).Patch(t.Context(), "g", types.MergePatchType, change, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Node(t, "mine", recorded("Open", "boot-1"))
	s.Node(t, "other", recorded("Open", boot))
	s.Pod(t, namespace, "on-mine", "mine")
	s.LabelledPod(t, namespace, "on-other", "agent", "other")

	store := hold.Store{Dir: t.TempDir()}
	a := &Agent{Client: clientFor(t, config), Node: "mine", Boot: boot, Uptime: func() time.Duration { return time.Hour }, Store: store, Log: slog.New(slog.DiscardHandler)}
	kubetest.Run(t, a.Run)
	eventually := func(what string, open bool, pods int) {
		t.Helper()
		kubetest.Eventually(t, what, func() bool {
			state, err := store.Read()
			return err == nil && state.Boot == boot && state.Uptime == time.Hour && slices.Equal(state.Gates, []hold.Gate{{Name: "g", Open: open, Seconds: 7}}) && len(state.Pods) == pods
		})
	}
	eventually("closed, because the record is of the previous boot", false, 1)
	s.Update(t, "mine", recorded("Open", boot))
	eventually("open", true, 1)
	s.LabelledPod(t, namespace, "another", "agent", "mine")
	eventually("two pods", true, 2)
	s.Update(t, "mine", recorded("Closed", boot))
	eventually("closed", false, 2)

	// A node may have thousands of finished pods. Nothing starts in them.
	finish(t, s, namespace, "another", corev1.PodFailed)
	eventually("a pod has failed", false, 1)
	finish(t, s, namespace, "on-mine", corev1.PodSucceeded)
	eventually("both pods have finished", false, 0)
}

// A runtime that has not started the plugin in this boot holds nothing, which nothing else reports.
func TestMissingPluginIsLogged(t *testing.T) {
	for started, want := range map[string]int{"": 1, "boot-1": 1, boot: 0} {
		synctest.Test(t, func(t *testing.T) {
			store := hold.Store{Dir: t.TempDir()}
			if err := store.PluginStarted(started); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			a := &Agent{
				Client: serving(t, `{"state":"Open","boot":"boot-1"}`, `{}`), Node: "mine", Boot: boot,
				Uptime: func() time.Duration { return time.Hour }, Store: store, Log: slog.New(slog.NewTextHandler(&out, nil)),
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			if err := a.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(out.String(), "level=WARN msg=\"no pod is held on this node: "); got != want {
				t.Errorf("the plugin was started in boot %q: %d warnings, want %d:\n%s", started, got, want, &out)
			}
		})
	}
}

// finish gives a pod the phase of a finished pod.
func finish(t *testing.T, s *kubetest.Server, namespace, pod string, phase corev1.PodPhase) {
	t.Helper()
	change := []byte(`{"status":{"phase":"` + phase + `"}}`)
	if _, err := s.CoreV1().Pods(namespace).Patch(t.Context(), pod, types.MergePatchType, change, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// recorded gives a Node the record of gate g.
func recorded(state, boot string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.RecordAnnotationPrefix+"g", `{"state":"`+state+`","boot":"`+boot+`","taint":"g:NoSchedule"}`)
	}
}
