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
	"github.com/nodegate/nodegate/internal/gate"
)

// Report is the result of a release.
type Report struct {
	// DryRun is client or server if nothing was persisted.
	DryRun DryRun `json:"dryRun,omitempty"`
	// Nodes are the nodes that were changed, would be changed or could not be changed,
	// sorted by name.
	Nodes []Node `json:"nodes"`
	// Remarks are notes about the release.
	Remarks []string `json:"remarks,omitempty"`
	// Unknown are the named gates that are unknown. Programs warn about them.
	Unknown []UnknownGate `json:"-"`
}

// Node is the result for one node.
type Node struct {
	// Node is the name of the node.
	Node string `json:"node"`
	// Gates are the gates whose records and overrides were removed.
	Gates []string `json:"gates,omitempty"`
	// Taints are the removed taints, in kubectl's form.
	Taints []string `json:"taints,omitempty"`
	// Kept are the gates whose records were not removed, because they are unreadable and
	// a taint on the node may belong to them.
	Kept []string `json:"kept,omitempty"`
	// Error is the reason why nothing was removed or, if there are Gates, why their conditions
	// were not removed.
	Error string `json:"error,omitempty"`
}

// Complete reports whether everything requested was removed.
func (r *Report) Complete() bool {
	return !slices.ContainsFunc(r.Nodes, func(n Node) bool { return n.Error != "" || len(n.Kept) > 0 })
}

// released returns the number of nodes from which gates were removed.
func (r *Report) released() int {
	released := 0
	for i := range r.Nodes {
		if len(r.Nodes[i].Gates) > 0 {
			released++
		}
	}
	return released
}

// Names returns the nodes from which gates were removed, one per line, in kubectl's form.
func (r *Report) Names() string {
	var b strings.Builder
	for i := range r.Nodes {
		if len(r.Nodes[i].Gates) > 0 {
			fmt.Fprintf(&b, "node/%s\n", r.Nodes[i].Node)
		}
	}
	return b.String()
}

// Text returns the report as human-readable text. Each result is one line, in which
// characters that are not printable are escaped.
func (r *Report) Text() string {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(gate.Printable(fmt.Sprintf(format, args...)) + "\n")
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if len(n.Gates) > 0 {
			line("node/%s released from %s%s%s", n.Node, strings.Join(n.Gates, ", "), removed(n.Taints), r.DryRun.Suffix())
		}
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		switch {
		case n.Error != "" && len(n.Gates) > 0:
			line("node/%s not completely released: %s", n.Node, n.Error)
		case n.Error != "":
			line("node/%s not released: %s", n.Node, n.Error)
		}
		if len(n.Kept) > 0 {
			line("node/%s still has an unreadable record and a taint that may belong to it: determine the gate's taint, remove it, and then remove the record: kubectl annotate node %s %s",
				n.Node, n.Node, annotations(n.Kept))
		}
	}
	if len(r.Nodes) == 0 {
		line("No node has anything to release.")
	}
	for _, remark := range r.Remarks {
		line("Note: %s.", remark)
	}
	return b.String()
}

// annotations returns the arguments with which kubectl annotate removes gates' records.
func annotations(gates []string) string {
	var all []string
	for _, name := range gates {
		all = append(all, v1alpha1.RecordAnnotationPrefix+name+"-")
	}
	return strings.Join(all, " ")
}

func removed(taints []string) string {
	switch len(taints) {
	case 0:
		return ""
	case 1:
		return ": taint " + taints[0] + " removed"
	}
	return ": taints " + strings.Join(taints, ", ") + " removed"
}

// Progress returns a function that shows progress in one line of a terminal. It returns
// nil if out is not a terminal.
func Progress(out io.Writer) func(done, of int) {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return progressLine(file)
}

// progressLine returns a function that shows progress in one line of a terminal, and clears the line
// at the end.
func progressLine(terminal io.Writer) func(done, of int) {
	return func(done, of int) {
		switch {
		case done == of:
			fmt.Fprint(terminal, "\r\x1b[K") // the report follows
		case done%10 == 0:
			fmt.Fprintf(terminal, "\r%d of %d nodes", done, of)
		}
	}
}
