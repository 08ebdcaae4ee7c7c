// SPDX-License-Identifier: Apache-2.0

package main

// Types of panels, all of Grafana's own.
const (
	stat       = "stat"
	timeseries = "timeseries"
	bars       = "bargauge"
	table      = "table"
)

var options = map[string]object{
	stat:       {"colorMode": "background", "graphMode": "area", "reduceOptions": object{"calcs": []string{"lastNotNull"}}},
	timeseries: {"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}},
	bars:       {"orientation": "horizontal", "displayMode": "basic", "reduceOptions": object{"calcs": []string{"lastNotNull"}}},
	table:      {"showHeader": true},
}

// Replicas change: the value of a gate's gauge is the maximum over all replicas.
const (
	counts   = `max by (gate, state) (nodegate_gate_nodes{gate=~"$gate",state=~"closed|overdue|throttled|overridden"})`
	share    = `max by (gate) (nodegate_gate_nodes{gate=~"$gate",state="open"}) / max by (gate) (nodegate_gate_nodes{gate=~"$gate",state="selected"})`
	notReady = `count(min by (gate) (nodegate_gate_condition{gate=~"$gate",condition="Ready"}) == 0) or vector(0)`
	unproved = `count(min by (gate) (nodegate_birth_closing_proved{gate=~"$gate"}) == 0) or vector(0)`
	oldest   = `time() - min by (gate) (nodegate_gate_oldest_closed_timestamp_seconds{gate=~"$gate"})`
)

func nodesThatAre(state string) []query {
	return []query{{`sum(max by (gate) (nodegate_gate_nodes{gate=~"$gate",state="` + state + `"}))`, state}}
}

// quantile returns the query of a histogram's quantile over the selected window.
func quantile(q, metric, by string) string {
	return `histogram_quantile(` + q + `, sum by (le, ` + by + `) (rate(` + metric + `_bucket{gate=~"$gate"}[$window])))`
}

// mean returns the query of a histogram's mean over the selected window.
func mean(metric, by string) string {
	of := func(what string) string {
		return `sum by (` + by + `) (rate(` + metric + what + `{gate=~"$gate"}[$window]))`
	}
	return of("_sum") + " / " + of("_count")
}

func increase(metric, matchers, by string) string {
	return `sum by (` + by + `) (increase(` + metric + `{` + matchers + `}[$window]))`
}

const ofGate = `gate=~"$gate"`

var rows = []row{
	{"Is the fleet healthy?", []panel{
		{"Closed", "Nodes that are held now, added up over gates.", stat, 4, "short", 0, nodesThatAre("closed")},
		{"Overdue", "Closed, and past the gate's deadline.", stat, 4, "short", 1, nodesThatAre("overdue")},
		{"Throttled", "Unfit, and left open for want of budget.", stat, 4, "short", 1, nodesThatAre("throttled")},
		{"Overridden", "Open or closed by hand for a time.", stat, 4, "short", 0, nodesThatAre("overridden")},
		{"Gates not Ready", "The gate's condition Ready says what to do.", stat, 4, "short", 1, []query{{notReady, "not Ready"}}},
		{"Births not proved", "Gates that new nodes may come in without.", stat, 4, "short", 1, []query{{unproved, "not proved"}}},
		{"Nodes by gate and state", "", timeseries, 12, "short", 0, []query{{counts, "{{gate}} {{state}}"}}},
		{"Open, of all nodes of a gate", "", timeseries, 12, "percentunit", 0, []query{{share, "{{gate}}"}}},
		{"What closed nodes wait for", "The first signal that each waits for; - is none of them.", bars, 12, "short", 0, []query{
			{`max by (gate, signal) (nodegate_gate_waiting_nodes{gate=~"$gate"}) > 0`, "{{gate}} {{signal}}"}}},
		{"Longest wait", "For how long the node has been closed that has been for longest.", timeseries, 12, "s", 0, []query{{oldest, "{{gate}}"}}},
		{"Selected nodes that are not members", "By the reason: the gate leaves them as they are.", timeseries, 24, "short", 0, []query{
			{`max by (gate, reason) (nodegate_gate_non_member_nodes{gate=~"$gate"})`, "{{gate}} {{reason}}"}}},
	}},
	{"Time to open", []panel{
		{"Half of the nodes open within", "", timeseries, 8, "s", 0, []query{{quantile("0.5", "nodegate_time_to_open_seconds", "gate"), "{{gate}}"}}},
		{"90 % open within", "", timeseries, 8, "s", 0, []query{{quantile("0.9", "nodegate_time_to_open_seconds", "gate"), "{{gate}}"}}},
		{"99 % open within", "", timeseries, 8, "s", 0, []query{{quantile("0.99", "nodegate_time_to_open_seconds", "gate"), "{{gate}}"}}},
		{"Openings, by reason", "", timeseries, 12, "short", 0, []query{{increase("nodegate_opens_total", ofGate, "gate, reason"), "{{gate}} {{reason}}"}}},
		{"Closings by the controller, by reason", "", timeseries, 12, "short", 0, []query{{increase("nodegate_closes_total", ofGate, "gate, reason"), "{{gate}} {{reason}}"}}},
	}},
	{"Where the time goes", []panel{
		{"Until a signal holds, on average", "From the closing to when the signal began to hold, of nodes that opened. The greatest is what the gate waits for.", timeseries, 12, "s", 0, []query{
			{mean("nodegate_signal_wait_seconds", "gate, signal"), "{{gate}} {{signal}}"}}},
		{"Until a signal holds, on 90 % of nodes", "", timeseries, 12, "s", 0, []query{
			{quantile("0.9", "nodegate_signal_wait_seconds", "gate, signal"), "{{gate}} {{signal}}"}}},
	}},
	{"Budget and storms", []panel{
		{"Budget used", "Nodes closed under the budget, of those that may be at a time, by zone.", timeseries, 12, "percentunit", 0, []query{
			{`max by (gate, zone) (nodegate_gate_budget_used_nodes{gate=~"$gate"}) / max by (gate, zone) (nodegate_gate_budget_allowed_nodes{gate=~"$gate"} > 0)`, "{{gate}} {{zone}}"}}},
		{"Waiting for budget", "", timeseries, 12, "short", 0, []query{
			{`max by (gate) (nodegate_gate_nodes{gate=~"$gate",state="throttled"})`, "{{gate}}"}}},
		{"Closed under the budget", "", timeseries, 12, "short", 0, []query{
			{`max by (gate, zone) (nodegate_gate_budget_used_nodes{gate=~"$gate"})`, "{{gate}} {{zone}}"}}},
		{"Conditions that want attention", "", timeseries, 12, "short", 0, []query{
			{`max by (gate, condition) (nodegate_gate_condition{gate=~"$gate",condition=~"Overdue|Throttled|Contended"}) > 0`, "{{gate}} {{condition}}"}}},
	}},
	{"Controller", []panel{
		{"Leaders", "One, where replicas elect a leader.", stat, 4, "short", 2, []query{{`sum(leader_election_master_status{name="nodegate"})`, "leaders"}}},
		{"Certain of all gates", "0 while a replica cannot read gates.", stat, 4, "short", 0, []query{{`min(nodegate_gates_complete)`, "certain"}}},
		{"Unknown gates", "Gates that nodes have records of, and that are not known.", stat, 4, "short", 1, []query{{`max(nodegate_unknown_gates)`, "unknown"}}},
		{"Modes", "", table, 6, "short", 0, []query{{`max by (gate, mode) (nodegate_gate_mode{gate=~"$gate"})`, ""}}},
		{"Builds", "", table, 6, "short", 0, []query{{`count by (version, revision, go_version) (nodegate_build_info)`, ""}}},
		{"Patches of nodes, by outcome", "", timeseries, 8, "short", 0, []query{{increase("nodegate_patches_total", "", "outcome"), "{{outcome}}"}}},
		{"Requests to the API server, by code", "", timeseries, 8, "short", 0, []query{
			{`sum by (code) (increase(rest_client_requests_total{job=~".*nodegate.*"}[$window]))`, "{{code}}"}}},
		{"Kubernetes Events, by outcome", "", timeseries, 8, "short", 0, []query{{increase("nodegate_events_total", "", "outcome"), "{{outcome}}"}}},
		{"Watches that are up", "1 while every replica knows what there is of the resource.", timeseries, 12, "short", 0, []query{{`min by (resource) (nodegate_watch_up)`, "{{resource}}"}}},
		{"Watches that fell silent", "Nothing was heard, not even a bookmark, and everything was read anew.", timeseries, 12, "short", 0, []query{{increase("nodegate_watch_silences_total", "", "resource"), "{{resource}}"}}},
	}},
	{"Births and bypasses", []panel{
		{"Births proved", "1 while the API server is seen to close new nodes.", timeseries, 8, "short", 0, []query{{`min by (gate) (nodegate_birth_closing_proved{gate=~"$gate"})`, "{{gate}}"}}},
		{"Since the last proof", "Looked at every minute.", timeseries, 8, "s", 0, []query{
			{`time() - max by (gate) (nodegate_birth_closing_proved_timestamp_seconds{gate=~"$gate"})`, "{{gate}}"}}},
		{"New nodes that came in open", "And were closed by the controller.", timeseries, 8, "short", 0, []query{
			{increase("nodegate_closes_total", ofGate+`,reason="Birth"`, "gate"), "{{gate}}"}}},
		{"Bypassed pods", "Pods that had started before the node was fit for them.", timeseries, 8, "short", 0, []query{{increase("nodegate_bypassed_pods_total", ofGate, "gate"), "{{gate}}"}}},
		{"Evictions of these, by outcome", "", timeseries, 8, "short", 0, []query{{increase("nodegate_evictions_total", ofGate, "gate, outcome"), "{{gate}} {{outcome}}"}}},
		{"The webhook's certificate expires in", "Where there is a webhook.", timeseries, 8, "s", 0, []query{
			{`min(nodegate_webhook_certificate_expiry_timestamp_seconds) - time()`, "certificate"}}},
	}},
}
