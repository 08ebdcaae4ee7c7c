// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/testbed"
)

// faultsShown is the maximum number of faults that are shown for a check.
const faultsShown = 5

// write writes the summary as a table.
func (s *summary) write(out io.Writer) {
	fmt.Fprint(out, "Verdict, from etcd's revisions and the API server's audit log:\n\n")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range s.checks {
		result := "PASS"
		if len(c.faults) > 0 {
			result = "FAIL"
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\n", result, c.name, c.value)
	}
	fmt.Fprintf(table, "  \t%s\t%s\n", "from daemon ready (and node set up) to taint removed", latencyText(s.latencies))
	table.Flush()
	for _, c := range s.checks {
		if len(c.faults) == 0 {
			continue
		}
		fmt.Fprintf(out, "\n  FAIL  %s:\n", c.name)
		for _, fault := range c.faults[:min(len(c.faults), faultsShown)] {
			fmt.Fprintf(out, "        - %s\n", fault)
		}
		if more := len(c.faults) - faultsShown; more > 0 {
			fmt.Fprintf(out, "        - and %d more\n", more)
		}
	}
	fmt.Fprintln(out)
}

func latencyText(sorted []time.Duration) string {
	if len(sorted) == 0 {
		return "no gate opened"
	}
	percentile := func(percent int) string { // nearest rank
		d := sorted[(len(sorted)*percent+99)/100-1]
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("p50 %s, p99 %s, max %s (%d openings)", percentile(50), percentile(99), percentile(100), len(sorted))
}

// explainHeld prints, for every gate that is still closed, the reason and its source.
func explainHeld(ctx context.Context, out io.Writer, admin kubernetes.Interface, a *testbed.Applier, held []heldGate) error {
	for _, h := range held {
		ng, err := testbed.GetGate(ctx, a, h.gate)
		if err != nil {
			return err
		}
		node, err := admin.CoreV1().Nodes().Get(ctx, h.node, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading node %s: %w", h.node, err)
		}
		fmt.Fprintf(out, "Still held: %s, by gate %s.\n", h.node, h.gate)
		for i := range ng.Status.Waiting {
			if w := &ng.Status.Waiting[i]; w.Node == h.node {
				fmt.Fprintf(out, "  The NodeGate's status.waiting: since %s, for signal %s: %s (%s)\n",
					w.Since.UTC().Format(time.RFC3339), w.Signal, w.Message, w.Reason)
			}
		}
		fmt.Fprintf(out, "  The record on the Node: %s\n", node.Annotations[v1alpha1.RecordAnnotationPrefix+h.gate])
	}
	return nil
}
