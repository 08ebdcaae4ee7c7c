// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
)

const (
	// kubeletInterval is how often each kubelet reports while a node is young.
	kubeletInterval = time.Second
	// births are over when all daemons are ready, after so long.
	readyWithin = 10 * time.Second
	// afterwards is how long late requests are still counted.
	afterwards = 2 * time.Second
)

var requests = Figure{ID: "P3", Title: "nodegate's requests from birth to open, kubelets reporting once a second", Measure: measureRequests}

func measureRequests(ctx context.Context, e *Env) (r report.Result, err error) {
	if err := e.prepare(ctx, 0, nil); err != nil {
		return r, err
	}
	if err := e.Fleet.Resize(ctx, 0); err != nil { // nodes that it has never seen
		return r, err
	}
	nodegate, err := e.StartNodegate(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, nodegate.Stop()) }()
	if err := meter.AwaitQuiet(ctx, nodegate.PID()); err != nil {
		return r, err
	}
	mark, err := e.Audit.Mark()
	if err != nil {
		return r, err
	}
	began := time.Now()
	kubelets, err := e.live(ctx, e.Newborn)
	if err != nil {
		return r, err
	}
	took := time.Since(began)
	asked, err := e.Audit.Since(mark)
	if err != nil {
		return r, err
	}
	r.Rows = requestRows(asked, e.Newborn)
	r.Notes = []string{
		fmt.Sprintf("%d nodes were created through the API server, which closed them, and their daemons became ready over %.0f s.", e.Newborn, readyWithin.Seconds()),
		fmt.Sprintf("Meanwhile each kubelet reported its node's status through the API server: %s.", kubelets),
		fmt.Sprintf("Everything that nodegate asked for in these %.0f s, from the API server's audit log: %s.", took.Seconds(), tellRequests(asked)),
	}
	return r, nil
}

// live creates nodes whose kubelets report once a second and whose daemons become
// ready. It returns the number of reports when all nodes are open.
func (e *Env) live(ctx context.Context, nodes int) (reports fmt.Stringer, err error) {
	e.Observer.Reset()
	if err := e.Fleet.Resize(ctx, nodes); err != nil {
		return nil, err
	}
	beating, stop := context.WithCancel(ctx)
	defer stop()
	var kubelets errgroup.Group
	kubelets.Go(func() error {
		speed, err := e.Driver.Kubelets(beating, e.Fleet.Nodes(), kubeletInterval)
		reports = speed
		return err
	})
	err = e.Fleet.Pace(ctx, e.Fleet.Nodes(), max(1, nodes/int(readyWithin.Seconds())), true)
	if err == nil {
		err = e.Observer.Await(ctx, observer.Open, nodes)
	}
	if err == nil {
		err = wait(ctx, afterwards)
	}
	stop()
	return reports, errors.Join(err, kubelets.Wait())
}

// wait waits for a duration, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// requestRows returns the rows for requests about nodes.
func requestRows(asked []meter.Request, nodes int) []report.Row {
	written := meter.Count(asked, func(r meter.Request) bool { return meter.NodePatch(r) && r.Code == http.StatusOK })
	conflicts := meter.Count(asked, func(r meter.Request) bool {
		return meter.NodePatch(r) && (r.Code == http.StatusConflict || r.Code == http.StatusUnprocessableEntity)
	})
	failed := meter.Count(asked, meter.NodePatch) - written - conflicts
	reads := meter.Count(asked, func(r meter.Request) bool { return r.Resource == "nodes" && (r.Verb == "get" || r.Verb == "list") })
	return []report.Row{
		report.Alone("writes for each node", "", []float64{float64(written) / float64(nodes)}, report.AtMost(1)),
		report.Alone("reads of nodes", "", []float64{float64(reads)}, report.AtMost(0)),
		report.Alone("conflicts in 1,000 writes", "", []float64{1000 * float64(conflicts) / float64(max(written, 1))}, report.AtMost(1)),
		report.Alone("writes that failed otherwise", "", []float64{float64(failed)}, report.AtMost(0)),
	}
}

// tellRequests lists requests by what they asked for, of the form
// "200 × patch nodes (200), 4 × update leases (200)".
func tellRequests(asked []meter.Request) string {
	count := map[string]int{}
	for _, r := range asked {
		what := r.Verb + " " + r.Resource
		if r.Subresource != "" {
			what += "/" + r.Subresource
		}
		if r.DryRun {
			what += " in a dry run"
		}
		count[fmt.Sprintf("%s (%d)", what, r.Code)]++
	}
	var all []string
	for _, what := range slices.Sorted(maps.Keys(count)) {
		all = append(all, fmt.Sprintf("%d × %s", count[what], what))
	}
	return strings.Join(all, ", ")
}
