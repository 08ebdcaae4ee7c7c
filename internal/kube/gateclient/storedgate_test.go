// SPDX-License-Identifier: Apache-2.0

package gateclient

import (
	"encoding/json"
	"strings"
	"testing"
)

// A gate that cannot be read is listed with those parts that can be read.
func TestStoredGate(t *testing.T) {
	const (
		metadata = `"metadata":{"name":"odd","uid":"u","generation":3}`
		taint    = `"taint":{"key":"a","effect":"NoSchedule"}`
	)
	tests := map[string]struct {
		stored string
		// readError is a substring of the ReadError, taint the key that can be read.
		readError, taint string
		soak             int32
		fails            bool
	}{
		"as this version stores it":           {stored: `{` + metadata + `,"spec":{` + taint + `,"timing":{"openAfterSeconds":5}},"status":{"observedGeneration":3}}`, taint: "a", soak: 5},
		"with a removed field":                {stored: `{` + metadata + `,"spec":{` + taint + `,"colour":"red"}}`, taint: "a"},
		"a field of another type":             {stored: `{` + metadata + `,"spec":{` + taint + `,"timing":{"openAfterSeconds":"5s"}}}`, taint: "a", readError: "spec.timing.openAfterSeconds"},
		"a number that is too large":          {stored: `{` + metadata + `,"spec":{` + taint + `,"timing":{"openAfterSeconds":4294967296}}}`, taint: "a", readError: "spec.timing.openAfterSeconds"},
		"a taint of another type":             {stored: `{` + metadata + `,"spec":{"taint":"a:NoSchedule"}}`, readError: "spec.taint"},
		"a spec of another type":              {stored: `{` + metadata + `,"spec":[]}`, readError: "spec"},
		"a status of another type":            {stored: `{` + metadata + `,"spec":{` + taint + `,"timing":{"openAfterSeconds":5}},"status":{"nodes":[]}}`, taint: "a", soak: 5},
		"a spec and a status of another type": {stored: `{` + metadata + `,"spec":{` + taint + `,"mode":5},"status":{"nodes":[]}}`, taint: "a", readError: "json: "},
		"an unknown value":                    {stored: `{` + metadata + `,"spec":{` + taint + `,"mode":"Audit"},"status":{"observedGeneration":3}}`, taint: "a", readError: `spec.mode: "Audit" is not supported; supported: Enforce, DryRun, Paused`},
		"not an object":                       {stored: `{"metadata":[]}`, fails: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var list StoredGates
			err := json.Unmarshal([]byte(`{"items":[`+tt.stored+`,{"metadata":{"name":"other"},"spec":{"taint":{"key":"b"}}}]}`), &list)
			if (err != nil) != tt.fails {
				t.Fatal(err)
			}
			if tt.fails {
				return
			}
			g := list.Items[0]
			if g.Name != "odd" || g.UID != "u" || g.Generation != 3 {
				t.Errorf("metadata: %+v", g.ObjectMeta)
			}
			if !strings.Contains(g.ReadError, tt.readError) || (g.ReadError == "") != (tt.readError == "") {
				t.Errorf("ReadError = %q, want it to contain %q", g.ReadError, tt.readError)
			}
			if g.Spec.Taint.Key != tt.taint || g.Spec.Timing.OpenAfterSeconds != tt.soak {
				t.Errorf("spec: %+v", g.Spec)
			}
			if other := list.Items[1]; other.ReadError != "" || other.Spec.Taint.Key != "b" {
				t.Errorf("other gate: %+v", other)
			}
		})
	}
}
