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
	others := []meter.Request{
		{Verb: "create", Resource: "nodes", DryRun: true, Code: 201},
		{Verb: "patch", Resource: "nodes", DryRun: true, Code: 200},
		{Verb: "patch", Resource: "nodegates", Subresource: "status", Code: 200},
		{Verb: "watch", Resource: "nodes", Code: 200},
		{Verb: "get", Resource: "customresourcedefinitions", Code: 200},
	}
	for name, c := range map[string]struct {
		sent    []meter.Request
		want    [4]float64
		reached [4]bool
	}{
		"one write per node, and other requests": {
			append(patches(200, 200), others...), [4]float64{1, 0, 0, 0}, [4]bool{true, true, true, true},
		},
		"a second write": {patches(201, 200), [4]float64{1.005, 0, 0, 0}, [4]bool{false, true, true, true}},
		"a node and a list are read": {
			append(patches(200, 200), meter.Request{Verb: "get", Resource: "nodes"}, meter.Request{Verb: "list", Resource: "nodes"}),
			[4]float64{1, 2, 0, 0}, [4]bool{true, false, true, true},
		},
		"both kinds of conflicts": {
			append(append(patches(200, 200), patches(1, 409)...), patches(1, 422)...), [4]float64{1, 0, 10, 0}, [4]bool{true, true, false, true},
		},
		"another failure": {append(patches(200, 200), patches(1, 500)...), [4]float64{1, 0, 0, 1}, [4]bool{true, true, true, false}},
	} {
		rows := requestRows(c.sent, 200)
		for i, row := range rows {
			if got := row.Nodegate.Median; got != c.want[i] || (row.Verdict == report.Reached) != c.reached[i] {
				t.Errorf("%s: %s: %v (%s), want %v", name, row.What, got, row.Verdict, c.want[i])
			}
		}
	}
}

func TestListRequests(t *testing.T) {
	sent := append(patches(2, 200), meter.Request{Verb: "create", Resource: "nodes", DryRun: true, Code: 201},
		meter.Request{Verb: "patch", Resource: "nodegates", Subresource: "status", Code: 200})
	const want = "1 × create nodes in a dry run (201), 1 × patch nodegates/status (200), 2 × patch nodes (200)"
	if got := listRequests(sent); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
