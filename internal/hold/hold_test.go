// SPDX-License-Identifier: Apache-2.0

package hold_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodegate/nodegate/internal/hold"
)

func TestDecide(t *testing.T) {
	const now, before, uptime = "boot-2", "boot-1", time.Hour
	closed := hold.Gate{Name: "cni", Seconds: 60}
	open := hold.Gate{Name: "cni", Seconds: 60, Open: true}
	other := hold.Gate{Name: "storage", Seconds: 300}
	pods := map[string]hold.BoundPod{"waits": {Gates: []string{"cni", "storage"}}, "tolerates": {}, "tolerates-cni": {Gates: []string{"storage"}}}
	waits := hold.Pod{UID: "waits"}
	held := func(gate string) hold.Answer { return hold.Answer{Gate: gate, Held: true} }
	var starts hold.Answer
	for _, test := range []struct {
		name    string
		boot    string
		gates   []hold.Gate
		pod     hold.Pod
		waited  time.Duration
		want    hold.Answer
		written time.Duration
	}{
		{"no gate holds", now, nil, waits, 0, starts, uptime},
		{"closed", now, []hold.Gate{closed}, waits, 0, held("cni"), uptime},
		{"open", now, []hold.Gate{open}, waits, 0, starts, uptime},
		{"open in an earlier boot", before, []hold.Gate{open}, waits, 0, held("cni"), uptime},
		{"tolerating", now, []hold.Gate{closed}, hold.Pod{UID: "tolerates"}, 0, starts, uptime},
		{"tolerating, in a new boot", before, []hold.Gate{closed}, hold.Pod{UID: "tolerates"}, 0, starts, uptime},
		{"tolerating one of two", now, []hold.Gate{closed, other}, hold.Pod{UID: "tolerates-cni"}, 0, held("storage"), uptime},
		{"one of two is open", now, []hold.Gate{open, other}, waits, 0, held("storage"), uptime},
		{"unknown", now, []hold.Gate{closed}, hold.Pod{UID: "unknown"}, 0, held("cni"), uptime},
		{"unknown, all open", now, []hold.Gate{open}, hold.Pod{UID: "unknown"}, 0, starts, uptime},
		{"unknown, in the host's network", now, []hold.Gate{closed}, hold.Pod{UID: "unknown", HostNetwork: true}, 0, starts, uptime},
		{"known, in the host's network", now, []hold.Gate{closed}, hold.Pod{UID: "waits", HostNetwork: true}, 0, held("cni"), uptime},
		{"static", now, []hold.Gate{closed}, hold.Pod{UID: "waits", Static: true}, 0, starts, uptime},
		{"just before the limit", now, []hold.Gate{closed}, waits, 60*time.Second - 1, held("cni"), uptime},
		{"at the limit", now, []hold.Gate{closed}, waits, 60 * time.Second, hold.Answer{Gate: "cni"}, uptime},
		{"at one of two limits", now, []hold.Gate{closed, other}, waits, 60 * time.Second, held("storage"), uptime},
		{"at both limits", now, []hold.Gate{closed, other}, waits, 300 * time.Second, hold.Answer{Gate: "storage"}, uptime},
		{"at the limit, without the agent", before, []hold.Gate{open}, waits, 60 * time.Second, hold.Answer{Gate: "cni"}, uptime},
		{"the agent still writes", now, []hold.Gate{closed}, waits, 0, held("cni"), uptime - 3*time.Minute + 1},
		{"the agent has ended", now, []hold.Gate{closed}, waits, 0, starts, uptime - 3*time.Minute},
		{"the uptime of an earlier boot says nothing", before, []hold.Gate{closed}, waits, 0, held("cni"), 0},
	} {
		state := hold.State{Boot: test.boot, Uptime: test.written, Gates: test.gates, Pods: pods}
		if got := state.Decide(test.pod, now, uptime, test.waited); got != test.want {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestStore(t *testing.T) {
	store := hold.Store{Dir: filepath.Join(t.TempDir(), "nodegate")}
	read := func(want *hold.State) {
		t.Helper()
		got, err := store.Read()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	read(&hold.State{})
	for _, state := range []*hold.State{
		{Boot: "boot-1", Gates: []hold.Gate{{Name: "cni", Open: true, Seconds: 1}}, Pods: map[string]hold.BoundPod{"a": {Terminating: true}, "b": {Gates: []string{"cni"}}}},
		{Boot: "boot-2", Gates: []hold.Gate{}, Pods: map[string]hold.BoundPod{}},
	} {
		if err := store.Write(state); err != nil {
			t.Fatal(err)
		}
		read(state)
	}
	if got := store.PluginBoot(); got != "" {
		t.Errorf("the plugin started in boot %q", got)
	}
	if err := store.PluginStarted("boot-2"); err != nil {
		t.Fatal(err)
	}
	if got := store.PluginBoot(); got != "boot-2" {
		t.Errorf("the plugin started in boot %q", got)
	}
	for range 2 {
		if err := store.Remove(); err != nil {
			t.Error(err)
		}
	}
	read(&hold.State{})
	files, err := os.ReadDir(store.Dir)
	if err != nil || len(files) != 1 {
		t.Errorf("the directory has %v, %v", files, err)
	}
}

// A state that cannot be parsed is an error, not a state without gates.
func TestDamagedState(t *testing.T) {
	store := hold.Store{Dir: t.TempDir()}
	if err := store.Write(&hold.State{Boot: "boot"}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(store.Dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.WriteFile(files[0], []byte(`{"boot":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if state, err := store.Read(); err == nil {
		t.Errorf("read %+v", state)
	}
}
