// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// A log is read on from a length that was determined while a line was being written.
func TestAuditLength(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if _, err := AuditLength(path); err == nil {
		t.Error("a log that does not exist has a length")
	}
	long := `{"stage":"ResponseComplete","auditID":"` + strings.Repeat("x", 200<<10) + `"}` + "\n"
	for name, c := range map[string]struct{ before, after string }{
		"empty":                {"", long},
		"after a line":         {long, long},
		"within a line":        {long + long[:100<<10], long[100<<10:]},
		"within the first one": {long[:3], long[3:]},
	} {
		if err := os.WriteFile(path, []byte(c.before), 0o600); err != nil {
			t.Fatal(err)
		}
		length, err := AuditLength(path)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.WriteFile(path, []byte(c.before+c.after), 0o600); err != nil {
			t.Fatal(err)
		}
		read := 0
		if err := ReadAuditFile(path, length, func(*auditv1.Event) error { read++; return nil }); err != nil || read != 1 {
			t.Errorf("%s: %d lines, %v", name, read, err)
		}
	}
}

// A request is completed when it has been answered, or when the API server has panicked.
func TestReadAuditReadsCompletedRequests(t *testing.T) {
	var read []auditv1.Stage
	log := strings.NewReader(`{"stage":"RequestReceived"}
{"stage":"ResponseStarted"}
{"stage":"ResponseComplete"}
{"stage":"Panic"}
`)
	err := readAudit(log, func(event *auditv1.Event) error {
		read = append(read, event.Stage)
		return nil
	})
	if want := []auditv1.Stage{auditv1.StageResponseComplete, auditv1.StagePanic}; err != nil || !slices.Equal(read, want) {
		t.Errorf("read %v, %v; want %v", read, err, want)
	}
}
