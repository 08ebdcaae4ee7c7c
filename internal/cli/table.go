// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// table is text in columns that are as wide as their content.
type table struct{ *tabwriter.Writer }

// newTable starts a table with headers after an empty line.
func newTable(b *strings.Builder, headers ...string) table {
	b.WriteByte('\n')
	t := newRows(b)
	t.add(headers...)
	return t
}

// newRows starts a table without headers.
func newRows(b *strings.Builder) table { return table{tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)} }

func (t table) add(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")) }

// row adds an indented row with a label and a text.
func (t table) row(label, text string) { t.add("  "+label, text) }

func (t table) flush() { _ = t.Flush() } // writing to a strings.Builder does not fail
