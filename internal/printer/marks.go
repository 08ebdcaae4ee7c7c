// SPDX-License-Identifier: Apache-2.0

package printer

import "github.com/nodegate/nodegate/internal/gate"

// Marks maps the state of a signal to a symbol.
type Marks map[string]string

var (
	// UnicodeMarks are for terminals.
	UnicodeMarks = Marks{gate.Holds.String(): "✓", gate.NotYet.String(): "✗", gate.Unknown.String(): "?"}
	// ASCIIMarks are for pipes and files.
	ASCIIMarks = Marks{gate.Holds.String(): "+", gate.NotYet.String(): "-", gate.Unknown.String(): "?"}
)
