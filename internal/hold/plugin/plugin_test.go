// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/nodegate/nodegate/internal/hold"
)

// world is a plugin that the runtime has started, in boot now.
type world struct {
	*Plugin
	t *testing.T
}

const now, before = "boot-2", "boot-1"

func newWorld(t *testing.T, state *hold.State) *world {
	t.Helper()
	w := startPlugin(t, hold.Store{Dir: t.TempDir()}, now)
	w.write(state)
	return w
}

func startPlugin(t *testing.T, store hold.Store, boot string) *world {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	p := &Plugin{Store: store, Boot: boot, Uptime: func() time.Duration { return time.Since(began) }, Program: program, Log: slog.New(slog.DiscardHandler)}
	p.reset()
	return &world{p, t}
}

func (w *world) write(state *hold.State) {
	w.t.Helper()
	if err := w.Store.Write(state); err != nil {
		w.t.Fatal(err)
	}
}

// create lets the runtime create a container of a pod in a sandbox, and checks whether it may
// start at once. It returns what the hook does.
func (w *world) create(sandbox, uid string, want bool) *Waiter {
	w.t.Helper()
	return w.createIn(sandboxOf(sandbox, uid), want)
}

// createIn does the same for any sandbox.
func (w *world) createIn(sandbox *api.PodSandbox, want bool) *Waiter {
	w.t.Helper()
	adjustment, _, err := w.CreateContainer(w.t.Context(), sandbox, &api.Container{PodSandboxId: sandbox.GetId()})
	if err != nil {
		w.t.Fatal(err)
	}
	hooks := adjustment.GetHooks().GetCreateRuntime()
	if (len(hooks) == 0) != want {
		w.t.Errorf("the container of pod %s in sandbox %s has the hooks %v", sandbox.GetUid(), sandbox.GetId(), hooks)
	}
	if len(hooks) == 0 {
		return nil
	}
	hook := &Waiter{Store: w.Store, Uptime: w.Uptime, Log: w.Log}
	if err := hook.ParseHook(hooks[0].Args[1:]); err != nil {
		w.t.Error(err)
	}
	return hook
}

// started tells the plugin that a container has started.
func (w *world) started(sandbox, uid string) {
	w.t.Helper()
	if err := w.PostStartContainer(w.t.Context(), sandboxOf(sandbox, uid), &api.Container{}); err != nil {
		w.t.Error(err)
	}
}

func sandboxOf(id, uid string) *api.PodSandbox {
	return &api.PodSandbox{
		Id: id, Uid: uid, Namespace: "default", Name: "pod", Annotations: map[string]string{configSource: "api"},
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "pid"}, {Type: "network"}}},
	}
}

func stateOf(boot string, open bool) *hold.State {
	return &hold.State{Boot: boot, Gates: []hold.Gate{{Name: "cni", Open: open, Seconds: 60}}, Pods: map[string]hold.BoundPod{
		"waits": {Gates: []string{"cni"}, Restarts: true}, "other": {Gates: []string{"cni"}, Restarts: true}, "job": {Gates: []string{"cni"}}, "daemon": {},
	}}
}

// The first container of a pod waits until the gate opens. Others do not.
func TestFirstContainerWaits(t *testing.T) {
	w := newWorld(t, stateOf(before, true))
	w.create("s1", "daemon", true)
	w.create("s2", "waits", false)
	w.write(stateOf(now, false))
	w.create("s2", "waits", false)
	w.write(stateOf(now, true))
	w.create("s2", "waits", true)
	w.started("s2", "waits")
	w.write(stateOf(now, false))
	w.create("s2", "waits", true)
	w.create("s3", "waits", false)
	if err := w.RemovePodSandbox(t.Context(), sandboxOf("s2", "waits")); err != nil {
		t.Error(err)
	}
	if len(w.begun) != 0 {
		t.Errorf("the plugin remembers the sandboxes %v", w.begun)
	}
}

// The containers of pods that run when the runtime starts do not wait. Those of which no
// container has started yet do, and so do those of which no container runs any more: containerd
// does not list containers that have ended.
func TestRuntimeRestarts(t *testing.T) {
	w := newWorld(t, stateOf(now, true))
	for _, sandbox := range []string{"runs", "ended"} {
		w.create(sandbox, "waits", true)
		w.started(sandbox, "waits")
	}
	w.write(stateOf(now, false))
	w.create("ended", "waits", true)

	w = startPlugin(t, w.Store, now)
	sandboxes := []*api.PodSandbox{sandboxOf("runs", "waits"), sandboxOf("created", "waits"), sandboxOf("ended", "waits")}
	listed := []*api.Container{
		{PodSandboxId: "runs", State: api.ContainerState_CONTAINER_RUNNING}, {PodSandboxId: "created", State: api.ContainerState_CONTAINER_CREATED},
	}
	if _, err := w.Synchronize(t.Context(), sandboxes, listed); err != nil {
		t.Fatal(err)
	}
	w.create("runs", "waits", true)
	w.create("created", "waits", false)
	w.create("ended", "waits", false)
}

// Without its program, the hook would keep the container from starting for ever.
func TestProgramIsMissing(t *testing.T) {
	w := newWorld(t, stateOf(now, false))
	w.Program = filepath.Join(t.TempDir(), "missing")
	w.create("s1", "waits", true)
}

// The hook ends soon after the gate has opened.
func TestOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, stateOf(before, true))
		hook := w.create("s1", "waits", false)
		go func() {
			<-time.After(time.Minute - time.Second)
			w.write(stateOf(now, true))
		}()
		if err := hook.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if waited := w.Uptime(); waited < time.Minute-time.Second || waited > time.Minute {
			t.Errorf("the pod waited %s", waited)
		}
	})
}

// A hook also ends soon after the state has been removed, for example by an administrator.
func TestRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, stateOf(now, false))
		hook := w.create("s1", "waits", false)
		time.AfterFunc(10*time.Second, func() {
			if err := w.Store.Remove(); err != nil {
				t.Error(err)
			}
		})
		if err := hook.Wait(t.Context()); err != nil || w.Uptime() > 11*time.Second {
			t.Errorf("after %s: %v", w.Uptime(), err)
		}
	})
}

// If the state cannot be read, no pod waits, neither one that begins to nor one that already does.
func TestDamagedState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, stateOf(now, false))
		hook := w.create("s1", "waits", false)
		time.AfterFunc(10*time.Second, func() {
			files, err := filepath.Glob(filepath.Join(w.Store.Dir, "*"))
			if err != nil || len(files) != 1 || os.Truncate(files[0], 10) != nil {
				t.Error(files, err)
			}
		})
		if err := hook.Wait(t.Context()); err != nil || w.Uptime() > 11*time.Second {
			t.Errorf("after %s: %v", w.Uptime(), err)
		}
		w.create("s2", "other", true)
		w.create("s3", "job", true)
	})
}

// The runtime must answer the kubelet before a pod that is being deleted can be gone. The hook of
// a pod that was deleted without waiting for the kubelet ends, too, also in the node's network
// namespace, in which pods that the agent does not know do not wait.
func TestDeletion(t *testing.T) {
	onHost := sandboxOf("s1", "waits")
	onHost.Linux.Namespaces = onHost.Linux.Namespaces[:1]
	terminating := func(pods map[string]hold.BoundPod) {
		pods["waits"] = hold.BoundPod{Gates: []string{"cni"}, Restarts: true, Terminating: true}
	}
	gone := func(pods map[string]hold.BoundPod) { delete(pods, "waits") }
	for name, test := range map[string]struct {
		sandbox *api.PodSandbox
		after   time.Duration
		change  func(map[string]hold.BoundPod)
	}{
		"deleted":                                 {sandboxOf("s1", "waits"), 10 * time.Second, terminating},
		"deleted by force":                        {sandboxOf("s1", "waits"), 10 * time.Second, gone},
		"deleted by force before the hook runs":   {sandboxOf("s1", "waits"), 0, gone},
		"on the host's network, deleted":          {onHost, 10 * time.Second, terminating},
		"on the host's network, deleted by force": {onHost, 10 * time.Second, gone},
		"on the host's network, deleted by force before the hook runs": {onHost, 0, gone},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, stateOf(now, false))
				hook := w.createIn(test.sandbox, false)
				time.AfterFunc(test.after, func() {
					state := stateOf(now, false)
					test.change(state.Pods)
					w.write(state)
				})
				synctest.Wait()
				if err := hook.Wait(t.Context()); !errors.Is(err, ErrWaits) || w.Uptime() < test.after || w.Uptime() > test.after+time.Second {
					t.Errorf("after %s: %v", w.Uptime(), err)
				}
			})
		})
	}
}

// After an upgrade, the program of the hook is newer than the plugin until the runtime restarts.
func TestHookOfAFormerPlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, stateOf(now, false))
		hook := &Waiter{Store: w.Store, Uptime: w.Uptime, Log: w.Log}
		if err := hook.ParseHook([]string{"-boot=" + now, "-uid=waits", "-pod=default/pod", "-since=1s", "-gate=cni", "-host-network"}); err != nil {
			t.Fatal(err)
		}
		if err := hook.Wait(t.Context()); err != nil || w.Uptime() != time.Minute+time.Second {
			t.Errorf("after %s: %v", w.Uptime(), err)
		}
	})
}

// A container whose hook fails may not be restarted, and its failures can fail a Job. The
// containers of such pods, and of those that may be such pods, are therefore not created.
func TestPodsThatAreNotRestarted(t *testing.T) {
	w := newWorld(t, stateOf(now, false))
	refused := func(uid string) {
		t.Helper()
		_, _, err := w.CreateContainer(t.Context(), sandboxOf("s-"+uid, uid), &api.Container{})
		if !errors.Is(err, ErrWaits) || !strings.Contains(err.Error(), "gate cni is closed") || !strings.Contains(err.Error(), retrySoon) {
			t.Errorf("pod %s: %v", uid, err)
		}
	}
	refused("job")
	refused("unknown")
	w.write(stateOf(now, true))
	w.create("s-job", "job", true)
	w.create("s-unknown", "unknown", true)
}

// If one gate has held a pod for as long as it allows, other gates still hold theirs.
func TestAgentIsGoneForOneGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withStorage(stateOf(before, true)))
		other := w.create("s2", "other", false)
		if err := w.create("s1", "waits", false).Wait(t.Context()); err != nil || w.Uptime() != time.Minute {
			t.Errorf("after %s: %v", w.Uptime(), err)
		}
		if err := other.Wait(t.Context()); err != nil || w.Uptime() != 90*time.Second {
			t.Errorf("after %s: %v", w.Uptime(), err)
		}
		if state, err := w.Store.Read(); err != nil || len(state.Gates) > 0 {
			t.Errorf("the state is %+v, %v", state, err)
		}
	})
}

// A hook ends before the kubelet gives up. The pod waits in the next one for as long as the gate
// allows, from its own first attempt.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := stateOf(now, false)
		state.Gates[0].Seconds = 150
		w := newWorld(t, state)
		err := w.create("s1", "waits", false).Wait(t.Context())
		if !errors.Is(err, ErrWaits) || !strings.Contains(err.Error(), "gate cni is closed") || w.Uptime() != attempt {
			t.Errorf("after %s: %v", w.Uptime(), err)
		}
		<-time.After(10 * time.Second)
		other := w.create("s2", "other", false)
		if err := w.create("s1", "waits", false).Wait(t.Context()); err != nil || w.Uptime() != 150*time.Second {
			t.Errorf("after %s: %v", w.Uptime(), err)
		}
		w.create("s1", "waits", true)
		if other.Since != attempt+10*time.Second || !other.mustWait() {
			t.Errorf("the other pod waits since %s", other.Since)
		}
		if state, err := w.Store.Read(); err != nil || len(state.Gates) != 1 {
			t.Errorf("the state of this boot is %+v, %v", state, err)
		}
	})
}

func TestPodOf(t *testing.T) {
	static := sandboxOf("s", "uid")
	static.Annotations[configSource] = "file"
	host := sandboxOf("s", "uid")
	host.Linux.Namespaces = host.Linux.Namespaces[:1]
	bare := &api.PodSandbox{Uid: "uid"}
	for name, test := range map[string]struct {
		sandbox *api.PodSandbox
		want    hold.Pod
	}{
		"of the API server":   {sandboxOf("s", "uid"), hold.Pod{UID: "uid"}},
		"static":              {static, hold.Pod{UID: "uid", Static: true}},
		"host network":        {host, hold.Pod{UID: "uid", HostNetwork: true}},
		"without information": {bare, hold.Pod{UID: "uid"}},
	} {
		if got := podOf(test.sandbox); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
