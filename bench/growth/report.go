// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/nodegate/nodegate/bench/figure"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/bench/steady"
	"github.com/nodegate/nodegate/testcluster"
)

var reportTimes = figure.Figure{ID: "P13", Title: "kubectl gate report", Measure: measureReports}

// measureReports measures 'kubectl gate report' with a real API server, whose objects are
// written directly to etcd.
func measureReports(ctx context.Context, e *figure.Env) (r report.Result, err error) {
	f, err := steady.NewTwoGates(ctx, e.Installation.Program)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size := e.Reported
	e.Say("  %d nodes and %d pods, in etcd", size.Nodes, size.Nodes*len(f.Daemons)+size.Others)
	if err := f.Store(ctx, size.Nodes, size.Others); err != nil {
		return r, err
	}
	plugin, err := buildPlugin(ctx, f.Cluster)
	if err != nil {
		return r, err
	}
	server := f.Cluster.PID(testcluster.APIServer)
	bare, err := newBareList(f.Cluster.Admin())
	if err != nil {
		return r, err
	}
	pairs, err := inTurns(e.Rounds,
		func(into report.Sample) error { return plugin.run(ctx, server, into) },
		func(into report.Sample) error { return bare.run(ctx, server, into) })
	if err != nil {
		return r, err
	}
	r.Rows = reportRows(pairs, fmt.Sprintf("%d nodes, %d pods", size.Nodes, size.Nodes*len(f.Daemons)+size.Others))
	r.Notes = []string{
		fmt.Sprintf("`kubectl gate report -o html`, run %d times as an administrator. A pod of a workload has %.1f KB in protobuf, a Node %.1f KB. Client and API server share the machine's cores, so the time includes the work of both.", e.Rounds, float64(f.Other(0, 1).Size())/1e3, float64(f.Node(0).Size())/1e3),
		"The limit is a single request for all pods, over HTTP/1.1 and compressed, whose response is dropped without being decompressed. It uses one core of the API server, the report up to two. Each round measures both once, in alternating order.",
	}
	return r, nil
}

// inTurns measures nodegate and the limit once in each round (A B B A).
func inTurns(rounds int, nodegate, limit func(into report.Sample) error) ([]report.Pair, error) {
	pairs := make([]report.Pair, rounds)
	for i := range pairs {
		pairs[i] = report.Pair{Nodegate: report.Sample{}, Limit: report.Sample{}}
		turns := []func() error{
			func() error { return nodegate(pairs[i].Nodegate) },
			func() error { return limit(pairs[i].Limit) },
		}
		if i%2 == 1 {
			slices.Reverse(turns)
		}
		for _, turn := range turns {
			if err := turn(); err != nil {
				return nil, err
			}
		}
	}
	return pairs, nil
}

// timed adds the duration of do, and the CPU time of the API server in it, to the sample.
func timed(ctx context.Context, server int, into report.Sample, do func() error) error {
	if err := meter.AwaitQuiet(ctx, server); err != nil {
		return err
	}
	before, err := meter.CPU(server)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := do(); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := meter.CPU(server)
	if err != nil {
		return err
	}
	into.Add("took", took.Seconds())
	into.Add("server", (after - before).Seconds())
	return nil
}

// reportGoal is the goal for the time of a report in relation to the limit's.
const reportGoal = 1.5

func reportRows(pairs []report.Pair, size string) []report.Row {
	row := func(what, unit, quantity string, goal *report.Goal) report.Row {
		return report.Compare(what+", "+size, unit, pairs, quantity, report.Mean, goal)
	}
	return []report.Row{
		row("time until the report is complete", "s", "took", report.TimesLimit(reportGoal)),
		row("CPU of kubectl gate", "s", "client", nil),
		row("CPU of the API server", "s", "server", nil),
		row("peak memory of kubectl gate", "MiB", "memory", nil),
	}
}

// A plugin is the program of kubectl gate, with a kubeconfig.
type plugin struct{ program, kubeconfig string }

func buildPlugin(ctx context.Context, c *testcluster.Cluster) (*plugin, error) {
	p := &plugin{program: filepath.Join(c.Dir(), "kubectl-gate"), kubeconfig: filepath.Join(c.Dir(), "admin.kubeconfig")}
	output, err := exec.CommandContext(ctx, "go", "build", "-o", p.program, "github.com/nodegate/nodegate/cmd/kubectl-gate").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("building kubectl gate: %w:\n%s", err, bytes.TrimSpace(output))
	}
	return p, testcluster.WriteKubeconfig(p.kubeconfig, c.Admin())
}

// run creates a report once and adds what it cost, in seconds and MiB, to the sample.
func (p *plugin) run(ctx context.Context, server int, into report.Sample) error {
	command := exec.CommandContext(ctx, p.program, "report", "-o", "html", "--output-file", filepath.Join(filepath.Dir(p.program), "report.html"))
	command.Env = append(command.Environ(), "KUBECONFIG="+p.kubeconfig)
	err := timed(ctx, server, into, func() error {
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("running kubectl gate report: %w:\n%s", err, bytes.TrimSpace(output))
		}
		return nil
	})
	if err != nil {
		return err
	}
	usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return errors.New("the operating system does not report the memory of an ended process")
	}
	into.Add("client", (command.ProcessState.UserTime() + command.ProcessState.SystemTime()).Seconds())
	into.Add("memory", float64(usage.Maxrss<<10)/mebibyte) // in KiB on Linux
	return nil
}
