// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/report"
)

// machine is a machine with two CPUs, whose usage during each turn is given.
type machine struct {
	meter.Usage
	turns []used
	reads int
}

// used is what happens in a turn of one second: shares of the machine's CPU time.
type used struct {
	own, others, stolen float64
	throttled           uint64
}

func (m *machine) read() (meter.Usage, error) {
	if m.reads++; m.reads%2 == 1 { // before a turn
		return m.Usage, nil
	}
	u := m.turns[0]
	m.turns = m.turns[1:]
	const cpus = 2
	share := func(s float64) time.Duration { return time.Duration(s * cpus * float64(time.Second)) }
	m.CPUs = cpus
	m.At = m.At.Add(time.Second)
	m.Own += share(u.own)
	m.Stolen += share(u.stolen)
	m.Idle += share(1 - u.own - u.others - u.stolen)
	m.Throttled += u.throttled
	return m.Usage, nil
}

// refereeOf returns a referee of a machine that is used like this in successive turns.
func refereeOf(spare time.Duration, turns ...used) *referee {
	m := &machine{turns: turns}
	return &referee{usage: m.read, say: func(string, ...any) {}, spare: spare}
}

var (
	calm        = used{own: 0.8, others: 0.01, stolen: 0.01}
	busyMachine = used{own: 0.5, others: 0.3}
)

// rejected returns how many rounds are measured and rejected. A round has two turns and
// takes ten seconds.
func rejected(t *testing.T, r *referee, rounds int) (text string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var numbers []int
		outcomes, err := repeat(r, rounds, func(n int) (int, error) {
			numbers = append(numbers, n)
			<-time.After(10 * time.Second)
			nothing := func() error { return nil }
			return n, errors.Join(r.turn(nothing), r.turn(nothing))
		})
		if err != nil {
			t.Fatal(err)
		}
		disturbed := 0
		for i, o := range outcomes {
			if o.result != i || numbers[i] != i {
				t.Errorf("round %d has number %d", i, o.result)
			}
			if o.disturbed {
				disturbed++
			}
		}
		text = fmt.Sprintf("%d of %d", disturbed, len(outcomes))
		if taken := r.take(); taken.Measured != len(outcomes) || len(taken.Rejections) != disturbed {
			t.Errorf("%s rounds were rejected, but the report contains %+v", text, taken)
		}
	})
	return text
}

func TestRejection(t *testing.T) {
	for name, test := range map[string]struct {
		spare time.Duration
		turns []used // two per round
		want  string // of two rounds
	}{
		"an idle machine":             {time.Hour, []used{calm, calm, calm, calm}, "0 of 2"},
		"one turn is disturbed":       {time.Hour, []used{calm, busyMachine, calm, calm, calm, calm}, "1 of 3"},
		"a repeated round, too":       {time.Hour, []used{busyMachine, calm, calm, calm, calm, busyMachine, calm, calm}, "2 of 4"},
		"always":                      {time.Hour, slices.Repeat([]used{busyMachine}, 10), "5 of 5"},
		"there is no time":            {9 * time.Second, []used{busyMachine, calm, calm, calm}, "1 of 2"},
		"there is time for one":       {19 * time.Second, []used{busyMachine, calm, busyMachine, calm, calm, calm}, "2 of 3"},
		"another virtual machine":     {time.Hour, []used{{own: 0.5, stolen: 0.06}, calm, calm, calm, calm, calm}, "1 of 3"},
		"both together":               {time.Hour, []used{{own: 0.5, stolen: 0.03, others: 0.03}, calm, calm, calm, calm, calm}, "1 of 3"},
		"throttled":                   {time.Hour, []used{calm, calm, {own: 0.5, throttled: 1}, calm, calm, calm}, "1 of 3"},
		"the benchmark uses all CPUs": {time.Hour, slices.Repeat([]used{{own: 1}}, 4), "0 of 2"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := rejected(t, refereeOf(test.spare, test.turns...), 2); got != test.want {
				t.Errorf("%s rounds are rejected, want %s", got, test.want)
			}
		})
	}
}

// Spare time is that of the whole run.
func TestSpareTimeIsShared(t *testing.T) {
	turns := []used{busyMachine, calm, calm, calm, busyMachine, calm}
	r := refereeOf(10*time.Second, turns...)
	if first, second := rejected(t, r, 1), rejected(t, r, 1); first != "1 of 2" || second != "1 of 1" {
		t.Errorf("%s, then %s", first, second)
	}
}

func TestReasons(t *testing.T) {
	for want, d := range map[string]meter.Disturbance{
		"":                                    {Others: 0.04},
		"the benchmark was throttled 2 times": {Throttled: 2},
		"other processes used 12 % of the CPU time, and other virtual machines 3 %": {Others: 0.12, Stolen: 0.03},
	} {
		if got := rejection(d, 0); got != want {
			t.Errorf("%+v: %q, want %q", d, got, want)
		}
	}
}

// A round in which the API server ends a watch is rejected and repeated.
func TestRoundsWithEndedWatches(t *testing.T) {
	r, cuts := refereeOf(time.Hour, calm, calm, calm), 3 // earlier ones do not matter
	r.cuts = func() int { return cuts }
	pairs, err := r.alone(2, func(n int) (report.Sample, error) {
		return nil, r.turn(func() error {
			if n == 1 {
				cuts += 2
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]report.Pair{{}, {Disturbed: true}, {}}, pairs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	want := &report.Rounds{Measured: 3, Rejections: []string{"the API server ended a watch of the limit or the observer 2 times"}}
	if diff := cmp.Diff(want, r.take()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Only what is measured in a round is a turn: waiting before and after it would hide what
// disturbs it.
func TestWaitingIsNotPartOfATurn(t *testing.T) {
	r := refereeOf(0)
	began := time.Now()
	now := meter.Usage{At: began, CPUs: 2}
	r.usage = func() (meter.Usage, error) { return now, nil }
	wait := func(seconds, idle time.Duration) {
		now.At, now.Idle = now.At.Add(seconds*time.Second), now.Idle+2*idle*time.Second
	}
	pairs, err := r.alone(1, func(int) (report.Sample, error) {
		wait(90, 90)
		err := r.turn(func() error { wait(10, 9); return nil }) // other processes use a tenth
		wait(90, 90)
		return nil, err
	})
	if err != nil || len(pairs) != 1 || !pairs[0].Disturbed {
		t.Errorf("%v, %v; want a disturbed round", pairs, err)
	}
}

// A failed turn ends the measurement.
func TestFailedTurn(t *testing.T) {
	r := refereeOf(0, calm, calm)
	broken := errors.New("broken")
	_, err := r.alone(2, func(int) (report.Sample, error) { return nil, r.turn(func() error { return broken }) })
	if !errors.Is(err, broken) {
		t.Errorf("%v, want the turn's error", err)
	}
}

// Pairs of disturbed rounds remain, and are marked.
func TestPairsOfRounds(t *testing.T) {
	r := refereeOf(time.Hour, busyMachine, calm, calm)
	nothing := func() error { return nil }
	pairs, err := r.alone(2, func(n int) (report.Sample, error) { return report.Sample{"n": {float64(n)}}, r.turn(nothing) })
	if err != nil {
		t.Fatal(err)
	}
	want := []report.Pair{
		{Nodegate: report.Sample{"n": {0}}, Disturbed: true},
		{Nodegate: report.Sample{"n": {1}}},
		{Nodegate: report.Sample{"n": {2}}},
	}
	if diff := cmp.Diff(want, pairs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestPairUp(t *testing.T) {
	for _, plan := range []Plan{{Rounds: 1}, {Rounds: 2, Short: true}} {
		for n := range plan.Rounds {
			order := plan.order(n)
			var samples []report.Sample
			for i, name := range order {
				samples = append(samples, report.Sample{name: {float64(i)}})
			}
			pairs := pairUp(order, samples)
			if len(pairs) != len(order)/2 {
				t.Fatalf("%d pairs of %v", len(pairs), order)
			}
			for i, pair := range pairs {
				a, b := pair.Nodegate[nodegateName], pair.Limit[limitName]
				if len(a) != 1 || len(b) != 1 || int(a[0])/2 != i || int(b[0])/2 != i {
					t.Errorf("%v: pair %d is %v", order, i, pair)
				}
			}
		}
	}
}

func TestCounters(t *testing.T) {
	grown := counters{"a": 5, "b": 2, "only after": 1}.since(counters{"a": 1, "b": 2, "only before": 7})
	if diff := cmp.Diff(counters{"a": 4, "b": 0}, grown); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The CPU times of subjects that run at the same time are read right before and after the
// operation, and the metrics of none in between.
func TestProcessesAreReadNextToTheOperation(t *testing.T) {
	var order []string
	value := 0.0
	read := func(what string) func(*Subject, counters) error {
		return func(s *Subject, into counters) error {
			order = append(order, what+" "+s.Name)
			value++
			into[what] = value
			return nil
		}
	}
	used, err := around([]*Subject{{Name: "a"}, {Name: "b"}}, read("metrics"), read("cpu"), func() error {
		order = append(order, "operation")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"metrics a", "metrics b", "cpu a", "cpu b", "operation", "cpu a", "cpu b", "metrics a", "metrics b"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]counters{{"metrics": 6, "cpu": 2}, {"metrics": 6, "cpu": 2}}, used); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLongestGap(t *testing.T) {
	at := func(seconds ...float64) (all []meter.Request) {
		for _, s := range seconds {
			all = append(all, meter.Request{Verb: "patch", Resource: "nodes", Received: time.Unix(0, int64(s*1e9))})
		}
		return all
	}
	others := append(at(0, 1, 1.5), meter.Request{Verb: "update", Resource: "leases", Received: time.Unix(9, 0)})
	for name, test := range map[string]struct {
		requests []meter.Request
		nodes    int
		want     time.Duration
		fails    bool
	}{
		"in order":         {at(0, 0.1, 2.2, 2.3), 4, 2100 * time.Millisecond, false},
		"not in order":     {at(2.2, 0, 2.3, 0.1), 4, 2100 * time.Millisecond, false},
		"other requests":   {others, 3, time.Second, false},
		"a PATCH too many": {at(0, 0.1, 0.2), 2, 100 * time.Millisecond, false},
		"too few":          {at(0, 5), 3, 0, true},
	} {
		got, err := longestGap(test.requests, test.nodes)
		if got.Round(time.Millisecond) != test.want || (err != nil) != test.fails {
			t.Errorf("%s: %s, %v; want %s", name, got, err, test.want)
		}
	}
}

// The rows of creations compare within passes, and skip disturbed ones.
func TestCreationRows(t *testing.T) {
	var all creations
	for i := range 6 {
		p := pass{samples: map[string]report.Sample{}, disturbed: i == 5}
		slow := float64(1 + i)
		for _, c := range contenders {
			added := map[string]float64{byNothing: 0, oneOfOne: 1.05, "20-of-20": 5, "200-of-200": 60}[c.name]
			if p.disturbed || (added == 0 && c.name != byNothing) {
				added = 1
			}
			p.samples[c.name] = report.Sample{
				creationCPU: {slow * (2 + added)}, created: {2 + added}, webhookCPU: {1}, creationAllocated: {100 + added},
			}
		}
		all = append(all, p)
	}
	all.add()
	got := map[string]string{}
	for _, row := range all.rows() {
		got[row.What] = strings.TrimSpace(fmt.Sprint(row.Nodegate, " ", row.Ratio, " ", row.Verdict))
	}
	for what, want := range map[string]string{
		"API server CPU a CREATE, 1 gate":                "9.15 (3.05–15.2) 1.02 reached",
		"of the CPU added, 1 gate":                       "3.15 (1.05–5.25) 1.05 reached",
		"API server instructions a CREATE, 1 gate":       "",
		"added to the p50 of a CREATE, 20 of 20 gates":   "5.00  reached",
		"added to the p50 of a CREATE, 200 of 200 gates": "60.0  not reached",
	} {
		if got[what] != want {
			t.Errorf("%s: %q, want %q", what, got[what], want)
		}
	}
}

// The referee reports what it does.
func TestRefereeSays(t *testing.T) {
	var said strings.Builder
	e := &Env{progress: &said, began: time.Now()}
	r := refereeOf(0, busyMachine)
	r.say = e.Say
	nothing := func() error { return nil }
	if _, err := r.alone(1, func(int) (report.Sample, error) { return nil, r.turn(nothing) }); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"round 1 of 1", "rejected: other processes used 30 %"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q is not in %q", want, said.String())
		}
	}
}
