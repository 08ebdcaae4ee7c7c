// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
)

// work returns when this process has used CPU time.
func work(t *testing.T) {
	t.Helper()
	before, err := CPU(os.Getpid())
	for now := before; err == nil && now < before+5*tick; {
		now, err = CPU(os.Getpid())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestCPUIsExact checks that CPU times are more exact than those in /proc/PID/stat, and that
// both are about the same process.
func TestCPUIsExact(t *testing.T) {
	process, err := procfs.Self()
	if err != nil {
		t.Fatal(err)
	}
	ofStat := func() time.Duration {
		stat, err := process.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(stat.UTime+stat.STime) * tick
	}
	before := ofStat()
	used, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if after := ofStat(); used < before-2*tick || used > after+2*tick {
		t.Errorf("%s; want between %s and %s", used, before, after)
	}
	steps := map[time.Duration]bool{}
	for range 100 {
		used, err := CPU(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		steps[used%tick] = true
	}
	if len(steps) < 50 {
		t.Errorf("100 values of CPU time have only %d different parts below %s", len(steps), tick)
	}
}

func TestOwnProcess(t *testing.T) {
	before, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	work(t)
	if after, err := CPU(os.Getpid(), os.Getpid()); err != nil || after <= 2*before {
		t.Errorf("%s twice, %v; want more than twice %s", after, err, before)
	}
	if m, err := Memory(os.Getpid()); err != nil || m.VmHWM < m.VmRSS/2 || m.VmRSS < m.RssAnon {
		t.Errorf("%+v, %v", m, err)
	}
	for _, pid := range []int{0, 1 << 22} { // the kernel's process IDs are smaller
		if err := AwaitQuiet(t.Context(), pid); err == nil {
			t.Errorf("waited for process %d, which does not exist", pid)
		}
	}
}

const auditLog = `{"stage":"ResponseComplete","requestURI":"/api/v1/nodes/n1","verb":"patch","objectRef":{"resource":"nodes","name":"n1"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.600000Z"}
{"stage":"ResponseStarted","requestURI":"/api/v1/nodes?watch=true","verb":"watch","objectRef":{"resource":"nodes"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","requestURI":"/api/v1/nodes/n1?dryRun=All","verb":"patch","objectRef":{"resource":"nodes","name":"n1"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","requestURI":"/api/v1/nodes/n1/status","verb":"patch","objectRef":{"resource":"nodes","subresource":"status","name":"n1"},"responseStatus":{"code":409}}
{"stage":"ResponseComplete","verb":"pat`

func TestAudit(t *testing.T) {
	path := t.TempDir() + "/audit.log"
	if _, err := Audit(path).Mark(); err == nil {
		t.Error("there is a mark in a log that does not exist")
	}
	write := func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("before the mark\n")
	mark, err := Audit(path).Mark()
	if err != nil {
		t.Fatal(err)
	}
	write("before the mark\n" + auditLog)
	requests, err := Audit(path).Since(mark)
	if err != nil || len(requests) != 3 {
		t.Fatalf("%d requests, %v; want the 3 that were answered and are complete", len(requests), err)
	}
	want := Request{Verb: "patch", Resource: "nodes", Name: "n1", Code: 200, Received: time.Date(2026, 1, 2, 3, 4, 5, 6e8, time.UTC)}
	if diff := cmp.Diff(want, requests[0]); diff != "" {
		t.Errorf("first request (-want +got):\n%s", diff)
	}
	if n := Count(requests, NodePatch); n != 1 {
		t.Errorf("%d PATCHes of a node, want 1: neither the dry run nor the status", n)
	}
}

func TestMetrics(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# TYPE requests counter\n"+
			`requests{verb="patch",code="200"} 3`+"\n"+`requests{verb="patch",code="409"} 2`+"\n"+`requests{verb="get",code="200"} 7`+"\n"+
			"# TYPE build gauge\n"+`build{version="v1"} 1`+"\n")
	}))
	defer server.Close()
	m, err := Of(t.Context(), strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		labels map[string]string
		want   float64
	}{
		"all":     {nil, 12},
		"some":    {map[string]string{"verb": "patch"}, 5},
		"one":     {map[string]string{"verb": "patch", "code": "409"}, 2},
		"no such": {map[string]string{"verb": "put"}, 0},
	} {
		if got := m.Sum("requests", test.labels); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	if got := m.label("build", "version"); got != "v1" {
		t.Errorf("version %q", got)
	}
	if got := m.label("build", "other"); got != "of unknown version" {
		t.Errorf("missing label: %q", got)
	}
}

func TestDisturbance(t *testing.T) {
	at := func(second int) Usage { return Usage{At: time.Unix(int64(second), 0), CPUs: 2} }
	before, after := at(100), at(110) // 20 s of CPU time
	before.Idle, before.Own, before.Stolen, before.Throttled = time.Hour, time.Minute, time.Second, 7
	after.Idle, after.Own, after.Stolen, after.Throttled = time.Hour+12*time.Second, time.Minute+5*time.Second, 3*time.Second, 9
	if d := after.Since(before); d != (Disturbance{Others: 0.05, Stolen: 0.1, Throttled: 2}) {
		t.Errorf("%+v", d)
	}
	after.Own += 2 * time.Second // clocks do not agree exactly
	if d := after.Since(before); d.Others != 0 {
		t.Errorf("other processes used %v of the CPU time", d.Others)
	}
	if d := before.Since(before); d != (Disturbance{}) {
		t.Errorf("in no time: %+v", d)
	}
}

// The benchmark's own time is that of the process and its descendants, also of those that
// have ended, and of the kernel's threads.
func TestOwnTime(t *testing.T) {
	all := []procfs.ProcStat{
		{PID: 1, UTime: 1000, CUTime: 5000},
		{PID: 2, Flags: kernelThread, STime: 7},
		{PID: 10, PPID: 1, UTime: 1, STime: 2, CUTime: 3, CSTime: 4},
		{PID: 11, PPID: 10, UTime: 100},
		{PID: 12, PPID: 11, STime: 200},
		{PID: 20, PPID: 1, UTime: 4000},
	}
	if got, want := ownTime(all, 10), 317*tick; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestReadUsage(t *testing.T) {
	before, err := ReadUsage()
	if err != nil {
		t.Fatal(err)
	}
	work(t)
	after, err := ReadUsage()
	if err != nil || after.Own <= before.Own || after.CPUs == 0 || after.Idle < before.Idle {
		t.Errorf("%+v after %+v: %v", after, before, err)
	}
	if d := after.Since(before); d.Others > 1 || d.Stolen > 1 {
		t.Errorf("%+v", d)
	}
}

func TestThrottledPeriods(t *testing.T) {
	if n, ok := periodsThrottled([]byte("nr_periods 5\nnr_throttled 3\nthrottled_time 7\n")); n != 3 || !ok {
		t.Errorf("%d, %t", n, ok)
	}
	if _, ok := periodsThrottled([]byte("usage_usec 5\n")); ok {
		t.Error("a file without throttling is accepted")
	}
	for want, group := range map[string]procfs.Cgroup{
		"/sys/fs/cgroup/a /sys/fs/cgroup":                         {Path: "/a"},
		"/sys/fs/cgroup/cpu,cpuacct/a /sys/fs/cgroup/cpu,cpuacct": {HierarchyID: 1, Controllers: []string{"cpu", "cpuacct"}, Path: "/a"},
		"": {HierarchyID: 4, Controllers: []string{"memory"}, Path: "/a"},
	} {
		if got := strings.Join(cpuDirectories(group), " "); got != want {
			t.Errorf("%+v: %q, want %q", group, got, want)
		}
	}
}

func TestTransferred(t *testing.T) {
	_, before, err := Transferred(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 20
	if err := os.WriteFile(filepath.Join(t.TempDir(), "file"), make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, after, err := Transferred(os.Getpid()); err != nil || after-before < size {
		t.Errorf("%v more bytes were sent: %v", after-before, err)
	}
}

func TestAuditPolicy(t *testing.T) {
	if policy := AuditPolicy("a", "b:c"); !strings.Contains(policy, `users: ["a", "b:c"]`) {
		t.Error(policy)
	}
}

func TestNodeWrites(t *testing.T) {
	for _, r := range []Request{{Verb: "patch", Resource: "nodes"}, {Verb: "update", Resource: "nodes", Code: 409}} {
		if !NodeWrite(r) {
			t.Errorf("%+v is not a write", r)
		}
	}
	for _, r := range []Request{
		{Verb: "get", Resource: "nodes"}, {Verb: "patch", Resource: "nodes", Subresource: "status"},
		{Verb: "update", Resource: "leases"}, {Verb: "patch", Resource: "nodes", DryRun: true},
	} {
		if NodeWrite(r) {
			t.Errorf("%+v is a write", r)
		}
	}
}

// The live heap does not contain garbage.
func TestLiveHeap(t *testing.T) {
	const size = 64 << 20
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	server := httptest.NewServer(mux)
	defer server.Close()
	live := func() int64 {
		bytes, err := LiveHeap(t.Context(), server.Client(), server.URL)
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	before := live()
	used := make([]byte, size)
	with := live() - before
	runtime.KeepAlive(used)
	if without := live() - before; with < size/2 || without > size/2 {
		t.Errorf("%d more bytes with %d in use, and %d more without", with, size, without)
	}
	if _, err := LiveHeap(t.Context(), server.Client(), server.URL+"/none"); err == nil || !strings.Contains(err.Error(), "404 Not Found") {
		t.Errorf("no heap profile: %v", err)
	}
}
