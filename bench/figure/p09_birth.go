// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"

	"github.com/nodegate/nodegate/bench/report"
)

var birth = Figure{
	ID: "P9", Title: "Costs of closing a Node while the API server creates it",
	Measure:  measureBirth,
	Profiled: func(*Env) Profiled { return Profiled{Name: "birth", Server: true, Take: profileCreations} },
}

const (
	// The goals: the ratio to a policy that changes nothing, the growth with ten times as
	// many gates, the delay of a Node that many gates select, in ms, and the growth of the
	// heap that counts as none, in MiB.
	birthGoal  = 1.1
	growthGoal = 10
	manyGoal   = 50
	heapGoal   = 1
)

func measureBirth(ctx context.Context, e *Env) (report.Result, error) {
	e.Say("  creating nodes")
	rounds, err := measureCreations(ctx, e)
	if err != nil {
		return report.Result{}, err
	}
	e.Say("  %d ConfigMaps", e.ConfigMaps)
	without, err := measureHeaps(ctx, 0)
	if err != nil {
		return report.Result{}, err
	}
	h, err := measureHeaps(ctx, e.ConfigMaps)
	return report.Result{
		Rows: append(rounds.rows(),
			report.Alone("API server's heap, more with the birth policy, no ConfigMaps", "MiB", nil, without.birth-without.others),
			report.Alone(fmt.Sprintf("the same, %d ConfigMaps", e.ConfigMaps), "MiB", nil, h.birth-h.others),
			report.Alone("of that, because of the ConfigMaps", "MiB", report.AtMost(heapGoal), (h.birth-h.others)-(without.birth-without.others)),
			report.Alone("more with a policy whose parameter is a ConfigMap", "MiB", nil, h.configMap-h.birth)),
		Notes: []string{
			"In this figure, the limit is a MutatingAdmissionPolicy that matches the same requests and changes nothing. \"Added\" is the difference to a Node that no policy matches.",
			fmt.Sprintf("A kubelet's identity creates Nodes one after the other, in a dry run: without the write to etcd, ratios are higher than those of registrations. %d Nodes per turn (fewer of slow ones), on a control plane without an audit log. All policies are installed at the same time. Each matches Nodes with another label, so that turns follow each other without a pause.", e.Creations),
			"\"2 of 20 gates\": 2 of them select the Node. All gates are in one parameter: the API server encodes the Node as JSON and decodes it once, regardless of their number.",
			"A policy that adds a constant annotation and has no parameter is the cheapest policy that has an effect.",
			fmt.Sprintf("Live heap of an API server with %d ConfigMaps of %d KiB, after forced garbage collections. Nothing changed between the first two measurements: %+.2f MiB. Two policies without parameters, one of which changes nothing, added %+.2f MiB: the cost of the first policies of this kind.", e.ConfigMaps, configMapBytes>>10, h.again-h.before, h.others-h.before),
		},
	}, err
}

// creations are the observations of each round, by contender.
type creations []map[string]report.Sample

// of returns a contender's observations.
func (c creations) of(name string) []report.Round {
	all := make([]report.Round, len(c))
	for i, round := range c {
		all[i] = report.Round{Nodegate: round[name]}
	}
	return all
}

// against returns a contender's observations, with the policy that changes nothing as the
// limit.
func (c creations) against(name string) []report.Round {
	all := c.of(name)
	for i, round := range c {
		all[i].Limit = round[byIdle]
	}
	return all
}

func (c creations) rows() []report.Row {
	one, webhook, goal := c.against(oneOfOne), c.against(byWebhook), report.TimesLimit(birthGoal)
	rows := []report.Row{
		report.Compare("API server CPU a CREATE, 1 gate", "ms", one, creationCPU, report.Mean, goal),
		report.Compare("of that added, 1 gate", "ms", one, addedCPU, report.Mean, goal),
		report.Compare("p50 of a CREATE, 1 gate", "ms", one, created, report.Percentile(50), nil),
		report.Compare("p99 of a CREATE, 1 gate", "ms", one, created, report.Percentile(99), nil),
		report.Compare("added by a policy that adds a constant", "ms", c.against(byConstant), addedCPU, report.Mean, nil),
		report.Compare("added by the webhook, 1 gate", "ms", webhook, addedCPU, report.Mean, nil),
		report.Compare("the webhook's own CPU a CREATE", "ms", c.of(byWebhook), webhookCPU, report.Mean, nil),
		report.Compare("p99 of a CREATE, webhook", "ms", webhook, created, report.Percentile(99), nil),
	}
	for _, contender := range contenders {
		if contender.gates > 1 {
			what := fmt.Sprintf("added, %d of %d gates", contender.selecting, contender.gates)
			rows = append(rows, report.Compare(what, "ms", c.against(contender.name), addedCPU, report.Mean, nil))
		}
	}
	growth := func(what, few, many string, goal *report.Goal) report.Row {
		return report.Growth("added at 200 gates ÷ at 20, of which "+what, report.Series{Rounds: c.of(few), Quantity: addedCPU},
			report.Series{Rounds: c.of(many), Quantity: addedCPU}, report.Mean, goal)
	}
	return append(rows,
		growth("2 select", "2-of-20", "2-of-200", report.AtMost(growthGoal)),
		growth("all select", "20-of-20", "200-of-200", nil),
		report.Compare("added to the p50 of a CREATE, 200 of 200 gates", "ms", c.of("200-of-200"), addedLatency, report.Mean, report.AtMost(manyGoal)))
}

// add adds what closing adds to the costs of a Node that no policy matches.
func (c creations) add() {
	median := report.Percentile(50)
	for _, round := range c {
		without := round[byNobody]
		for _, sample := range round {
			sample.Add(addedCPU, report.Mean(sample[creationCPU])-report.Mean(without[creationCPU]))
			sample.Add(addedLatency, median(sample[created])-median(without[created]))
		}
	}
}

func measureCreations(ctx context.Context, e *Env) (_ creations, err error) {
	b, err := newBirths(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.install(ctx, e.Installation.Program); err != nil {
		return nil, err
	}
	all, err := b.rounds(ctx, e.Rounds, e.Creations)
	if err != nil {
		return nil, err
	}
	all.add()
	return all, nil
}
