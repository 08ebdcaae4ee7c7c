// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/report"
)

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
			"csinodes, resourceslices, devicetaintrules and objects of the kinds that they name; list pods of all\n" +
			"namespaces, unless --pods=false. All lists are paginated. What cannot be read is unknown, and the report lists it. Nothing is changed.\n\n" +
			"The exit status is 0, or 2 if nodes or gates could not be read.",
		Example: "  kubectl gate report\n  kubectl gate report -o html --output-file report.html\n  kubectl gate report -o json | jq '.pools[] | {name, opened}'",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return rejectArguments(cmd, args)
			}
			return errors.Join(o.check(), r.check(o.format))
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
			return o.print(cmd.Context(), r.out(), answer, answer.Text)
		},
	}
	o.addFlags(command.Flags(), formatHTML)
	r.addFlags(command.Flags())
	return command
}

// defaultWithin is the time after a node's creation in which openings count as those of a new
// node.
const defaultWithin = 24 * time.Hour

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
	flags.DurationVar(&r.within, "within", defaultWithin, "exclude events from percentiles that happened later than this after the node's creation")
	flags.StringVar(&r.file, "output-file", "", "write to this file instead of standard output (-)")
}

func (r *reportFlags) check(format string) error {
	if r.within <= 0 {
		return fmt.Errorf("--within=%s excludes everything: it must be greater than 0", r.within)
	}
	extension := strings.ToLower(filepath.Ext(r.file))
	if format != formatHTML && (extension == ".html" || extension == ".htm") {
		return fmt.Errorf("%s would not contain HTML: add -o html, or use another extension", r.file)
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
	f := &report.Facts{Cluster: r.clusterName(), Time: reader.Now(), Gates: gateset.Reported(declared), Within: r.within}
	var pods map[string]*gate.PodList
	var podsErr error
	var reading sync.WaitGroup
	if r.pods {
		reading.Go(func() { pods, podsErr = reader.EveryPod(ctx) })
	}
	all, gaps, err := reader.Snapshots(ctx, f.Gates.Needs)
	reading.Wait()
	if err != nil {
		return nil, describeRequestError(err)
	}
	if podsErr != nil {
		gaps = append(gaps, read.Error{Err: podsErr})
	}
	f.PodsRead, f.Unread = pods != nil, messages(gaps)
	f.Trace(all, pods, r.poolLabel)
	return report.New(f), nil
}

// clusterName returns the name of the cluster in the kubeconfig, or "" if the API server is another
// one.
func (r *reportFlags) clusterName() string {
	if *r.APIServer != "" {
		return ""
	}
	if name := *r.ClusterName; name != "" {
		return name
	}
	raw, err := r.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return "" // the API server may be specified by flags only
	}
	if context := raw.Contexts[cmp.Or(*r.Context, raw.CurrentContext)]; context != nil {
		return context.Cluster
	}
	return ""
}

// out returns where the report is written to.
func (r *reportFlags) out() io.Writer {
	if r.file == "" || r.file == "-" {
		return r.streams.Out
	}
	return outputFile(r.file)
}

// outputFile is the name of a file that each call of Write replaces.
type outputFile string

func (f outputFile) Write(content []byte) (int, error) {
	return len(content), os.WriteFile(string(f), content, 0o644)
}
