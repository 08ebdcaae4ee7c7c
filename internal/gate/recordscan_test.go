// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// FuzzScanRecord checks that the fast parser and encoding/json have the same result.
func FuzzScanRecord(f *testing.F) {
	for _, raw := range []string{
		`{"state":"Closed","reason":"Birth","boot":"4c0e","taint":"a/b=c:NoSchedule","source":"crd"}`,
		`{"state":"Open","since":"2026-05-01T10:00:00.123Z","fought":12,"foughtAt":"2026-05-01T10:00:00Z","digest":"*"}`,
		`{"state":"Closed","overdue":true,"silentSince":"2026-05-01T10:00:00Z","silentSeconds":3}`, `{"overdue":false}`, `{"state":"Closed","reclosed":true}`, `{"override":"Open","overrideSince":"2026-05-01T10:00:00Z"}`, `{"reclosed":false}`, `{"overdue":true,"overdue":false}`,
		`{"state":"Open","state":"Closed"}`, `{"fought":007}`, `{"fought":1.5}`, `{"since":"2026-05-01T1:00:00Z"}`,
		`{"State":"Open"}`, `{"state":null}`, `{"state":"\u0041"}`, `{"state":"é"}`, `{}`, `{"state":"Open",}`, `{"state":"Open"} `, `{`, ``,
		`{"since":"2026-05-01T10:00:00,5Z"}`, `{"since":"2026-02-30T10:00:00Z"}`, `{"since":""}`, `{"state":"Open"}{}`,
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var quick Record
		if !quick.scan(raw) {
			return
		}
		var slow Record
		if err := json.Unmarshal([]byte(raw), &slow); err != nil {
			t.Fatalf("%q is parsed although encoding/json fails: %v", raw, err)
		}
		if diff := cmp.Diff(slow, quick); diff != "" {
			t.Errorf("%q is parsed differently (-slow +fast):\n%s", raw, diff)
		}
	})
}

// Every record that nodegate writes is parsed by the fast parser. Otherwise, only the
// performance would suffer.
func TestWrittenRecordsAreScanned(t *testing.T) {
	now := time.Date(2026, 5, 1, 10, 0, 0, 123456789, time.UTC)
	birth := Record{State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonBirth, Boot: "b", Taint: "a/b=c:NoSchedule", Source: v1alpha1.SourceCRD}
	full := Record{
		State: v1alpha1.StateOpen, Since: now, Reason: v1alpha1.ReasonSignalsHold, Boot: "b", BootSeen: now, Taint: "a:NoExecute",
		Source: v1alpha1.SourceFiles, Digest: digestAll, Completed: "a1b2=1777629600 c3d4=1777629601", Fought: 3, FoughtAt: now,
		Overdue: true, Reclosed: true, SilentSince: now, SilentSeconds: 61, Override: v1alpha1.StateClosed, OverrideSince: now,
	}
	for field, value := range reflect.ValueOf(full).Fields() {
		if value.IsZero() {
			t.Errorf("the full record has no %s", field.Name)
		}
	}
	for name, r := range map[string]Record{"birth": birth, "full": full} {
		if !new(Record).scan(r.String()) {
			t.Errorf("%s: %s is not", name, r)
		}
	}
}
