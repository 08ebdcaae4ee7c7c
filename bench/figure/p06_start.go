// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster/await"
)

// readyMeanwhile is the number of nodes whose daemons become ready while nodegate is not
// running.
const readyMeanwhile = 20

// verifiedGoal is the goal for the time until all nodes are verified, in seconds.
const verifiedGoal = 1.5

var coldStart = Figure{
	ID: "P6", Title: "Cold start: from the start of the process to the first opened node, and until all nodes are verified",
	Measure: measureColdStart,
}

func measureColdStart(ctx context.Context, e *Env) (report.Result, error) {
	var r report.Result
	if err := e.openFleet(ctx, e.Large); err != nil {
		return r, err
	}
	starts, err := e.referee.alone(e.Rounds, func(int) (report.Sample, error) { return e.coldStart(ctx) })
	if err != nil {
		return r, err
	}
	for _, row := range []struct {
		what, unit string
		goal       *report.Goal
	}{
		{"first correct decision", "s", report.AtMost(2)},
		{lastOpened, "s", nil},
		{"all nodes verified", "s", report.AtMost(verifiedGoal)},
	} {
		r.Rows = append(r.Rows, report.Compare(row.what, row.unit, starts, row.what, report.Mean, row.goal))
	}
	r.Rows = append(r.Rows, report.Counted("needless writes", starts, "needless writes", report.AtMost(0)))
	r.Notes = []string{
		fmt.Sprintf("%d nodes. The daemons of %d of them became ready while nodegate was not running. From the time just before the process is started to the time at which the observer sees a node without the taint.", len(e.Fleet.Nodes()), readyMeanwhile),
		"Verified: the gate's status, which was removed before, counts all nodes as open. It is read about every 20 ms; nodegate writes it at most once per second.",
		"The previous process had released its Lease. After a crash, another replica becomes the leader when the Lease has expired.",
		"Needless: PATCHes of nodes in the API server's audit log, including failed ones, minus one for each opened node.",
		observerNote,
	}
	return r, nil
}

// lastOpened is the time until all nodes are open whose daemons are ready.
var lastOpened = fmt.Sprintf("all %d nodes that are to be opened", readyMeanwhile)

// coldStart measures one start, after which all nodes are open again. Times are in seconds
// since the start of the process.
func (e *Env) coldStart(ctx context.Context) (_ report.Sample, err error) {
	if err := e.reportWithout(ctx); err != nil {
		return nil, err
	}
	mark, err := e.Audit.Mark()
	if err != nil {
		return nil, err
	}
	var nodegate *testbed.Controller
	defer func() {
		if nodegate != nil {
			err = errors.Join(err, nodegate.Stop())
		}
	}()
	var verified time.Time
	if err := e.referee.turn(func() (err error) {
		nodegate, verified, err = e.startUntilVerified(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	if err := await.Pause(ctx, afterwards); err != nil {
		return nil, err
	}
	sent, err := e.Audit.Since(mark)
	opened := slices.SortedFunc(maps.Values(e.Observer.Seen(observer.Open)), time.Time.Compare)
	since := func(t time.Time) []float64 { return []float64{t.Sub(nodegate.Started).Seconds()} }
	return report.Sample{
		"first correct decision": since(opened[0]),
		lastOpened:               since(opened[len(opened)-1]),
		"all nodes verified":     since(verified),
		"needless writes":        {float64(meter.Count(sent, meter.NodePatch) - readyMeanwhile)},
	}, err
}

// startUntilVerified starts nodegate, which must be stopped if it is not nil. It returns when
// all nodes are verified, and when that was.
func (e *Env) startUntilVerified(ctx context.Context) (nodegate *testbed.Controller, verified time.Time, err error) {
	if nodegate, err = testbed.StartController(ctx, e.Cluster, e.Installation); err != nil {
		return nil, verified, err
	}
	if err := e.awaitCounted(ctx, len(e.Fleet.Nodes())); err != nil {
		return nodegate, verified, err
	}
	verified = time.Now()
	return nodegate, verified, e.Observer.AwaitSeen(ctx, observer.Open, readyMeanwhile)
}

// reportWithout closes some nodes, makes their daemons ready, and removes the gate's
// status, while nodegate is not running.
func (e *Env) reportWithout(ctx context.Context) error {
	if err := e.Reset(ctx, nil, readyMeanwhile); err != nil {
		return err
	}
	if _, err := e.Fleet.Report(ctx, readyMeanwhile, true); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(e.Cluster.Admin())
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	_, err = client.Resource(v1alpha1.Resource).Patch(ctx, fixture.Daemon, types.MergePatchType, []byte(`{"status":null}`), metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("removing the gate's status: %w", err)
	}
	if err := e.AwaitQuiet(ctx, nil); err != nil {
		return err
	}
	e.Observer.Reset()
	return nil
}

// awaitCounted waits until the gate's status counts exactly the given number of nodes, all
// of them open.
func (e *Env) awaitCounted(ctx context.Context, nodes int) error {
	return await.Until(ctx, "the gate's status", func(ctx context.Context) error {
		gate, err := testbed.GetGate(ctx, e.Applier, fixture.Daemon)
		if err != nil {
			return err
		}
		if n := gate.Status.Nodes; int(n.Selected) != nodes || n.Open != n.Selected {
			return fmt.Errorf("%d of %d nodes are open, want %d", n.Open, n.Selected, nodes)
		}
		return nil
	})
}
