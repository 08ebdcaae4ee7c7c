// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
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
			return r.write(c.streams.Out, answer, &o)
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
	if err := interruption(ctx); err != nil {
		return nil, err
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

// write writes the report to the output file, or else to out. The file is written only
// when the report is complete.
func (r *reportFlags) write(out io.Writer, answer *report.Report, o *output) error {
	var b bytes.Buffer
	var err error
	if o.format == formatHTML {
		err = answer.WriteHTML(&b)
	} else {
		err = o.print(&b, answer, answer.Text)
	}
	if err != nil {
		return err
	}
	if r.file != "" && r.file != "-" {
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
