// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Table is text in columns that are as wide as their content.
type Table struct{ writer *tabwriter.Writer }

// NewTable starts a table with headers after an empty line.
func NewTable(b *strings.Builder, headers ...string) Table {
	b.WriteByte('\n')
	t := NewRows(b)
	t.Add(headers...)
	return t
}

// NewRows starts a table without headers.
func NewRows(b *strings.Builder) Table { return Table{tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)} }

// Add adds a row.
func (t Table) Add(cells ...string) { fmt.Fprintln(t.writer, strings.Join(cells, "\t")) }

// Row adds an indented row with a label and a text.
func (t Table) Row(label, text string) { t.Add("  "+label, text) }

// Flush ends the table.
func (t Table) Flush() { _ = t.writer.Flush() } // writing to a strings.Builder does not fail
