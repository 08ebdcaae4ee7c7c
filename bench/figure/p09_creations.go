// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/testcluster"
)

// creations are the observations of each pass over all contenders.
type creations []pass

// A pass contains the observations by contender.
type pass struct {
	samples   map[string]report.Sample
	disturbed bool
}

// of returns a contender's observations.
func (c creations) of(name string) []report.Pair {
	all := make([]report.Pair, len(c))
	for i, p := range c {
		all[i] = report.Pair{Nodegate: p.samples[name], Disturbed: p.disturbed}
	}
	return all
}

// against returns a contender's observations, with the policy that changes nothing as the
// limit.
func (c creations) against(name string) []report.Pair {
	all := c.of(name)
	for i, p := range c {
		all[i].Limit = p.samples[byIdle]
	}
	return all
}

func (c creations) rows() []report.Row {
	one, constant, webhook := c.against(oneOfOne), c.against(byConstant), c.against(byWebhook)
	goal := report.TimesLimit(birthGoal)
	rows := []report.Row{
		report.Compare("API server CPU a CREATE, 1 gate", "ms", one, creationCPU, report.Mean, goal),
		report.Compare("API server CPU a CREATE, a policy that adds a constant", "ms", constant, creationCPU, report.Mean, nil),
		report.Compare("API server instructions a CREATE, 1 gate", "million", report.Counts(one), creationInstructions, report.Mean, nil),
		report.Compare("allocated by the API server a CREATE, 1 gate", "KiB", report.Counts(one), creationAllocated, report.Mean, goal),
		report.Compare("of the CPU added, 1 gate", "ms", one, addedCPU, report.Mean, goal),
		report.Compare("p50 of a CREATE, 1 gate", "ms", one, created, report.Percentile(50), nil),
		report.Compare("p99 of a CREATE, 1 gate", "ms", one, created, report.Percentile(99), nil),
		report.Compare("CPU added by a policy that adds a constant", "ms", constant, addedCPU, report.Mean, nil),
		report.Compare("CPU added by the webhook, 1 gate", "ms", webhook, addedCPU, report.Mean, nil),
		report.Compare("the webhook's own CPU a CREATE", "ms", c.of(byWebhook), webhookCPU, report.Mean, nil),
		report.Compare("p99 of a CREATE, webhook", "ms", webhook, created, report.Percentile(99), nil),
	}
	for _, contender := range contenders {
		if contender.gates > 1 {
			what := fmt.Sprintf("CPU added, %d of %d gates", contender.selecting, contender.gates)
			rows = append(rows, report.Compare(what, "ms", c.against(contender.name), addedCPU, report.Mean, nil))
		}
	}
	growth := func(what, few, many string, goal *report.Goal) report.Row {
		return report.Growth("CPU added at 200 gates ÷ at 20, of which "+what, report.Series{Pairs: c.of(few), Quantity: addedCPU},
			report.Series{Pairs: c.of(many), Quantity: addedCPU}, report.Mean, goal)
	}
	return append(rows,
		growth("2 select", "2-of-20", "2-of-200", report.AtMost(growthGoal)),
		growth("all select", "20-of-20", "200-of-200", nil),
		report.Compare("added to the p50 of a CREATE, 20 of 20 gates", "ms", c.of("20-of-20"), addedLatency, report.Mean, report.AtMost(someGoal)),
		report.Compare("added to the p50 of a CREATE, 200 of 200 gates", "ms", c.of("200-of-200"), addedLatency, report.Mean, report.AtMost(manyGoal)))
}

// add adds what closing adds to the costs of a Node that no policy matches.
func (c creations) add() {
	median := report.Percentile(50)
	for _, p := range c {
		without := p.samples[byNothing]
		for _, sample := range p.samples {
			sample.Add(addedCPU, report.Mean(sample[creationCPU])-report.Mean(without[creationCPU]))
			sample.Add(addedLatency, median(sample[created])-median(without[created]))
		}
	}
}

// Quantities of a contender in a pass.
const (
	creationCPU          = "API server CPU"          // ms per Node, one observation per turn
	creationInstructions = "API server instructions" // millions per Node
	creationAllocated    = "API server allocated"    // KiB per Node
	webhookCPU           = "webhook CPU"             // ms per Node
	created              = "latency"                 // ms of each CREATE
	addedCPU             = "added CPU"               // ms per Node
	addedLatency         = "added latency"           // ms, of the median
)

// passes measures all contenders, forwards and then backwards in each round.
func (b *births) passes(ctx context.Context, e *Env) (all creations, err error) {
	if err := b.weighMetrics(ctx); err != nil {
		return nil, err
	}
	order := slices.Clone(contenders)
	outcomes, err := repeat(&e.referee, e.Rounds, func(int) (both []map[string]report.Sample, err error) {
		for range 2 {
			samples := map[string]report.Sample{}
			err := e.referee.turn(func() (err error) { // turns of contenders are too short
				for i := range order {
					if samples[order[i].name], err = b.turn(ctx, &order[i], e.Creations); err != nil {
						return fmt.Errorf("measuring nodes of %s: %w", order[i].name, err)
					}
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
			both = append(both, samples)
			slices.Reverse(order)
		}
		return both, nil
	})
	for _, o := range outcomes {
		for _, samples := range o.result {
			all = append(all, pass{samples, o.disturbed})
		}
	}
	return all, err
}

// turn creates Nodes one after the other.
func (b *births) turn(ctx context.Context, c *contender, nodes int) (sample report.Sample, err error) {
	nodes = max(1, int(float64(nodes)*c.share))
	node := c.node()
	if _, err := b.create(ctx, node); err != nil { // replaces what the previous turn left in caches
		return nil, err
	}
	before, err := b.allocated(ctx)
	if err != nil {
		return nil, err
	}
	running := countInstructions(map[string][]int{creationInstructions: {b.Cluster.PID(testcluster.APIServer)}})
	defer func() { err = errors.Join(err, running.close()) }()
	used, err := b.cpu()
	if err != nil {
		return nil, err
	}
	sample = report.Sample{}
	for range nodes {
		start := time.Now()
		if _, err := b.create(ctx, node); err != nil {
			return nil, err
		}
		sample.Add(created, milliseconds(time.Since(start)))
	}
	total, err := b.cpu()
	if err != nil {
		return nil, err
	}
	total = total.since(used)
	if err := running.read(total); err != nil {
		return nil, err
	}
	after, err := b.allocated(ctx)
	total[creationAllocated] = after - before - b.metricsSize
	for quantity, value := range total {
		sample.Add(quantity, value/float64(nodes))
	}
	return sample, err
}

// cpu returns the CPU times of the API server and of the webhook.
func (b *births) cpu() (counters, error) {
	server, err := meter.CPU(b.Cluster.PID(testcluster.APIServer))
	if err != nil {
		return nil, err
	}
	webhook, err := meter.CPU(b.webhook.PID())
	return counters{creationCPU: milliseconds(server), webhookCPU: milliseconds(webhook)}, err
}

// allocated returns what the API server has allocated, in KiB.
func (b *births) allocated(ctx context.Context) (float64, error) {
	metrics, err := meter.OfAPIServer(ctx, b.Cluster)
	_, bytes := metrics.Allocated()
	return bytes / kibibyte, err
}

// weighMetrics measures what the API server allocates to serve its metrics, which is
// subtracted from what a turn allocates.
func (b *births) weighMetrics(ctx context.Context) error {
	b.metricsSize = math.Inf(1)
	last, err := b.allocated(ctx)
	for range 3 {
		if err != nil {
			return err
		}
		before := last
		last, err = b.allocated(ctx)
		b.metricsSize = min(b.metricsSize, last-before)
	}
	return err
}
