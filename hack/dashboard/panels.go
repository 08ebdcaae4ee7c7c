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
	share    = `max by (gate) (nodegate_gate_nodes{gate=~"$gate",state="closed"}) / max by (gate) (nodegate_gate_nodes{gate=~"$gate",state="selected"})`
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
		{"Closed", "Number of closed nodes, summed over gates.", stat, 4, "short", 0, nodesThatAre("closed")},
		{"Overdue", "Closed for longer than the gate's deadline.", stat, 4, "short", 1, nodesThatAre("overdue")},
		{"Throttled", "Waiting for budget, and open until then.", stat, 4, "short", 1, nodesThatAre("throttled")},
		{"Overridden", "Opened or closed by a manual override.", stat, 4, "short", 0, nodesThatAre("overridden")},
		{"Gates not Ready", "The message of the gate's condition Ready contains the next step.", stat, 4, "short", 1, []query{{notReady, "not Ready"}}},
		{"Unproven births", "Gates that may not be closed on new nodes at creation.", stat, 4, "short", 1, []query{{unproved, "not proven"}}},
		{"Nodes by gate and state", "", timeseries, 12, "short", 0, []query{{counts, "{{gate}} {{state}}"}}},
		{"Share of selected nodes that are closed", "NodegateMostNodesClosed fires above a half.", timeseries, 12, "percentunit", 0, []query{{share, "{{gate}}"}}},
		{"What closed nodes wait for", "The first signal that each node waits for; - means none.", bars, 12, "short", 0, []query{
			{`max by (gate, signal) (nodegate_gate_waiting_nodes{gate=~"$gate"}) > 0`, "{{gate}} {{signal}}"}}},
		{"Longest wait", "Close time of the node that has been closed the longest.", timeseries, 12, "s", 0, []query{{oldest, "{{gate}}"}}},
		{"Groups of nodes that open together", "Complete and incomplete groups, for gates with openTogether.", timeseries, 12, "short", 0, []query{
			{`max by (gate, state) (nodegate_gate_groups{gate=~"$gate"})`, "{{gate}} {{state}}"}}},
		{"Selected nodes that are not members", "By reason. The gate does not change these nodes.", timeseries, 12, "short", 0, []query{
			{`max by (gate, reason) (nodegate_gate_non_member_nodes{gate=~"$gate"})`, "{{gate}} {{reason}}"}}},
	}},
	{"Time to open", []panel{
		{"50 % of nodes open within", "", timeseries, 8, "s", 0, []query{{quantile("0.5", "nodegate_time_to_open_seconds", "gate"), "{{gate}}"}}},
		{"90 % of nodes open within", "", timeseries, 8, "s", 0, []query{{quantile("0.9", "nodegate_time_to_open_seconds", "gate"), "{{gate}}"}}},
		{"99 % of nodes open within", "", timeseries, 8, "s", 0, []query{{quantile("0.99", "nodegate_time_to_open_seconds", "gate"), "{{gate}}"}}},
		{"Openings, by reason", "", timeseries, 12, "short", 0, []query{{increase("nodegate_opens_total", ofGate, "gate, reason"), "{{gate}} {{reason}}"}}},
		{"Closings by the controller, by reason", "", timeseries, 12, "short", 0, []query{{increase("nodegate_closes_total", ofGate, "gate, reason"), "{{gate}} {{reason}}"}}},
	}},
	{"Where the time goes", []panel{
		{"Until a signal holds, on average", "Time from closing until the signal began to hold, of nodes that opened. The gate waits for the signal with the longest time.", timeseries, 12, "s", 0, []query{
			{mean("nodegate_signal_wait_seconds", "gate, signal"), "{{gate}} {{signal}}"}}},
		{"Until a signal holds, on 90 % of nodes", "", timeseries, 12, "s", 0, []query{
			{quantile("0.9", "nodegate_signal_wait_seconds", "gate, signal"), "{{gate}} {{signal}}"}}},
	}},
	{"Budget and storms", []panel{
		{"Budget used", "Share of the allowed number of nodes that is closed, by zone.", timeseries, 12, "percentunit", 0, []query{
			{`max by (gate, zone) (nodegate_gate_budget_used_nodes{gate=~"$gate"}) / max by (gate, zone) (nodegate_gate_budget_allowed_nodes{gate=~"$gate"} > 0)`, "{{gate}} {{zone}}"}}},
		{"Waiting for budget", "", timeseries, 12, "short", 0, []query{
			{`max by (gate) (nodegate_gate_nodes{gate=~"$gate",state="throttled"})`, "{{gate}}"}}},
		{"Closed under the budget", "", timeseries, 12, "short", 0, []query{
			{`max by (gate, zone) (nodegate_gate_budget_used_nodes{gate=~"$gate"})`, "{{gate}} {{zone}}"}}},
		{"Conditions that need attention", "", timeseries, 12, "short", 0, []query{
			{`max by (gate, condition) (nodegate_gate_condition{gate=~"$gate",condition=~"Overdue|Throttled|Contended"}) > 0`, "{{gate}} {{condition}}"},
			{`max by (gate, reason) (nodegate_gate_not_ready{gate=~"$gate"})`, "{{gate}} not Ready: {{reason}}"}}},
	}},
	{"Controller", []panel{
		{"Leaders", "1 if leader election is enabled.", stat, 4, "short", 2, []query{{`sum(leader_election_master_status{name="nodegate"})`, "leaders"}}},
		{"Gates are complete", "0 while a replica cannot read all gates, or a leader that took over waits for gates from files.", stat, 4, "short", 0, []query{{`min(nodegate_gates_complete)`, "complete"}}},
		{"Unknown gates", "Gates with records on nodes, but without a NodeGate.", stat, 4, "short", 1, []query{{`max(nodegate_unknown_gates)`, "unknown"}}},
		{"Modes", "", table, 6, "short", 0, []query{{`max by (gate, mode) (nodegate_gate_mode{gate=~"$gate"})`, ""}}},
		{"Builds", "", table, 6, "short", 0, []query{{`count by (version, revision, go_version) (nodegate_build_info)`, ""}}},
		{"Patches of nodes, by outcome", "", timeseries, 8, "short", 0, []query{{increase("nodegate_patches_total", "", "outcome"), "{{outcome}}"}}},
		{"Requests to the API server, by code", "", timeseries, 8, "short", 0, []query{
			{`sum by (code) (increase(rest_client_requests_total{job=~".*nodegate.*"}[$window]))`, "{{code}}"}}},
		{"Kubernetes Events, by outcome", "", timeseries, 8, "short", 0, []query{{increase("nodegate_events_total", "", "outcome"), "{{outcome}}"}}},
		{"Watches that are up", "1 while the watch of the resource is synced in every replica.", timeseries, 8, "short", 0, []query{{`min by (resource) (nodegate_watch_up)`, "{{resource}}"}}},
		{"Silent watches", "Watches without any event, not even a bookmark. The objects were listed again.", timeseries, 8, "short", 0, []query{{increase("nodegate_watch_silences_total", "", "resource"), "{{resource}}"}}},
		{"Losses of the Lease", "A leader that is stopped does not lose the Lease.", timeseries, 8, "short", 0, []query{{`sum(increase(nodegate_lease_losses_total[$window]))`, "losses"}}},
	}},
	{"Births and bypasses", []panel{
		{"Proven births", "1 while dry runs prove that the API server closes the gate on new nodes.", timeseries, 8, "short", 0, []query{{`min by (gate) (nodegate_birth_closing_proved{gate=~"$gate"})`, "{{gate}}"}}},
		{"Time since the last proof", "The proof is repeated every minute.", timeseries, 8, "s", 0, []query{
			{`time() - max by (gate) (nodegate_birth_closing_proved_timestamp_seconds{gate=~"$gate"})`, "{{gate}}"}}},
		{"Nodes created open", "The controller closed the gate after their creation.", timeseries, 8, "short", 0, []query{
			{increase("nodegate_closes_total", ofGate+`,reason="Birth"`, "gate"), "{{gate}}"}}},
		{"Bypassed pods", "Pods that started while the gate was closed.", timeseries, 8, "short", 0, []query{{increase("nodegate_bypassed_pods_total", ofGate, "gate, certainty"), "{{gate}} {{certainty}}"}}},
		{"Rejected pods", "Pods that a kubelet rejected while the gate was closed. none: no controller replaces them.", timeseries, 8, "short", 0, []query{{increase("nodegate_rejected_pods_total", ofGate, "gate, certainty, owner"), "{{gate}} {{certainty}} {{owner}}"}}},
		{"Evictions of bypassed pods, by outcome", "", timeseries, 8, "short", 0, []query{{increase("nodegate_evictions_total", ofGate, "gate, outcome"), "{{gate}} {{outcome}}"}}},
		{"Webhook certificate expires in", "Empty without a webhook.", timeseries, 8, "s", 0, []query{
			{`min(nodegate_webhook_certificate_expiry_timestamp_seconds) - time()`, "certificate"}}},
	}},
}
