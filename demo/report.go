// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/testbed"
)

// faultsShown is the maximum number of faults that are shown for a check.
const faultsShown = 5

// write writes the verdict as a table.
func (v *verdict) write(out io.Writer) {
	fmt.Fprintf(out, "Verdict, from the API server's audit log (%d writes):\n\n", v.writes)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i := range v.checks {
		c := &v.checks[i]
		fmt.Fprintf(table, "  %s\t%s\t%s\n", passWord(c.pass), c.name, c.value)
	}
	fmt.Fprintf(table, "  \t%s\t%s\n", "from daemon ready (and node set up) to taint gone", latencyText(v.latencies))
	table.Flush()
	for i := range v.checks {
		c := &v.checks[i]
		if c.pass {
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

func passWord(pass bool) string {
	if pass {
		return "PASS"
	}
	return "FAIL"
}

func latencyText(sorted []time.Duration) string {
	if len(sorted) == 0 {
		return "no gate opened"
	}
	return fmt.Sprintf("p50 %s, p99 %s, max %s (%d openings)",
		milliseconds(percentile(sorted, 50)), milliseconds(percentile(sorted, 99)),
		milliseconds(percentile(sorted, 100)), len(sorted))
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

// explainHeld prints, for every gate that is still closed, the reason and its
// source.
func explainHeld(ctx context.Context, out io.Writer, admin kubernetes.Interface, a *testbed.Applier, held []heldGate) error {
	if len(held) == 0 {
		fmt.Fprintln(out, "No node is held any more.")
		return nil
	}
	for _, h := range held {
		ng, err := testbed.GetGate(ctx, a, h.gate)
		if err != nil {
			return fmt.Errorf("explaining why %s is held: %w", h.node, err)
		}
		node, err := admin.CoreV1().Nodes().Get(ctx, h.node, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("explaining why %s is held: %w", h.node, err)
		}
		fmt.Fprintf(out, "Still held: %s, by gate %s.\n", h.node, h.gate)
		fmt.Fprintf(out, "  %s\n", waitingText(ng, h.node))
		record := node.Annotations[v1alpha1.RecordAnnotationPrefix+h.gate]
		if record == "" {
			record = "none"
		}
		fmt.Fprintf(out, "  The record on the Node: %s\n", record)
	}
	return nil
}

func waitingText(ng *v1alpha1.NodeGate, node string) string {
	i := slices.IndexFunc(ng.Status.Waiting, func(w v1alpha1.WaitingNode) bool { return w.Node == node })
	if i < 0 {
		return "The NodeGate's status.waiting does not name it (the list is bounded)."
	}
	w := &ng.Status.Waiting[i]
	words := []string{fmt.Sprintf("The NodeGate's status.waiting: since %s", w.Since.UTC().Format(time.RFC3339))}
	if w.Signal != "" {
		words = append(words, "for signal "+w.Signal)
	}
	return strings.Join(append(words, fmt.Sprintf("%s (%s)", w.Message, w.Reason)), ", ")
}
