// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"fmt"
	"time"

	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/report"
)

const (
	// disturbedShare is the share of the machine's CPU time from which other work disturbs a
	// turn. Other work in only one turn of a pair changes the ratio of the pair by about its
	// share. Most goals leave a tenth, of which this is half.
	disturbedShare = 0.05
	// repeatsAtMost is the maximum number of rounds that replace rejected ones in one
	// measurement. If more are rejected, the machine is not idle enough.
	repeatsAtMost = 3
)

// A referee rejects rounds in which the machine did something else, and has them repeated.
type referee struct {
	usage func() (meter.Usage, error)
	// cuts returns how often the API server has ended a watch of the benchmark. It may be
	// nil, which means never.
	cuts func() int
	say  func(format string, arguments ...any)
	// spare is the time that repeated rounds may take in the rest of the run.
	spare time.Duration

	rounds report.Rounds // since they were taken
	reason string        // for rejecting the current round, or ""
}

// turn measures a turn of the current round. Waiting should not be part of it: on an idle
// machine, it hides what disturbs the rest.
func (r *referee) turn(measure func() error) error {
	cuts := r.watchesCut()
	before, err := r.usage()
	if err != nil {
		return err
	}
	if err := measure(); err != nil {
		return err
	}
	after, err := r.usage()
	if err != nil {
		return err
	}
	if reason := rejection(after.Since(before), r.watchesCut()-cuts); reason != "" {
		r.reason = reason
	}
	return nil
}

func (r *referee) watchesCut() int {
	if r.cuts == nil {
		return 0
	}
	return r.cuts()
}

// rejection returns why a turn does not count that was disturbed, or in which watches were
// ended a number of times, or "".
func rejection(d meter.Disturbance, cuts int) string {
	switch {
	case cuts > 0:
		return fmt.Sprintf("the API server ended a watch of the limit or the observer %d times", cuts)
	case d.Throttled > 0:
		return fmt.Sprintf("the benchmark was throttled %d times", d.Throttled)
	case d.Others+d.Stolen > disturbedShare:
		return fmt.Sprintf("other processes used %.0f %% of the CPU time, and other virtual machines %.0f %%", 100*d.Others, 100*d.Stolen)
	}
	return ""
}

// take returns the rounds since it was called last, or nil if there were none.
func (r *referee) take() *report.Rounds {
	rounds := r.rounds
	r.rounds = report.Rounds{}
	if rounds.Measured == 0 {
		return nil
	}
	return &rounds
}

// An outcome is the result of a round.
type outcome[R any] struct {
	result    R
	disturbed bool
}

// repeat measures a number of rounds, and further ones for those that were disturbed, as
// long as there is time. Rounds call r.turn, and are numbered from 0. The results contain
// the disturbed rounds.
func repeat[R any](r *referee, count int, round func(n int) (R, error)) ([]outcome[R], error) {
	var all []outcome[R]
	for n, planned := 0, count; n < planned; n++ {
		r.say("  round %d of %d", n+1, planned)
		r.reason = ""
		began := time.Now()
		result, err := round(n)
		if err != nil {
			return nil, err
		}
		took := time.Since(began)
		r.rounds.Measured++
		all = append(all, outcome[R]{result, r.reason != ""})
		if r.reason == "" {
			continue
		}
		r.rounds.Rejections = append(r.rounds.Rejections, r.reason)
		r.say("  rejected: %s", r.reason)
		if planned-count < repeatsAtMost && took <= r.spare {
			planned++
			r.spare -= took
		}
	}
	return all, nil
}

// pairs measures rounds that consist of pairs.
func (r *referee) pairs(count int, round func(n int) ([]report.Pair, error)) (all []report.Pair, err error) {
	outcomes, err := repeat(r, count, round)
	for _, o := range outcomes {
		for _, pair := range o.result {
			pair.Disturbed = o.disturbed
			all = append(all, pair)
		}
	}
	return all, err
}

// alone measures rounds of nodegate alone. A round calls r.turn with what is measured in it.
func (r *referee) alone(count int, round func(n int) (report.Sample, error)) ([]report.Pair, error) {
	return r.pairs(count, func(n int) ([]report.Pair, error) {
		sample, err := round(n)
		return []report.Pair{{Nodegate: sample}}, err
	})
}
