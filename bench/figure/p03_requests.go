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

	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/testcluster/await"
)

const (
	// kubeletInterval is the interval of each kubelet's reports.
	kubeletInterval = time.Second
	// readyWithin is the time in which all daemons become ready.
	readyWithin = 10 * time.Second
	// afterwards is the time in which late requests are still counted.
	afterwards = 2 * time.Second
)

var requests = Figure{ID: "P3", Title: "nodegate's requests from creation to opening of nodes, kubelets reporting once per second", Measure: measureRequests}

func measureRequests(ctx context.Context, e *Env) (r report.Result, err error) {
	if err := e.SetGate(ctx, nil); err != nil {
		return r, err
	}
	if err := e.Fleet.Resize(ctx, 0); err != nil { // nodegate must not know the nodes
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
	reports, err := e.createAndOpen(ctx, e.Newborn)
	if err != nil {
		return r, err
	}
	took := time.Since(began)
	sent, err := e.Audit.Since(mark)
	r.Rows = requestRows(sent, e.Newborn)
	r.Notes = []string{
		fmt.Sprintf("%d nodes were created through the API server, which closed them. Their daemons became ready over %.0f s.", e.Newborn, readyWithin.Seconds()),
		fmt.Sprintf("Meanwhile each kubelet reported its node's status through the API server: %s.", reports),
		fmt.Sprintf("All requests of nodegate in these %.0f s, from the API server's audit log: %s.", took.Seconds(), listRequests(sent)),
	}
	return r, err
}

// createAndOpen creates nodes whose kubelets report once per second and whose daemons
// become ready. It returns the number of reports when all nodes are open.
func (e *Env) createAndOpen(ctx context.Context, nodes int) (reports driver.Speed, err error) {
	e.Observer.Reset()
	if err := e.Fleet.Resize(ctx, nodes); err != nil {
		return reports, err
	}
	reporting, stop := context.WithCancel(ctx)
	defer stop()
	var kubelets errgroup.Group
	kubelets.Go(func() (err error) {
		reports, err = e.Driver.Kubelets(reporting, e.Fleet.Nodes(), kubeletInterval)
		return err
	})
	err = e.Fleet.Pace(ctx, e.Fleet.Nodes(), max(1, float64(nodes)/readyWithin.Seconds()), true)
	if err == nil {
		err = e.Observer.Await(ctx, observer.Open, nodes)
	}
	if err == nil {
		err = await.Pause(ctx, afterwards)
	}
	stop()
	err = errors.Join(err, kubelets.Wait()) // before reports is read
	return reports, err
}

// requestRows returns the rows for requests about the given number of nodes.
func requestRows(sent []meter.Request, nodes int) []report.Row {
	patches := func(codes ...int) float64 {
		return float64(meter.Count(sent, func(r meter.Request) bool {
			return meter.NodePatch(r) && (len(codes) == 0 || slices.Contains(codes, r.Code))
		}))
	}
	written, conflicts := patches(http.StatusOK), patches(http.StatusConflict, http.StatusUnprocessableEntity)
	reads := meter.Count(sent, func(r meter.Request) bool { return r.Resource == "nodes" && (r.Verb == "get" || r.Verb == "list") })
	return []report.Row{
		report.Count("writes for each node", report.AtMost(1), written/float64(nodes)),
		report.Count("reads of nodes", report.AtMost(0), float64(reads)),
		report.Count("conflicts in 1,000 writes", report.AtMost(1), 1000*conflicts/max(written, 1)),
		report.Count("writes that failed otherwise", report.AtMost(0), patches()-written-conflicts),
	}
}

// listRequests returns the numbers of equal requests, such as "200 × patch nodes (200), 4
// × update leases (200)".
func listRequests(sent []meter.Request) string {
	count := map[string]int{}
	for _, r := range sent {
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
