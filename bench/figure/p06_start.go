// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster/await"
)

// fitMeanwhile is the number of nodes that become fit while nodegate is not
// running.
const fitMeanwhile = 20

// startProfile is for how long a start is looked into: about what it may take.
const startProfile = 2 * time.Second

var coldStart = Figure{
	ID: "P6", Title: "Cold start: from the start of the process to the first opening, and to a fleet that is verified",
	Measure: measureColdStart,
	Profiled: func(*Env) Profiled {
		return Profiled{Name: "start", Otherwise: profileStart}
	},
}

// A start contains the observations of one start, in seconds from the start of
// the process.
type start struct {
	first, last, verified float64
	needless              int
}

func measureColdStart(ctx context.Context, e *Env) (report.Result, error) {
	var r report.Result
	if err := e.openFleet(ctx, e.Large); err != nil {
		return r, err
	}
	var first, last, verified, needless []float64
	for range e.Rounds {
		s, err := e.coldStart(ctx)
		if err != nil {
			return r, err
		}
		first, last = append(first, s.first), append(last, s.last)
		verified, needless = append(verified, s.verified), append(needless, float64(s.needless))
	}
	r.Rows = []report.Row{
		report.Alone("first correct decision", "s", first, report.AtMost(2)),
		report.Alone(fmt.Sprintf("all %d nodes that are to be opened", fitMeanwhile), "s", last, nil),
		report.Alone("all nodes verified", "s", verified, report.AtMost(2)),
		report.Alone("needless writes", "", needless, report.AtMost(0)),
	}
	r.Notes = []string{
		fmt.Sprintf("%d nodes, of which %d became fit while nodegate was away. From just before the process is started to when the observer sees a taint gone.", len(e.Fleet.Nodes()), fitMeanwhile),
		"Verified: the gate's status, which was emptied before, counts every node as open, seen by a watch of the driver's. nodegate writes a status once a second at most.",
		"The process before had released its lease. After a crash, another replica leads when that has expired.",
		"Needless: PATCHes of nodes in the API server's audit log, whatever the answer, less those of the nodes that are to be opened.",
	}
	return r, nil
}

// coldStart measures one start, after which all nodes are open again.
func (e *Env) coldStart(ctx context.Context) (s start, err error) {
	if err := e.fitWhileAway(ctx); err != nil {
		return s, err
	}
	counts, err := e.watchCounts(ctx)
	if err != nil {
		return s, err
	}
	defer counts.Stop()
	mark, err := e.Audit.Mark()
	if err != nil {
		return s, err
	}
	nodegate, err := testbed.StartController(ctx, e.Cluster, e.Installation)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, nodegate.Stop()) }()
	var verified time.Time
	var seeing errgroup.Group
	seeing.Go(func() (err error) {
		verified, err = awaitCount(ctx, counts, len(e.Fleet.Nodes()))
		return err
	})
	seeing.Go(func() error { return e.Observer.AwaitSeen(ctx, observer.Open, fitMeanwhile) })
	if err := seeing.Wait(); err != nil {
		return s, err
	}
	if err := wait(ctx, afterwards); err != nil {
		return s, err
	}
	asked, err := e.Audit.Since(mark)
	if err != nil {
		return s, err
	}
	var opened []time.Time
	for _, at := range e.Observer.Seen(observer.Open) {
		opened = append(opened, at)
	}
	slices.SortFunc(opened, time.Time.Compare)
	since := func(t time.Time) float64 { return t.Sub(nodegate.Started).Seconds() }
	return start{since(opened[0]), since(opened[len(opened)-1]), since(verified), meter.Count(asked, meter.NodePatch) - fitMeanwhile}, nil
}

// profileStart profiles a start from the moment at which the process serves
// profiles.
func profileStart(ctx context.Context, e *Env) (raw rawProfiles, err error) {
	if err := errors.Join(e.openFleet(ctx, e.Large), e.fitWhileAway(ctx)); err != nil {
		return raw, err
	}
	address, err := testbed.FreeAddress()
	if err != nil {
		return raw, err
	}
	nodegate, err := testbed.StartController(ctx, e.Cluster, e.Installation, "--pprof-bind-address", address)
	if err != nil {
		return raw, err
	}
	defer func() { err = errors.Join(err, nodegate.Stop()) }()
	ctx, _, stop := await.Watch(ctx, await.Silence)
	defer stop()
	for {
		raw.own, err = fetchProfile(ctx, http.DefaultClient, "http://"+address, startProfile)
		if !errors.Is(err, syscall.ECONNREFUSED) { // it listens
			return raw, err
		}
		if err := wait(ctx, 5*time.Millisecond); err != nil {
			return raw, err
		}
	}
}

// fitWhileAway has some nodes as they are born, and then fit, and empties the
// gate's status, so that whatever it says is the word of the next process.
func (e *Env) fitWhileAway(ctx context.Context) error {
	if err := e.Reset(ctx, nil, fitMeanwhile); err != nil {
		return err
	}
	if _, err := e.Fleet.Report(ctx, fitMeanwhile, true); err != nil {
		return err
	}
	if err := e.emptyStatus(ctx); err != nil {
		return err
	}
	if err := e.AwaitQuiet(ctx, nil); err != nil {
		return err
	}
	e.Observer.Reset()
	return nil
}
