// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Report is what became of a release.
type Report struct {
	// DryRun is client or server where nothing was changed.
	DryRun DryRun `json:"dryRun,omitempty"`
	// Nodes are the nodes that something was, or would be, done about, by name.
	Nodes []Node `json:"nodes"`
	// Remarks are to be known of it.
	Remarks []string `json:"remarks,omitempty"`
}

// Node is what became of one node.
type Node struct {
	// Node is its name.
	Node string `json:"node"`
	// Gates are the gates that it has forgotten: their records and overrides are
	// gone.
	Gates []string `json:"gates,omitempty"`
	// Taints are those that were taken off, as kubectl writes them.
	Taints []string `json:"taints,omitempty"`
	// Kept are gates whose records are still there, because they cannot be read, and
	// a taint is there that may be theirs.
	Kept []string `json:"kept,omitempty"`
	// Error says why nothing of it was done.
	Error string `json:"error,omitempty"`
}

// Complete tells whether nothing is left of what was to go.
func (r *Report) Complete() bool {
	return !slices.ContainsFunc(r.Nodes, func(n Node) bool { return n.Error != "" || len(n.Kept) > 0 })
}

// released counts the nodes that have forgotten gates.
func (r *Report) released() int {
	released := 0
	for i := range r.Nodes {
		if len(r.Nodes[i].Gates) > 0 {
			released++
		}
	}
	return released
}

// Names are the nodes that have forgotten gates, a line for each, as kubectl names
// them.
func (r *Report) Names() string {
	var b strings.Builder
	for i := range r.Nodes {
		if len(r.Nodes[i].Gates) > 0 {
			fmt.Fprintf(&b, "node/%s\n", r.Nodes[i].Node)
		}
	}
	return b.String()
}

// Text is the report for people.
func (r *Report) Text() string {
	var b strings.Builder
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if len(n.Gates) > 0 {
			fmt.Fprintf(&b, "node/%s released from %s%s%s\n", n.Node, strings.Join(n.Gates, ", "), off(n.Taints), r.DryRun.Suffix())
		}
	}
	for i := range r.Nodes {
		switch n := &r.Nodes[i]; {
		case n.Error != "":
			fmt.Fprintf(&b, "node/%s not released: %s\n", n.Node, n.Error)
		case len(n.Kept) > 0:
			fmt.Fprintf(&b, "node/%s keeps what cannot be read and may tell of a taint that is there: see which is the gate's, take it off, and then the record: kubectl annotate node %s %s\n",
				n.Node, n.Node, annotations(n.Kept))
		}
	}
	if len(r.Nodes) == 0 {
		b.WriteString("No node has anything to be released from.\n")
	}
	for _, remark := range r.Remarks {
		fmt.Fprintf(&b, "Note: %s.\n", remark)
	}
	return b.String()
}

// annotations are gates' records, as kubectl annotate takes them off.
func annotations(gates []string) string {
	var all []string
	for _, name := range gates {
		all = append(all, v1alpha1.RecordAnnotationPrefix+name+"-")
	}
	return strings.Join(all, " ")
}

func off(taints []string) string {
	if len(taints) == 0 {
		return ""
	}
	return ": " + strings.Join(taints, ", ") + " taken off"
}

// Progress returns what draws a line of progress on a terminal, and nil for
// anything else.
func Progress(out io.Writer) func(done, of int) {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return func(done, of int) {
		end := ""
		if done == of {
			end = "\r\x1b[K" // the report says the rest
		}
		if done == of || done%10 == 0 {
			fmt.Fprintf(file, "\r%d of %d nodes%s", done, of, end)
		}
	}
}
