// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"testing"

	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/report"
)

func patches(n, code int) []meter.Request {
	var all []meter.Request
	for range n {
		all = append(all, meter.Request{Verb: "patch", Resource: "nodes", Code: code})
	}
	return all
}

func TestRequestRows(t *testing.T) {
	const writes, reads, conflicts, failures = 0, 1, 2, 3
	others := []meter.Request{
		{Verb: "create", Resource: "nodes", DryRun: true, Code: 201},
		{Verb: "patch", Resource: "nodes", DryRun: true, Code: 200},
		{Verb: "patch", Resource: "nodegates", Subresource: "status", Code: 200},
		{Verb: "watch", Resource: "nodes", Code: 200},
		{Verb: "get", Resource: "customresourcedefinitions", Code: 200},
	}
	for name, c := range map[string]struct {
		asked   []meter.Request
		want    [4]float64
		reached [4]bool
	}{
		"one write a node, and nothing that concerns nodes": {
			append(patches(200, 200), others...), [4]float64{1, 0, 0, 0}, [4]bool{true, true, true, true},
		},
		"a node is written twice": {patches(201, 200), [4]float64{1.005, 0, 0, 0}, [4]bool{false, true, true, true}},
		"a node is read, and a list": {
			append(patches(200, 200), meter.Request{Verb: "get", Resource: "nodes"}, meter.Request{Verb: "list", Resource: "nodes"}),
			[4]float64{1, 2, 0, 0}, [4]bool{true, false, true, true},
		},
		"conflicts of both kinds": {
			append(append(patches(200, 200), patches(1, 409)...), patches(1, 422)...), [4]float64{1, 0, 10, 0}, [4]bool{true, true, false, true},
		},
		"another failure": {append(patches(200, 200), patches(1, 500)...), [4]float64{1, 0, 0, 1}, [4]bool{true, true, true, false}},
	} {
		rows := requestRows(c.asked, 200)
		for i, of := range []string{writes: "writes", reads: "reads", conflicts: "conflicts", failures: "failures"} {
			if got := rows[i].Nodegate.Median; got != c.want[i] || (rows[i].Verdict == report.Reached) != c.reached[i] {
				t.Errorf("%s: %s are %v (%s), want %v", name, of, got, rows[i].Verdict, c.want[i])
			}
		}
	}
}

func TestTellRequests(t *testing.T) {
	asked := append(patches(2, 200), meter.Request{Verb: "create", Resource: "nodes", DryRun: true, Code: 201},
		meter.Request{Verb: "patch", Resource: "nodegates", Subresource: "status", Code: 200})
	const want = "1 × create nodes in a dry run (201), 1 × patch nodegates/status (200), 2 × patch nodes (200)"
	if got := tellRequests(asked); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
