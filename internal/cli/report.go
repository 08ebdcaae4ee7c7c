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

	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/report"
	"github.com/nodegate/nodegate/internal/timeline"
)

// formatHTML is one file for a browser.
const formatHTML = "html"

func newReport(c *connection) *cobra.Command {
	var o output
	r := reporting{connection: c}
	command := &cobra.Command{
		Use:   "report",
		Short: "Show where nodes' time goes until they are fit for work",
		Long: "Show where nodes' time goes from their creation until they are fit for work: by gate and signal, by pool and\n" +
			"zone, and node by node, those that are held and the slowest first. With -o html it is one file for a browser\n" +
			"that needs nothing else, loads nothing, and can be kept, sent and searched.\n\n" +
			"It is told from what the API server keeps, which is the last of everything. What cannot be the first time is\n" +
			"said to be in doubt, and not counted; nor is what happened later than --within after a node's creation. A gate\n" +
			"in DryRun has held nothing.\n\n" +
			"It takes the rights to list nodes and nodegates.nodegate.dev and, where gates look at them, pods, daemonsets,\n" +
			"csinodes and resourceslices; unless --pods=false, pods of all namespaces. All are read in pages. What may not\n" +
			"be read is not known, and told. Nothing is changed.\n\n" +
			"The exit status is 0, or 2 if nodes or gates could not be read.",
		Example: "  kubectl gate report\n  kubectl gate report -o html --output-file report.html\n  kubectl gate report -o json | jq '.pools[] | {name, opened}'",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return takesNone(cmd, args)
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

// reporting is what a report is to be like.
type reporting struct {
	*connection
	pods      bool
	poolLabel string
	within    time.Duration
	file      string
}

func (r *reporting) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&r.pods, "pods", true, "look at all pods, for when containers started and the first workload came to a node")
	flags.StringVar(&r.poolLabel, "pool-label", "", "the node label that names a node's pool, instead of those of Karpenter, GKE, EKS and AKS")
	flags.DurationVar(&r.within, "within", 24*time.Hour, "count nothing in percentiles that happened later than this after a node's creation")
	flags.StringVar(&r.file, "output-file", "", "write to this file instead of to standard output")
}

func (r *reporting) check() error {
	if r.within <= 0 {
		return fmt.Errorf("--within=%s has nothing counted: give a time that is longer", r.within)
	}
	return nil
}

// read reads all nodes, and says how they came to be as they are.
func (r *reporting) read(ctx context.Context, reader *cluster.Reader) (*report.Report, error) {
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
	all, gaps, err := reader.LookAll(ctx, s.allNeeds)
	reading.Wait()
	if err != nil {
		return nil, unanswered(err)
	}
	if podsErr != nil {
		gaps = append(gaps, cluster.Gap{Err: podsErr})
	}
	s.gaps = gaps
	return s.report(r, all, pods), nil
}

// allNeeds is what all gates need.
func (s *sight) allNeeds(sets *gate.DaemonSets) gate.Needs {
	var all gate.Needs
	for i := range s.gates {
		all.Add(s.gates[i].Needs(sets))
	}
	return all
}

// report decides about all nodes, and says what came of it. The pods are those of
// each node, or nil if they have not been read.
func (s *sight) report(r *reporting, all []gate.Facts, pods map[string]*gate.PodList) *report.Report {
	f := &report.Facts{
		Cluster: r.clusterName(), Time: s.now, Gates: s.gates, Refused: s.refused, PodsRead: pods != nil, Within: r.within,
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

// clusterName is the name of the cluster in the kubeconfig, if it has one.
func (r *reporting) clusterName() string {
	if r.connection == nil {
		return ""
	}
	if name := *r.ClusterName; name != "" {
		return name
	}
	raw, err := r.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return "" // as where the flags alone say where the API server is
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

// write writes the report where it is to be. A file is written when all of it is
// known.
func (r *reporting) write(out io.Writer, answer *report.Report, o *output) error {
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
