// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"

	"github.com/nodegate/nodegate/bench/report"
)

var birth = Figure{
	ID: "P9", Title: "What closing a Node at its birth adds to its CREATE",
	Measure: measureBirth,
	Profiled: func(*Env) Profiled {
		return Profiled{Name: "birth", Server: true, Otherwise: profileBirths}
	},
}

const (
	// The goals: the ratio to a policy that does nothing, the growth with ten times
	// as many gates, and the maximum delay of a Node, in milliseconds, by a large
	// number of gates that all select it.
	birthGoal  = 1.1
	growthGoal = 10
	manyGoal   = 50
)

func measureBirth(ctx context.Context, e *Env) (report.Result, error) {
	e.Say("  creating nodes")
	rounds, err := e.measureCreations(ctx)
	if err != nil {
		return report.Result{}, err
	}
	e.Say("  %d ConfigMaps", e.ConfigMaps)
	without, err := measureHeaps(ctx, 0)
	if err != nil {
		return report.Result{}, err
	}
	h, err := measureHeaps(ctx, e.ConfigMaps)
	if err != nil {
		return report.Result{}, err
	}
	return report.Result{
		Rows: append(append(rounds.oneGate(), rounds.manyGates()...), h.rows(e.ConfigMaps, &without)...),
		Notes: []string{
			"In this figure, the limit is a MutatingAdmissionPolicy that matches the same requests and changes nothing. What is added is the difference to a cluster without any policy.",
			fmt.Sprintf("Nodes are created one after the other by a kubelet's identity, as kubelets register, but in a dry run, so that the ratios are stricter than those of whole registrations. %d Nodes a turn (fewer of the slow ones), in a control plane without an audit log in which all policies are at the same time, each for Nodes with another label, so that turns follow each other without a pause.", e.Creations),
			"\"2 of 20 gates\": 2 of them select the Node. All gates are in one parameter: an API server writes the Node as JSON and reads it again once, whatever their number.",
			"A policy that adds one constant annotation and has no parameter is the least that a policy can do and still do something.",
			fmt.Sprintf("Live heap of an API server with %d ConfigMaps of %d KiB, after forced collections. Between the first two measurements nothing happened: %+.2f MiB. Two policies that have no parameters, and write or do nothing, added %+.2f MiB: whatever the first policy of this kind adds.", e.ConfigMaps, configMapBytes>>10, h.again-h.before, h.idle-h.before),
		},
	}, nil
}

func (e *Env) measureCreations(ctx context.Context) (_ creations, err error) {
	b, err := newBirths(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.install(ctx, e.Installation.Program); err != nil {
		return nil, err
	}
	return b.rounds(ctx, e.Rounds, e.Creations)
}

// creations are what each round observed, by contender.
type creations []map[string]report.Sample

// against sets a contender's observations against those of the policy that does
// nothing.
func (rounds creations) against(name string) []report.Round {
	all := make([]report.Round, len(rounds))
	for i, round := range rounds {
		all[i] = report.Round{Nodegate: round[name], Limit: round[byIdle]}
	}
	return all
}

// added is what a contender's Nodes cost the API server more than those of nobody.
func (rounds creations) added(name string) []float64 {
	all := make([]float64, len(rounds))
	for i, round := range rounds {
		all[i] = report.Mean(round[name][creationCPU]) - report.Mean(round[byNobody][creationCPU])
	}
	return all
}

func (rounds creations) addedAgainst(name string) []report.Round {
	ours, theirs := rounds.added(name), rounds.added(byIdle)
	all := make([]report.Round, len(rounds))
	for i := range rounds {
		all[i] = report.Round{Nodegate: report.Sample{creationCPU: ours[i : i+1]}, Limit: report.Sample{creationCPU: theirs[i : i+1]}}
	}
	return all
}

// oneGate are the rows of one gate, by policy and by webhook.
func (rounds creations) oneGate() []report.Row {
	goal := report.TimesLimit(birthGoal)
	return []report.Row{
		report.Compare("API server CPU a CREATE, 1 gate", "ms", rounds.against(oneOfOne), creationCPU, report.Mean, goal),
		report.Compare("of that added, 1 gate", "ms", rounds.addedAgainst(oneOfOne), creationCPU, report.Mean, goal),
		report.Compare("p50 of a CREATE, 1 gate", "ms", rounds.against(oneOfOne), created, report.Percentile(50), nil),
		report.Compare("p99 of a CREATE, 1 gate", "ms", rounds.against(oneOfOne), created, report.Percentile(99), nil),
		report.Compare("added by a policy that adds a constant", "ms", rounds.addedAgainst(byConstant), creationCPU, report.Mean, nil),
		report.Compare("added by the webhook, 1 gate", "ms", rounds.addedAgainst(byWebhook), creationCPU, report.Mean, nil),
		report.Alone("the webhook's own CPU a CREATE", "ms", rounds.means(byWebhook, webhookCPU), nil),
		report.Compare("p99 of a CREATE, webhook", "ms", rounds.against(byWebhook), created, report.Percentile(99), nil),
	}
}

func (rounds creations) means(name, quantity string) []float64 {
	all := make([]float64, len(rounds))
	for i, round := range rounds {
		all[i] = report.Mean(round[name][quantity])
	}
	return all
}

// manyGates are the rows that tell how the cost grows.
func (rounds creations) manyGates() []report.Row {
	var rows []report.Row
	for i := range contenders {
		c := &contenders[i]
		if c.gates > 1 {
			what := fmt.Sprintf("added, %d of %d gates", c.selecting, c.gates)
			rows = append(rows, report.Compare(what, "ms", rounds.addedAgainst(c.name), creationCPU, report.Mean, nil))
		}
	}
	return append(rows,
		report.Alone("added at 200 gates ÷ at 20, of which 2 select", "×", rounds.growth("2-of-20", "2-of-200"), report.AtMost(growthGoal)),
		report.Alone("added at 200 gates ÷ at 20, of which all select", "×", rounds.growth("20-of-20", "200-of-200"), nil),
		report.Alone("added to the p50 of a CREATE, 200 of 200 gates", "ms", rounds.slower("200-of-200"), report.AtMost(manyGoal)))
}

// slower is how much longer a contender's CREATE takes than nobody's.
func (rounds creations) slower(name string) []float64 {
	all, median := make([]float64, len(rounds)), report.Percentile(50)
	for i, round := range rounds {
		all[i] = median(round[name][created]) - median(round[byNobody][created])
	}
	return all
}

func (rounds creations) growth(few, many string) []float64 {
	all := rounds.added(many)
	for i, added := range rounds.added(few) {
		all[i] /= added
	}
	return all
}

// heapGoal is how many MiB more of a live heap of some hundred count as none.
const heapGoal = 1

// rows are those of an API server with so many ConfigMaps, beside one without.
func (h *heaps) rows(configMaps int, without *heaps) []report.Row {
	return []report.Row{
		report.Alone("API server's heap, more with the birth policy, no ConfigMaps", "MiB", []float64{without.policy()}, nil),
		report.Alone(fmt.Sprintf("the same, %d ConfigMaps", configMaps), "MiB", []float64{h.policy()}, nil),
		report.Alone("of that, because of the ConfigMaps", "MiB", []float64{h.policy() - without.policy()}, report.AtMost(heapGoal)),
		report.Alone("more with a policy whose parameter is a ConfigMap", "MiB", []float64{h.configMap - h.ours}, nil),
	}
}

// policy is what the birth policy takes: its compiled expressions.
func (h *heaps) policy() float64 { return h.ours - h.idle }
