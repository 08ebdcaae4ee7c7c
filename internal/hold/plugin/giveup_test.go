// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodegate/nodegate/internal/hold"
)

// If the agent has written nothing in this boot when a pod has waited long enough, no other pod
// waits, not even in later boots.
func TestAgentIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, stateOf(before, true))
		other := w.create("s2", "other", false)
		if err := w.create("s1", "waits", false).Wait(t.Context()); err != nil || w.Uptime() != time.Minute {
			t.Errorf("after %s: %v", w.Uptime(), err)
		}
		if err := other.Wait(t.Context()); err != nil || w.Uptime() != time.Minute {
			t.Errorf("after %s: %v", w.Uptime(), err)
		}
		w.create("s3", "another", true)
		startPlugin(t, w.Store, "boot-3").create("s1", "waits", true)
	})
}

// agentWrites is a log that takes so long that the agent has written its first state of the boot
// meanwhile.
type agentWrites struct {
	slog.Handler
	write func()
}

func (a agentWrites) Enabled(context.Context, slog.Level) bool { return true }

func (a agentWrites) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "gates whose time is over") {
		a.write()
	}
	return nil
}

// The plugin neither removes nor replaces a state that the agent has just written.
func TestAgentWritesWhileThePluginGivesUp(t *testing.T) {
	for name, gates := range map[string][]hold.Gate{
		"the plugin removes the state":  nil,
		"the plugin replaces the state": {{Name: "storage", Seconds: 90}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				state := stateOf(before, true)
				state.Gates = append(state.Gates, gates...)
				w := newWorld(t, state)
				hook := w.create("s1", "waits", false)
				hook.Log = slog.New(agentWrites{slog.DiscardHandler, func() { w.write(stateOf(now, false)) }})
				if err := hook.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				if state, err := w.Store.Read(); err != nil || state.Boot != now || len(state.Gates) != 1 {
					t.Errorf("the state is %+v, %v", state, err)
				}
			})
		})
	}
}

// stuckDisk is a log that blocks, as the disk may, when the plugin is about to write the state.
type stuckDisk struct {
	slog.Handler
	works chan struct{}
}

func (d stuckDisk) Enabled(context.Context, slog.Level) bool { return true }

func (d stuckDisk) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "removing gates") {
		<-d.works
	}
	return nil
}

// The plugin answers the runtime without waiting for the disk.
func TestPluginDoesNotWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, stateOf(before, true))
		disk := stuckDisk{slog.DiscardHandler, make(chan struct{})}
		w.Log = slog.New(disk)
		w.attempts(1, "s1", "job")
		<-time.After(time.Minute)
		for range 3 { // if it blocked, the test would be deadlocked
			w.create("s1", "job", true)
			synctest.Wait()
		}
		if state, err := w.Store.Read(); err != nil || len(state.Gates) != 1 {
			t.Errorf("before the disk works, the state is %+v, %v", state, err)
		}
		close(disk.works)
		synctest.Wait()
		if state, err := w.Store.Read(); err != nil || len(state.Gates) != 0 {
			t.Errorf("the state is %+v, %v", state, err)
		}
	})
}

// What is omitted because the disk is stuck is written when it works again.
func TestPluginWritesLaterWhatTheDiskDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := stateOf(before, true)
		state.Gates = append(state.Gates, hold.Gate{Name: "storage", Seconds: 62})
		state.Pods["job2"] = hold.BoundPod{Gates: []string{"storage"}}
		w := newWorld(t, state)
		disk := stuckDisk{slog.DiscardHandler, make(chan struct{})}
		w.Log = slog.New(disk)
		w.attempts(1, "s1", "job")
		w.attempts(1, "s2", "job2")
		<-time.After(time.Minute)
		w.create("s1", "job", true)
		<-time.After(2 * time.Second)
		w.create("s2", "job2", true)
		w.create("s1", "job", true) // it has not waited longer than the other pod
		synctest.Wait()
		close(disk.works)
		<-time.After(time.Hour)
		synctest.Wait()
		if state, err := w.Store.Read(); err != nil || len(state.Gates) != 0 {
			t.Errorf("an hour later, the state is %+v, %v", state, err)
		}
		if w.writing || w.omitted != 0 {
			t.Errorf("the plugin still writes: %t, %s", w.writing, w.omitted)
		}
	})
}

// withStorage adds a gate that holds pods for longer, and for which the pod "other" waits.
func withStorage(state *hold.State) *hold.State {
	state.Gates = append(state.Gates, hold.Gate{Name: "storage", Seconds: 90})
	state.Pods["other"] = hold.BoundPod{Gates: []string{"storage"}, Restarts: true}
	return state
}

// A gate whose time is over holds no pod in later boots, even if no pod waits for a gate that
// holds pods for longer.
func TestAgentIsGoneAndOneGateIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withStorage(stateOf(before, true)))
		if err := w.create("s1", "waits", false).Wait(t.Context()); err != nil || w.Uptime() != time.Minute {
			t.Errorf("after %s: %v", w.Uptime(), err)
		}
		next := startPlugin(t, w.Store, "boot-3")
		next.create("s1", "waits", true)
		next.create("s2", "other", false)
	})
}
