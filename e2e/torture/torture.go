// SPDX-License-Identifier: Apache-2.0

// Package torture runs nodegate on real control planes while faults are injected. Its
// process is killed, messages between it and the API server are lost, delayed and
// reordered, the API server and etcd are killed and restored from old data, and other
// writers change the same Nodes. When a phase ends, the faults stop. Then all gates must
// open on every node, and the judge must find no violation.
package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/nodegate/nodegate/e2e/judge"
	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
	"github.com/nodegate/nodegate/testcluster"
)

// Options are the options of a campaign.
type Options struct {
	// Seed determines faults and churn. The interleaving of requests does not depend on
	// it.
	Seed uint64
	// Program is the path of the nodegate program, and OlderProgram the path of an earlier
	// version, if any.
	Program, OlderProgram string
	// ClockProgram builds nodegate with a clock whose rate clocks.AtRate sets, for R6c.
	// If it is nil, R6c is skipped. Without an OlderProgram, R10 is skipped.
	ClockProgram func(context.Context) (string, error)
	// Phases are the IDs of the phases to run; empty means all.
	Phases []string
	// Duration is the total time of fault injection in all phases.
	Duration time.Duration
	// Nodes is the number of nodes of the fleet.
	Nodes int
	// Progress receives progress messages.
	Progress io.Writer
}

// phase is one kind of faults.
type phase struct {
	// id is the ID in docs/reliability.md; title describes the faults.
	id, title string
	// weight is its share of the campaign's time.
	weight int
	// hides is the maximum time for which the faults may hide a fact from nodegate.
	hides time.Duration
	// rewinds is true if nodegate may be served an old state.
	rewinds bool
	// inStep is true if machines boot slowly and kubelets report a boot before its pods,
	// because nodegate may observe one some seconds after the other.
	inStep bool
	// brief is true if no machine reboots. A boot that nodegate observes late makes a gate
	// wait for a minute, which is too long for the phase.
	brief bool
	// injects are the faults of which at least one must have been injected. Nil if the phase
	// consists of churn only.
	injects []faultproxy.Fault
	// lacks are the rules under which there may be nothing to check.
	lacks []judge.Rule
	// components are the components that run in addition to the API server.
	components []testcluster.Component
	// lacking returns why the phase cannot run with these options, or "". Nil if it always can.
	lacking func(*Options) string
	// run injects faults for a time, and ends them.
	run func(context.Context, *site, time.Duration) error
}

// Phases returns the IDs and titles of all phases.
func Phases() []string {
	var lines []string
	for _, p := range phases {
		lines = append(lines, p.id+" "+p.title)
	}
	return lines
}

// find returns the phases with these IDs, or all phases if there are no IDs.
func find(ids []string) ([]phase, error) {
	if len(ids) == 0 {
		return phases, nil
	}
	var found []phase
	for _, id := range ids {
		i := slices.IndexFunc(phases, func(p phase) bool { return p.id == id })
		if i < 0 {
			return nil, fmt.Errorf("unknown phase %q; the phases are\n%s", id, strings.Join(Phases(), "\n"))
		}
		found = append(found, phases[i])
	}
	return found, nil
}

// Run runs the campaign, and calls a function with the report of each phase. If all phases are to
// run, those that the options do not permit are skipped, and their reports contain the reason. Run
// returns an error only if a phase could not be run, not if a report fails.
func Run(ctx context.Context, o Options, each func(*Report)) error {
	all, err := find(o.Phases)
	if err != nil {
		return err
	}
	var chosen []phase
	weights := 0
	for _, p := range all {
		if p.lacking != nil && p.lacking(&o) != "" {
			if len(o.Phases) > 0 {
				return fmt.Errorf("phase %s cannot run: %s", p.id, p.lacking(&o))
			}
			each(&Report{Seed: o.Seed, ID: p.id, Title: p.title, Skipped: p.lacking(&o)})
			continue
		}
		chosen = append(chosen, p)
		weights += p.weight
	}
	for _, p := range chosen {
		r, err := p.perform(ctx, o, o.Duration*time.Duration(p.weight)/time.Duration(weights))
		if err != nil {
			return fmt.Errorf("phase %s: %w", p.id, err)
		}
		each(r)
	}
	return nil
}

// perform runs the phase on its own control plane.
func (p phase) perform(ctx context.Context, o Options, d time.Duration) (r *Report, err error) {
	begun := time.Now()
	fmt.Fprintf(o.Progress, "%s %s: seed %d, faults for %s\n", p.id, p.title, o.Seed, d.Round(time.Second))
	s, err := newSite(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	s.report.failed(p.run(ctx, s, d))
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := s.conclude(ctx); err != nil {
		return nil, err
	}
	s.report.Took = time.Since(begun)
	return s.report, nil
}

// rng returns a random number generator that depends only on the seed and a name.
func (o *Options) rng(name string) *rand.Rand { return rand.New(rand.NewPCG(o.Seed, hash(name))) }

// hash is 64-bit FNV-1a.
func hash(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}
