// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCPUTimeOfStat(t *testing.T) {
	const rest = " S 1 2 3 4 5 6 7 8 9 10 123 77 0 0 20 0 1 0 5"
	for name, test := range map[string]struct {
		stat string
		want time.Duration
	}{
		"plain":                 {"42 (nodegate)" + rest, 2 * time.Second},
		"a name with brackets":  {"42 (a) b (c)" + rest, 2 * time.Second},
		"nothing that is known": {"42 nodegate S 1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseStat([]byte(test.stat))
			if got != test.want || (err != nil) != (test.want == 0) {
				t.Errorf("%v, %v; want %v", got, err, test.want)
			}
		})
	}
	if _, err := CPU(os.Getpid()); err != nil {
		t.Error(err)
	}
}

func TestMemoryOfStatus(t *testing.T) {
	got, err := parseStatus([]byte("Name:\tx\nVmHWM:\t    300 kB\nVmRSS:\t    200 kB\nRssAnon:\t      50 kB\n"))
	if want := (Memory{Peak: 300 << 10, Resident: 200 << 10, Anonymous: 50 << 10}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if m, err := parseStatus([]byte("VmRSS:\t 200 kB\n")); err == nil {
		t.Errorf("half of it is taken for all: %+v", m)
	}
	if m, err := MemoryOf(os.Getpid()); err != nil || m.Peak < m.Resident/2 || m.Resident == 0 {
		t.Errorf("of this process: %+v, %v", m, err)
	}
}

const auditLog = `{"stage":"ResponseStarted","requestURI":"/api/v1/nodes?watch=true","verb":"watch","objectRef":{"resource":"nodes"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","requestURI":"/api/v1/nodes/n1","verb":"patch","userAgent":"nodegate","objectRef":{"resource":"nodes","name":"n1"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.600000Z"}
{"stage":"ResponseComplete","requestURI":"/api/v1/nodes/n1?dryRun=All","verb":"patch","objectRef":{"resource":"nodes","name":"n1"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","requestURI":"/api/v1/nodes/n1/status","verb":"patch","objectRef":{"resource":"nodes","subresource":"status","name":"n1"},"responseStatus":{"code":409}}
{"stage":"ResponseComplete","verb":"pat`

func TestAuditLog(t *testing.T) {
	requests, err := parseAudit(strings.NewReader(auditLog))
	if err != nil {
		t.Fatal(err)
	}
	if len(requests) != 3 {
		t.Fatalf("%d requests, want 3: only those that were answered, and none that is written by half", len(requests))
	}
	want := Request{Verb: "patch", Resource: "nodes", Name: "n1", Code: 200, UserAgent: "nodegate", Received: time.Date(2026, 1, 2, 3, 4, 5, 6e8, time.UTC)}
	if diff := cmp.Diff(want, requests[0]); diff != "" {
		t.Error(diff)
	}
	if n := Count(requests, NodePatch); n != 1 {
		t.Errorf("%d are PATCHes of a node, want 1: neither a dry run nor its status", n)
	}
}

func TestAuditSinceAMark(t *testing.T) {
	path := t.TempDir() + "/audit.log"
	line := strings.Split(auditLog, "\n")[1] + "\n"
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	audit := Audit{Path: path}
	mark, err := audit.Mark()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(line+line+line), 0o600); err != nil {
		t.Fatal(err)
	}
	requests, err := audit.Since(mark)
	if err != nil || len(requests) != 2 {
		t.Errorf("%d requests, %v; want the 2 after the mark", len(requests), err)
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
		t.Errorf("a label that is not there: %q", got)
	}
}
