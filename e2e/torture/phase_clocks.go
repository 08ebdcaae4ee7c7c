// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"fmt"
	"time"

	"github.com/nodegate/nodegate/e2e/torture/clocks"
	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
)

const otherRate faultproxy.Fault = "process with a clock at half or double rate"

// clocksHide is the error of a wait: half a minute may be too short, and a minute too
// long, by that much.
const clocksHide = time.Minute

func clockProgram(o *Options) string {
	if o.ClockProgram == nil {
		return "there is no program with another clock"
	}
	return ""
}

// otherClocks runs two replicas, one with a clock at half rate and one with a clock at
// double rate. First both act as leader, then they elect a leader that ends repeatedly.
func otherClocks(ctx context.Context, s *site, d time.Duration) error {
	program, err := s.ClockProgram(ctx)
	if err != nil {
		return err
	}
	bothLead := func(program string) error {
		_, err := s.startProgram(ctx, program, "--leader-elect=false")
		return err
	}
	if err := s.atRates(program, bothLead); err != nil {
		return err
	}
	if err := s.fleet.arrive(ctx); err != nil {
		return err
	}
	if err := s.churning(ctx, d/2); err != nil {
		return err
	}
	for _, r := range s.replicas {
		if err := r.stop(); err != nil {
			return fmt.Errorf("stopping nodegate: %w", err)
		}
	}
	if err := s.atRates(program, func(program string) error { return s.startCandidate(ctx, program) }); err != nil {
		return err
	}
	return s.endLeaders(ctx, d/2)
}

// atRates starts a replica with each of the clocks.
func (s *site) atRates(program string, start func(program string) error) error {
	for _, rate := range []float64{0.5, 2} {
		other, err := clocks.AtRate(program, rate)
		if err != nil {
			return err
		}
		s.report.inject(otherRate)
		if err := start(other); err != nil {
			return err
		}
	}
	return nil
}
