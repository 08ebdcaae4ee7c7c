// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/report"
	"github.com/nodegate/nodegate/internal/timeline"
)

// formatHTML is a self-contained page for a browser.
const formatHTML = "html"

func newReport(c *connection) *cobra.Command {
	var o output
	r := reportFlags{connection: c}
	command := &cobra.Command{
		Use:   "report",
		Short: "Report how long nodes took until their gates opened, and what they waited for",
		Long: "Report how long nodes took from their creation until their gates opened, and what they waited for: by gate and\n" +
			"signal, by pool and zone, and by node, held and slow nodes first. With -o html, the report is a single,\n" +
			"self-contained HTML file that can be archived, sent and searched.\n\n" +
			"The report is based on what the API server stores, which is always the latest event of a kind. A time that may not\n" +
			"be the first one is marked as doubtful and not counted. Neither is an event that happened later than --within after\n" +
			"the node's creation. Gates in DryRun hold no nodes.\n\n" +
			"Required permissions: list nodes and nodegates.nodegate.dev; where gates depend on them, list pods, daemonsets,\n" +
			"csinodes and resourceslices; list pods of all namespaces, unless --pods=false. All lists are paginated. What cannot\n" +
			"be read is unknown, and the report lists it. Nothing is changed.\n\n" +
			"The exit status is 0, or 2 if nodes or gates could not be read.",
		Example: "  kubectl gate report\n  kubectl gate report -o html --output-file report.html\n  kubectl gate report -o json | jq '.pools[] | {name, opened}'",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return rejectArguments(cmd, args)
			}
			return errors.Join(o.check(), r.check())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reader, err := c.reader()
			if err != nil {
				return err
			}
			answer, err := r.read(cmd.Context(), reader)
			if err != nil {
				return err
			}
			return r.write(c.streams.Out, answer, &o)
		},
	}
	o.addFlags(command.Flags(), formatHTML)
	r.addFlags(command.Flags())
	return command
}

// reportFlags holds the flags of 'kubectl gate report'.
type reportFlags struct {
	*connection
	pods      bool
	poolLabel string
	within    time.Duration
	file      string
}

func (r *reportFlags) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&r.pods, "pods", true, "read all pods, to include when containers started and when the first workload pod was bound")
	flags.StringVar(&r.poolLabel, "pool-label", "", "node label with the name of the node's pool (default the labels of Karpenter, GKE, EKS and AKS)")
	flags.DurationVar(&r.within, "within", 24*time.Hour, "exclude events from percentiles that happened later than this after the node's creation")
	flags.StringVar(&r.file, "output-file", "", "write to this file instead of standard output")
}

func (r *reportFlags) check() error {
	if r.within <= 0 {
		return fmt.Errorf("--within=%s excludes everything: it must be greater than 0", r.within)
	}
	return nil
}

// read reads all nodes and creates the report.
func (r *reportFlags) read(ctx context.Context, reader *read.Reader) (*report.Report, error) {
	declared, installed, err := declaredGates(ctx, reader)
	switch {
	case err != nil:
		return nil, err
	case !installed:
		return nil, errNotInstalled
	}
	s := compile(declared)
	s.now = time.Now()
	var pods map[string]*gate.PodList
	var podsErr error
	var reading sync.WaitGroup
	if r.pods {
		reading.Go(func() { pods, podsErr = reader.EveryPod(ctx) })
	}
	all, gaps, err := reader.Snapshots(ctx, s.allNeeds)
	reading.Wait()
	if err != nil {
		return nil, describeRequestError(err)
	}
	if podsErr != nil {
		gaps = append(gaps, read.Error{Err: podsErr})
	}
	s.gaps = gaps
	return s.report(r, all, pods), nil
}

// allNeeds returns the combined needs of all gates.
func (s *snapshot) allNeeds(sets *gate.DaemonSets) gate.Needs {
	var all gate.Needs
	for i := range s.gates {
		all.Add(s.gates[i].Needs(sets))
	}
	return all
}

// report decides about all nodes and creates the report from the decisions. pods
// contains the pods of each node, or is nil if pods were not read.
func (s *snapshot) report(r *reportFlags, all []gate.Facts, pods map[string]*gate.PodList) *report.Report {
	f := &report.Facts{
		Cluster: r.clusterName(), Time: s.now, Gates: s.gates, Rejected: s.rejected, PodsRead: pods != nil, Within: r.within,
		Nodes: make([]report.Node, 0, len(all)),
	}
	keys := s.keys()
	for i := range all {
		facts := &all[i]
		facts.Transient.GateKeys = keys
		if pods != nil {
			if facts.AllPods = pods[facts.Node.Name]; facts.AllPods == nil {
				facts.AllPods = &gate.PodList{At: s.now}
			}
		}
		d := gate.Decide(s.gates, facts, s.now)
		n := report.Node{Life: timeline.Trace(s.gates, facts, &d, facts.AllPods, s.now)}
		n.Pool, n.Zone = report.Place(facts.Node.Labels, r.poolLabel)
		f.Nodes = append(f.Nodes, n)
	}
	for i := range s.gaps {
		f.Unread = append(f.Unread, oneLine(s.gaps[i].Err))
	}
	return report.New(f)
}

// clusterName returns the name of the cluster in the kubeconfig, or "".
func (r *reportFlags) clusterName() string {
	if r.connection == nil {
		return ""
	}
	if name := *r.ClusterName; name != "" {
		return name
	}
	raw, err := r.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return "" // the API server may be specified by flags only
	}
	name := raw.CurrentContext
	if *r.Context != "" {
		name = *r.Context
	}
	if context := raw.Contexts[name]; context != nil {
		return context.Cluster
	}
	return ""
}

// write writes the report to the output file, or else to out. The file is written only
// when the report is complete.
func (r *reportFlags) write(out io.Writer, answer *report.Report, o *output) error {
	var b bytes.Buffer
	var err error
	if o.format == formatHTML {
		err = answer.WriteHTML(&b)
	} else {
		err = o.print(&b, answer, func() string { return reportText(answer) })
	}
	if err != nil {
		return err
	}
	if r.file != "" {
		if err := os.WriteFile(r.file, b.Bytes(), 0o644); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
		return nil
	}
	if _, err := out.Write(b.Bytes()); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}
