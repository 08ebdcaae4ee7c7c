// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"strings"
	"testing"
)

// One gate that cannot be read is there, with as much of it as can be.
func TestStoredGate(t *testing.T) {
	const (
		metadata = `"metadata":{"name":"odd","uid":"u","generation":3}`
		taint    = `"taint":{"key":"a","effect":"NoSchedule"}`
	)
	tests := map[string]struct {
		stored string
		// readError is a part of what it says, taint the key that is known.
		readError, taint string
		soak             int32
		fails            bool
	}{
		"as this version has it":       {stored: `{` + metadata + `,"spec":{` + taint + `,"timing":{"openAfterSeconds":5}},"status":{"observedGeneration":3}}`, taint: "a", soak: 5},
		"with a field that is no more": {stored: `{` + metadata + `,"spec":{` + taint + `,"colour":"red"}}`, taint: "a"},
		"a field of another type":      {stored: `{` + metadata + `,"spec":{` + taint + `,"timing":{"openAfterSeconds":"5s"}}}`, taint: "a", readError: "spec.timing.openAfterSeconds"},
		"a number that is too large":   {stored: `{` + metadata + `,"spec":{` + taint + `,"timing":{"openAfterSeconds":4294967296}}}`, taint: "a", readError: "spec.timing.openAfterSeconds"},
		"a taint of another type":      {stored: `{` + metadata + `,"spec":{"taint":"a:NoSchedule"}}`, readError: "spec.taint"},
		"a spec of another type":       {stored: `{` + metadata + `,"spec":[]}`, readError: "spec"},
		"a status of another type":     {stored: `{` + metadata + `,"spec":{` + taint + `,"timing":{"openAfterSeconds":5}},"status":{"nodes":[]}}`, taint: "a", soak: 5},
		"both":                         {stored: `{` + metadata + `,"spec":{` + taint + `,"mode":5},"status":{"nodes":[]}}`, taint: "a", readError: "json: "},
		"no object":                    {stored: `{"metadata":[]}`, fails: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var list storedGates
			err := json.Unmarshal([]byte(`{"items":[`+tt.stored+`,{"metadata":{"name":"other"},"spec":{"taint":{"key":"b"}}}]}`), &list)
			if (err != nil) != tt.fails {
				t.Fatal(err)
			}
			if tt.fails {
				return
			}
			g := list.Items[0]
			if g.Name != "odd" || g.UID != "u" || g.Generation != 3 {
				t.Errorf("its metadata is %+v", g.ObjectMeta)
			}
			if !strings.Contains(g.ReadError, tt.readError) || (g.ReadError == "") != (tt.readError == "") {
				t.Errorf("it says %q, want %q in it", g.ReadError, tt.readError)
			}
			if g.Spec.Taint.Key != tt.taint || g.Spec.Timing.OpenAfterSeconds != tt.soak {
				t.Errorf("its spec is %+v", g.Spec)
			}
			if other := list.Items[1]; other.ReadError != "" || other.Spec.Taint.Key != "b" {
				t.Errorf("the other is %+v", other)
			}
		})
	}
}

// That a gate cannot be read any more is news, although it is the same gate.
func TestGateThatCannotBeReadIsNews(t *testing.T) {
	runFeed(t, twoGates, func(t *testing.T, f *testFeed) {
		f.told.take()
		g := testGate("g")
		for _, readError := range []string{"json: one", "json: another", ""} {
			g.ReadError = readError
			f.api.gates().put(g)
			if _, n := f.told.take(); n != 1 {
				t.Errorf("told %d times of %q", n, readError)
			}
			f.wantGates(t, "with "+readError, true, "g", "h")
			if gates, _ := f.Gates(); gates[0].ReadError != readError || gates[1].ReadError != "" {
				t.Errorf("the gates are %+v", gates)
			}
		}
	})
}
