// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// table is text in columns, which are as wide as what is in them.
type table struct{ *tabwriter.Writer }

// newTable begins a table with headers, after an empty line.
func newTable(b *strings.Builder, headers ...string) table {
	b.WriteByte('\n')
	t := newRows(b)
	t.add(headers...)
	return t
}

// newRows begins a table without headers.
func newRows(b *strings.Builder) table { return table{tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)} }

func (t table) add(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")) }

// row adds a label and what there is to say, beneath a line that is not of the table.
func (t table) row(label, text string) { t.add("  "+label, text) }

func (t table) flush() { _ = t.Flush() } // a strings.Builder takes everything
