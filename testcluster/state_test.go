// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestSweep(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	old := time.Now().Add(-2 * sweepAge)
	create := func() *stateDir {
		t.Helper()
		dir, err := openStateDir("")
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	age := func(dir *stateDir) {
		t.Helper()
		if err := os.Chtimes(dir.path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	dead, alive, kept, young := create(), create(), create(), create()
	dead.lock.Close()
	young.lock.Close()
	if err := kept.close(true); err != nil {
		t.Fatal(err)
	}
	age(dead)
	age(alive)
	age(kept)
	sweep(os.TempDir())
	for dir, want := range map[*stateDir]bool{dead: false, alive: true, kept: true, young: true} {
		if _, err := os.Stat(dir.path); (err == nil) != want {
			t.Errorf("%s: %v, want it to exist: %v", dir.path, err, want)
		}
	}
	// After a day, the logs are removed.
	yesterday := time.Now().Add(-keepPeriod - time.Minute)
	if err := os.Chtimes(filepath.Join(kept.path, keepFile), yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	age(kept)
	sweep(os.TempDir())
	if _, err := os.Stat(kept.path); err == nil {
		t.Error("logs are still kept after keepPeriod")
	}
	if err := alive.close(false); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(alive.path); err == nil {
		t.Error("a temporary directory is left")
	}
}

// TestLostPort starts a cluster in which another process takes the first port
// that is chosen for each component.
func TestLostPort(t *testing.T) {
	if testing.Short() { // like clustertest.SkipIfShort, which this package cannot import
		t.Skip("needs a control plane: run without -short")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c, err := newCluster(t.Context(), Options{Dir: t.TempDir(), Components: []Component{APIServer, Scheduler, KWOK}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stopping: %v", err)
		}
	})
	taken := listener.Addr().(*net.TCPAddr).Port
	var choices atomic.Int32
	c.choosePort = func() (int, error) {
		switch choices.Add(1) {
		case 1, 3, 5, 6: // etcd, the API server, and two at the same time
			return taken, nil
		default:
			return freePort()
		}
	}
	if err := c.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := choices.Load(); got != 8 {
		t.Errorf("chose %d ports, want two for each of four components", got)
	}
}

func TestMergeStages(t *testing.T) {
	own := "# a comment\n---\nkind: Stage\nspec: {resourceRef: {apiGroup: v1, kind: Node}, mine: true}\n"
	merged, err := mergeStages(own)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(merged, "mine: true") || strings.Contains(merged, "node-initialize") ||
		!strings.Contains(merged, "name: pod-ready") {
		t.Errorf("only the stages of nodes should be replaced:\n%s", merged)
	}
	defaults, err := mergeStages("")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(defaults, "kind: Stage"), strings.Count(defaultStages, "kind: Stage"); got != want {
		t.Errorf("%d stages by default, want %d", got, want)
	}
}

func TestLastLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	text := strings.Repeat("x\n", lastBytes) + strings.Repeat("y\n", 3)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(lastLinesOf(file, 0), ""); got != strings.Repeat("x", lastLines-3)+"yyy" {
		t.Errorf("from the beginning: %q", got)
	}
	if got := strings.Join(lastLinesOf(file, int64(len(text)-4)), ""); got != "yy" {
		t.Errorf("from an offset: %q", got)
	}
	if got := lastLinesOf(file, int64(len(text))); got != nil {
		t.Errorf("from the end: %q", got)
	}
}
