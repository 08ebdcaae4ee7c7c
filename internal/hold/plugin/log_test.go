// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/nodegate/nodegate/internal/hold"
)

// logged makes the plugin write its log to the buffer that it returns.
func (w *world) logged() *bytes.Buffer {
	var out bytes.Buffer
	w.Log = slog.New(slog.NewTextHandler(&out, nil))
	return &out
}

// attempts lets the kubelet try to create a container of a pod several times.
func (w *world) attempts(times int, sandbox, uid string) {
	w.t.Helper()
	for range times {
		if _, _, err := w.CreateContainer(w.t.Context(), sandboxOf(sandbox, uid), &api.Container{}); err != nil && !errors.Is(err, ErrWaits) {
			w.t.Fatal(err)
		}
	}
}

// The log grows with the number of pods and gates, not of attempts: the kubelet tries again every
// second or two, and the log is in memory.
func TestEachWaitIsLoggedOnce(t *testing.T) {
	for _, uid := range []string{"job", "waits"} {
		synctest.Test(t, func(t *testing.T) {
			state := func(cni, storage bool) *hold.State {
				return &hold.State{Boot: now, Gates: []hold.Gate{{Name: "cni", Open: cni, Seconds: 60}, {Name: "storage", Open: storage, Seconds: 90}}, Pods: map[string]hold.BoundPod{
					"waits": {Gates: []string{"cni", "storage"}, Restarts: true}, "job": {Gates: []string{"cni", "storage"}},
				}}
			}
			w := newWorld(t, state(false, false))
			out := w.logged()
			expect := func(lines ...string) {
				t.Helper()
				got := strings.Split(strings.TrimSpace(out.String()), "\n")
				out.Reset()
				if len(lines) == 0 && len(got) == 1 && got[0] == "" {
					return
				}
				if len(got) != len(lines) {
					t.Fatalf("pod %s: %d lines are logged, want %d: %s", uid, len(got), len(lines), got[:min(3, len(got))])
				}
				for i := range lines {
					if !strings.Contains(got[i], lines[i]) || !strings.Contains(got[i], "pod=default/pod") {
						t.Errorf("pod %s: the log has %s, want %s", uid, got[i], lines[i])
					}
				}
			}
			w.attempts(1000, "s", uid)
			expect(`msg="pod waits"`)
			w.write(state(true, false))
			w.attempts(1000, "s", uid)
			expect("gate=storage")
			w.write(state(true, true))
			w.attempts(1000, "s", uid) // the container fails to start for another reason
			expect(`msg="pod starts"`)
			w.write(state(false, true))
			w.attempts(1000, "s", uid)
			expect("gate=cni")
			<-time.After(time.Minute)
			w.attempts(1000, "s", uid)
			expect("waited long enough")
		})
	}
}

// The plugin keeps nothing of pods that have gone. A pod that waits in another sandbox has not.
func TestNothingIsKeptOfRemovedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, stateOf(now, false))
		removed := func(sandbox, uid string) {
			t.Helper()
			if err := w.RemovePodSandbox(t.Context(), sandboxOf(sandbox, uid)); err != nil {
				t.Error(err)
			}
		}
		w.attempts(1000, "s1", "job")
		<-time.After(30 * time.Second)
		w.attempts(1, "s2", "job")
		removed("s1", "job")
		if since := w.waiting["job"].since; len(w.waiting) != 1 || since != 0 {
			t.Errorf("the pod waits since %s, and %d pods wait", since, len(w.waiting))
		}
		w.attempts(1, "s3", "waits")
		removed("s2", "job")
		removed("s3", "waits")
		if len(w.waiting) != 0 || len(w.begun) != 0 {
			t.Errorf("the plugin keeps %d pods and %d sandboxes", len(w.waiting), len(w.begun))
		}
	})
}
