// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/hold"
	"github.com/nodegate/nodegate/internal/hold/plugin"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/machine"
)

const (
	// agentPackage is the node agent, holdPackage the plugin, and agentManifest their manifest,
	// relative to this package.
	agentPackage  = "github.com/nodegate/nodegate/cmd/nodegate-agent"
	holdPackage   = "github.com/nodegate/nodegate/cmd/nodegate-hold"
	agentManifest = "../../deploy/agent/agent.yaml"
	agentName     = "nodegate-agent"
	// holdLabel is the label of the nodes with the node agent. Its value selects the gate.
	holdLabel = "test.nodegate.dev/hold"
	// briefly is how many seconds gate agent-hold-briefly holds a pod at most. A kubelet needs less
	// time to start a pod that is not held.
	briefly = 15
)

// Pods that are bound to a machine do not start after a reboot before the gate opens, and start
// soon after it. None is evicted.
func TestHold(t *testing.T) {
	h := newHoldingHost(t, "long")
	var waits []time.Duration
	memory := make(map[string]int64)
	for i := range *reboots {
		before := uids(h.boundPods(t))
		late := fmt.Sprintf("late-%d", i)
		off := h.rebootClosedWith(t, func() { h.bindJob(t, late) })
		h.awaitHeld(t)
		must(t, await.Until(t.Context(), "agent", func(context.Context) error {
			if len(processes(t, agentName)) == 0 || h.state(t).Boot != h.BootID() {
				return errors.New("it has not written the state")
			}
			return nil
		}))
		if early := count(h.starts(t), "workload", off) + count(h.starts(t), "patient", off) + count(h.starts(t), "late", off); early > 0 {
			t.Errorf("%d pods that were bound before started before the gate opened", early)
		}
		for _, program := range []string{agentName, plugin.Name, plugin.HookName} {
			memory[program] = max(memory[program], residentMemory(t, program)>>10)
		}
		assertSmall(t)
		ready := time.Now()
		h.setReady(t, true)
		h.await(t, false)
		opened := time.Now()
		h.awaitStarts(t, off, len(before))
		t.Logf("reboot %d: %d held pods have started", i+1, len(before))
		h.awaitStart(t, late, ready)
		if remain := intersection(before, uids(h.boundPods(t))); len(remain) != len(before) {
			t.Errorf("of %d pods that were bound before, %d remain", len(before), len(remain))
		}
		for _, s := range h.starts(t) {
			if strings.HasPrefix(s.name, "workload") && !s.at.Before(off) {
				if s.at.Before(ready) {
					t.Errorf("pod %s started %s before the daemon was ready", s.name, ready.Sub(s.at))
				}
				waits = append(waits, s.at.Sub(opened))
			}
		}
	}
	slices.Sort(waits)
	t.Logf("%d reboots: %d pods that were bound before started after the opening, half of them within %s, all within %s",
		*reboots, len(waits), waits[len(waits)/2], waits[len(waits)-1])
	t.Logf("most resident memory, in KiB: %v", memory)
}

// A pod is held no longer than the gate allows, if the agent does not run, and at the next boot,
// no pod is held until the agent runs again.
func TestHoldEnds(t *testing.T) {
	skipUnlessLong(t)
	h := newHoldingHost(t, "briefly")
	h.setReady(t, false)
	must(t, h.PowerOff())
	off, kubelets := time.Now(), h.kubeletStarts(t)
	h.removeAgent(t)
	must(t, h.PowerOn())
	began := h.awaitKubelet(t, kubelets)
	h.await(t, true)
	h.awaitStart(t, "agent", off)
	h.awaitStarts(t, off, len(h.boundPods(t)))
	for _, s := range h.starts(t) {
		switch after := s.at.Sub(began); {
		case s.at.Before(off):
		case strings.HasPrefix(s.name, "workload") && after < briefly*time.Second:
			t.Errorf("pod %s started %s after the kubelet of the new boot", s.name, after)
		default:
			t.Logf("pod %s started %s after the kubelet of the new boot", s.name, after)
		}
	}
	if opened := h.openedIn(h.BootID()); len(opened) > 0 {
		t.Error("the gate opened, though the daemon was not ready")
	}
	if state := h.state(t); len(state.Gates) > 0 {
		t.Errorf("the plugin kept the state of the previous boot: %+v", state)
	}
	h.setReady(t, true)
	h.await(t, false)
	off = h.rebootClosed(t)
	h.awaitStarts(t, off, len(h.boundPods(t)))
	h.setReady(t, true)
	h.await(t, false)
}

// awaitKubelet waits until the kubelet has started more often than before, and returns a time
// shortly before that. No pod can wait since an earlier time, however long the machine boots.
func (h *host) awaitKubelet(t *testing.T, starts int) (began time.Time) {
	t.Helper()
	began = time.Now()
	must(t, await.Until(t.Context(), "kubelet", func(context.Context) error {
		now := time.Now()
		if h.kubeletStarts(t) > starts {
			return nil
		}
		began = now
		return errors.New("it has not started")
	}))
	return began
}

// bindJob binds a pod to the machine that is never restarted, and that the agent does not know.
func (h *host) bindJob(t *testing.T, name string) {
	t.Helper()
	p := podThatWrites(name, corev1.RestartPolicyNever)
	p.Name, p.Spec.NodeName = name, h.name
	must(t, shared.client.Create(t.Context(), p))
}

// podThatWrites returns a pod without a name whose container writes, under a name, when it starts.
func podThatWrites(name string, restarts corev1.RestartPolicy) *corev1.Pod {
	directory := corev1.HostPathDirectory
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: corev1.PodSpec{
		RestartPolicy: restarts, TerminationGracePeriodSeconds: new(int64),
		Containers: []corev1.Container{{
			Name: "pod", Image: machine.ImageName, ImagePullPolicy: corev1.PullNever, Args: []string{"run", "/shared/starts", name},
			VolumeMounts: []corev1.VolumeMount{{Name: "shared", MountPath: "/shared"}},
		}},
		Volumes: []corev1.Volume{{Name: "shared", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: machine.SharedDir, Type: &directory}}}},
	}}
}

// A held pod can be deleted, for example to drain the node.
func TestHeldPodIsDeleted(t *testing.T) {
	skipUnlessLong(t)
	h := newHoldingHost(t, "long")
	off := h.rebootClosed(t)
	h.awaitHeld(t)
	began := time.Now()
	before := h.boundPods(t)
	for i := range before {
		must(t, shared.client.Delete(t.Context(), &before[i]))
	}
	must(t, await.Until(t.Context(), "deletion of held pods", func(context.Context) error {
		if remain := intersection(uids(before), uids(h.boundPods(t))); len(remain) > 0 {
			return fmt.Errorf("%d pods remain", len(remain))
		}
		return nil
	}))
	if started := count(h.starts(t), "workload", off); started > 0 {
		t.Errorf("%d held pods started when they were deleted", started)
	}
	t.Logf("%d held pods were gone %s after they were deleted", len(before), time.Since(began))
	h.setReady(t, true)
	h.await(t, false)
}

// newHoldingHost returns a machine with the node agent, which knows all pods of the workload.
func newHoldingHost(t *testing.T, value string) *host {
	h := newHostWith(t, map[string]string{holdLabel: value})
	h.applyAgent(t, agentManifest)
	h.bootAndOpen(t)
	must(t, await.Until(t.Context(), "state of the agent", func(context.Context) error {
		state := h.state(t)
		if state.Boot != h.BootID() || len(state.Gates) != 1 || !state.Gates[0].Open {
			return fmt.Errorf("boot %s, gates %+v", state.Boot, state.Gates)
		}
		bound := h.boundPods(t)
		if len(bound) < 5 {
			return fmt.Errorf("%d pods are bound", len(bound))
		}
		for _, p := range bound {
			if len(state.Pods[string(p.UID)].Gates) == 0 {
				return fmt.Errorf("the agent does not know that %s would wait", p.Name)
			}
		}
		return nil
	}))
	return h
}

// state returns what the agent has written.
func (h *host) state(t *testing.T) *hold.State {
	t.Helper()
	state, err := hold.Store{Dir: filepath.Join(h.Var(), "lib", "nodegate")}.Read()
	must(t, err)
	return state
}

// awaitHeld waits until a hook waits for each pod of the workload, and the kubelet has reported
// that their containers do not run.
func (h *host) awaitHeld(t *testing.T) {
	t.Helper()
	must(t, await.Until(t.Context(), "held pods", func(context.Context) error {
		bound := h.boundPods(t)
		if hooks := processes(t, plugin.HookName); len(hooks) < len(bound) {
			return fmt.Errorf("%d hooks wait for %d pods", len(hooks), len(bound))
		}
		for _, p := range bound {
			if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Running != nil {
				return fmt.Errorf("%s: %+v", p.Name, p.Status.ContainerStatuses)
			}
		}
		return nil
	}))
}

// awaitStarts waits until a number of pods of the workload have started since a time.
func (h *host) awaitStarts(t *testing.T, since time.Time, n int) {
	t.Helper()
	must(t, await.Until(t.Context(), "workload", func(context.Context) error {
		if started := count(h.starts(t), "workload", since); started < n {
			return fmt.Errorf("%d of %d pods have started", started, n)
		}
		return nil
	}))
}

// applyAgent applies a manifest of the agent, for the machine's image and network.
func (h *host) applyAgent(t *testing.T, file string) {
	t.Helper()
	manifest, err := os.ReadFile(file)
	must(t, err)
	objects, err := testbed.ParseObjects(manifest)
	must(t, err)
	for _, o := range objects {
		if o.GetKind() == "DaemonSet" {
			var ds appsv1.DaemonSet
			must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &ds))
			h.adaptAgent(t, &ds)
			o.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(&ds)
			must(t, err)
		}
	}
	applier, err := testbed.NewApplier(h.cluster.Admin())
	must(t, err)
	must(t, applier.Apply(t.Context(), objects...))
	t.Cleanup(func() {
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: agentName}}
		if err := client.IgnoreNotFound(shared.client.Delete(context.WithoutCancel(t.Context()), ds)); err != nil {
			t.Error(err)
		}
	})
}

// adaptAgent adapts the agent to the machine, which has no cluster network.
func (h *host) adaptAgent(t *testing.T, ds *appsv1.DaemonSet) {
	t.Helper()
	server, err := url.Parse(h.cluster.Admin().Host)
	must(t, err)
	pod := &ds.Spec.Template.Spec
	pod.NodeSelector[holdLabel] = h.label()
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		containers[0].Image, containers[0].ImagePullPolicy = machine.ImageName, corev1.PullNever
	}
	agent := &pod.Containers[0]
	agent.Command = []string{"/nodegate-agent"}
	agent.Env = append(agent.Env,
		corev1.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: server.Hostname()},
		corev1.EnvVar{Name: "KUBERNETES_SERVICE_PORT", Value: server.Port()})
}

// removeAgent removes the DaemonSet of the agent, and its pod from the machine, which is off.
func (h *host) removeAgent(t *testing.T) {
	t.Helper()
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: agentName}}
	must(t, shared.client.Delete(t.Context(), ds, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	must(t, await.Until(t.Context(), "deletion of the agent", func(ctx context.Context) error {
		if err := shared.client.Get(ctx, client.ObjectKeyFromObject(ds), ds); !apierrors.IsNotFound(err) {
			return errors.New("the DaemonSet still exists")
		}
		return shared.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(metav1.NamespaceSystem),
			client.MatchingLabels{"app.kubernetes.io/name": agentName}, client.GracePeriodSeconds(0))
	}))
}

// label returns the value of holdLabel.
func (h *host) label() string { return h.labels[holdLabel] }
