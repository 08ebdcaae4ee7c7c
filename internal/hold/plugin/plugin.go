// SPDX-License-Identifier: Apache-2.0

// Package plugin is a plugin of the container runtime (Node Resource Interface) that keeps
// the first container of a pod from starting while the pod waits for a gate. It gives the
// container a hook: the runtime creates the container, and starts it when the hook has ended.
package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/nodegate/nodegate/internal/hold"
)

// Name is the name of the program in the runtime's directory of plugins. The number is its
// position among plugins.
const Name = "90-nodegate-hold"

// retrySoon is in the error of a pod that waits. The kubelet then tries again after 1 to 1.5
// seconds, and not after 10 to 15.
// Source: completeWork in k8s.io/kubernetes/pkg/kubelet/pod_workers.go.
const retrySoon = "network is not ready"

// configSource is the annotation in which the kubelet records where it has a pod from.
// Source: k8s.io/kubernetes/pkg/kubelet/types.
const configSource = "kubernetes.io/config.source"

// Plugin answers the runtime. It fails open: if it cannot decide, the pod starts.
type Plugin struct {
	Store hold.Store
	// Boot is the ID of the current boot.
	Boot string
	// Uptime returns the time since the boot.
	Uptime func() time.Duration
	// Program is the program of this plugin, which is also the hook.
	Program string
	Log     *slog.Logger

	mu sync.Mutex
	// begun has the sandboxes in which a container has started. Their other containers do
	// not wait.
	begun map[string]bool
	// waiting has the pods that wait, by UID.
	waiting map[string]*waitingPod

	// writing specifies whether a goroutine removes gates from the state. omitted is the longest time
	// that a pod had waited for which this was omitted meanwhile.
	writing bool
	omitted time.Duration
}

// waitingPod is what attempts to create a container of a pod have in common.
type waitingPod struct {
	// since is the uptime at which the pod began to wait.
	since time.Duration
	// gate is the gate that the log says the pod waits for, or empty.
	gate string
	// sandbox is the sandbox of the last attempt. The removal of an earlier one, such as that of
	// the previous boot, does not end the wait.
	sandbox string
}

// Run serves the runtime that has started this process, until the runtime ends.
func (p *Plugin) Run(ctx context.Context) error {
	p.reset()
	s, err := stub.New(p)
	if err != nil {
		return fmt.Errorf("connecting to the container runtime: %w", err)
	}
	if err := s.Start(ctx); err != nil {
		return fmt.Errorf("registering with the container runtime: %w", err)
	}
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	// Not before: this may wait for the disk, and the runtime does not wait long for plugins.
	if err := p.Store.PluginStarted(p.Boot); err != nil {
		p.Log.Error("cannot record that the runtime has started the plugin", "err", err)
	}
	s.Wait()
	return nil
}

// reset forgets all pods.
func (p *Plugin) reset() {
	p.begun, p.waiting = make(map[string]bool), make(map[string]*waitingPod)
}

// Synchronize is called by the runtime with what exists when the plugin starts. containerd omits
// containers that have ended.
func (p *Plugin) Synchronize(_ context.Context, _ []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range containers {
		if c.GetStartedAt() > 0 || c.GetState() == api.ContainerState_CONTAINER_RUNNING {
			p.begun[c.GetPodSandboxId()] = true
		}
	}
	return nil, nil
}

// CreateContainer is called by the runtime before it creates a container. If the pod waits, it
// adds a hook to the container, which ends when the container may start, or returns an error: a
// container whose hook fails has failed to start, which is counted as a restart, and not every
// container is restarted then. The kubelet tries again soon after an error, but at growing
// intervals if a container of an earlier boot has ended, which it takes for a crash.
func (p *Plugin) CreateContainer(_ context.Context, pod *api.PodSandbox, _ *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun[pod.GetId()] {
		return nil, nil, nil
	}
	w := p.waiter(pod)
	if !p.mustWait(w, pod) {
		return nil, nil, nil
	}
	// Without the program, the container could not start at all.
	if _, err := os.Stat(p.Program); err != nil {
		p.Log.Error("the program of the hook is missing, pods do not wait", "err", err)
		return nil, nil, nil
	}
	if !w.state.Pods[w.Pod.UID].Restarts {
		return nil, nil, fmt.Errorf("%w, because gate %s is closed on the node: %s", ErrWaits, w.gate, retrySoon)
	}
	adjustment := &api.ContainerAdjustment{}
	adjustment.AddHooks(&api.Hooks{CreateRuntime: []*api.Hook{w.hook(p.Program)}})
	return adjustment, nil, nil
}

// waiter returns the waiter of an attempt, which continues the previous one.
func (p *Plugin) waiter(pod *api.PodSandbox) *Waiter {
	w := &Waiter{
		Store: p.Store, Boot: p.Boot, Uptime: p.Uptime, Log: p.Log,
		background: p.background, Pod: podOf(pod), Name: pod.GetNamespace() + "/" + pod.GetName(), Since: p.Uptime(),
	}
	if before := p.waiting[w.Pod.UID]; before != nil {
		w.Since, w.gate = before.since, before.gate
	}
	return w
}

// background calls giveUp, which waits for the disk, in a goroutine: the runtime disconnects a plugin
// that does not answer within two seconds. If it is already being called, it is called once more
// then: the gates of a pod that has waited for longer include those of all others.
func (p *Plugin) background(giveUp func(time.Duration), waited time.Duration) {
	if p.writing {
		p.omitted = max(p.omitted, waited)
		return
	}
	p.writing = true
	go func() {
		for more := true; more; {
			giveUp(waited)
			p.mu.Lock()
			waited, p.omitted = p.omitted, 0
			more = waited > 0
			p.writing = more
			p.mu.Unlock()
		}
	}()
}

// mustWait reports whether a pod has to wait, and keeps what the next attempt needs.
func (p *Plugin) mustWait(w *Waiter, pod *api.PodSandbox) bool {
	waits := w.mustWait()
	switch before := p.waiting[w.Pod.UID]; {
	case waits:
		p.waiting[w.Pod.UID] = &waitingPod{since: w.Since, gate: w.gate, sandbox: pod.GetId()}
	case before != nil: // until a container has started: it may fail, and the gate may close
		before.gate, before.sandbox = "", pod.GetId()
	}
	return waits
}

// PostStartContainer is called by the runtime when a container has started.
func (p *Plugin) PostStartContainer(_ context.Context, pod *api.PodSandbox, _ *api.Container) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun[pod.GetId()] = true
	delete(p.waiting, pod.GetUid())
	return nil
}

// RemovePodSandbox is called by the runtime when it removes a sandbox.
func (p *Plugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.begun, pod.GetId())
	if w := p.waiting[pod.GetUid()]; w != nil && w.sandbox == pod.GetId() {
		delete(p.waiting, pod.GetUid())
	}
	return nil
}

func podOf(pod *api.PodSandbox) hold.Pod {
	source, known := pod.GetAnnotations()[configSource]
	namespaces := pod.GetLinux().GetNamespaces()
	hasNetwork := slices.ContainsFunc(namespaces, func(n *api.LinuxNamespace) bool { return n.GetType() == "network" })
	return hold.Pod{
		UID:         pod.GetUid(),
		Static:      known && source != "api",
		HostNetwork: len(namespaces) > 0 && !hasNetwork,
	}
}
