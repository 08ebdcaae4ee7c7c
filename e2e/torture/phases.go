// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"time"

	"github.com/nodegate/nodegate/e2e/judge"
	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
	"github.com/nodegate/nodegate/testcluster"
)

// phases are the phases, in the order in which they run.
var phases = []phase{
	{id: "R1", title: "SIGKILL before and after every API call", weight: 4, injects: []faultproxy.Fault{faultproxy.Call}, run: kills},
	{id: "R2", title: "single events lost, duplicated, late, out of order", weight: 3, hides: dropped, inStep: true, injects: eventFaults, run: singleEvents},
	{id: "R3", title: "frozen watches, rewound lists, a lagging API server", weight: 4, hides: longestFreeze, inStep: true, rewinds: true, injects: []faultproxy.Fault{faultproxy.Freeze, faultproxy.Rewind, faultproxy.Lagging}, run: stale},
	{id: "R4", title: "hostile writers of the same taints and annotations", weight: 3, inStep: true, injects: []faultproxy.Fault{forgedDenied}, run: hostile},
	{id: "R5", title: "5 to 50 % of requests fail, API server and etcd killed", weight: 4, hides: errorsHide, inStep: true, injects: requestFaults, run: requestErrors},
	{id: "R5b", title: "etcd restored to an older revision", weight: 2, hides: outage, inStep: true, rewinds: true, injects: []faultproxy.Fault{etcdRestored}, run: restores},
	{id: "R6", title: "two leaders at once, paused and resumed", weight: 2, hides: longestPause, inStep: true, rewinds: true, injects: []faultproxy.Fault{paused}, run: twoLeaders},
	{id: "R6b", title: "the leader ends repeatedly", weight: 2, hides: failover, inStep: true, injects: []faultproxy.Fault{faultproxy.Fault(lost)}, run: failovers},
	{id: "R6c", title: "two leaders, and two replicas, with clocks at half and double rate", weight: 2, hides: clocksHide, inStep: true, rewinds: true, lacking: clockProgram, injects: []faultproxy.Fault{otherRate}, run: otherClocks},
	{id: "R6d", title: "the leader ends while watches of the standby are frozen", weight: 2, hides: longestTakeover, inStep: true, injects: []faultproxy.Fault{faultproxy.Freeze}, run: lateTakeovers},
	{id: "R7", title: "Nodes created while nodegate is down and the API server restarts", weight: 2, lacks: []judge.Rule{judge.RuleClosing}, components: []testcluster.Component{testcluster.Scheduler}, injects: []faultproxy.Fault{born}, run: births},
	{id: "R8", title: "mass regressions, flapping, unobserved reboots of the fleet", weight: 3, injects: []faultproxy.Fault{unseen}, run: storms},
	{id: "R9", title: "memory and goroutines under churn", weight: 3, run: leaks},
	{id: "R10", title: "upgrades and downgrades", weight: 1, lacking: olderProgram, injects: []faultproxy.Fault{replaced}, run: versions},
	{id: "all", title: "a little of everything at once", weight: 1, hides: errorsHide, inStep: true, brief: true, injects: eventFaults, run: everything},
}

// churning runs churn for the duration d.
func (s *site) churning(ctx context.Context, d time.Duration) error {
	return s.during(ctx, d, func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
}

// during runs churn, and something else, for a time or until the other ends.
func (s *site) during(ctx context.Context, d time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	churned := make(chan struct{})
	go func() {
		defer close(churned)
		s.fleet.churn(ctx)
	}()
	err := do(ctx)
	if ctx.Err() != nil { // the time has elapsed
		err = nil
	}
	cancel()
	<-churned
	return err
}
