// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"strings"

	"github.com/nodegate/nodegate/internal/printer"
)

// Text returns the findings as human-readable text.
func (r *Report) Text() string {
	var b strings.Builder
	if len(r.Findings) == 0 {
		fmt.Fprintf(&b, "No findings for %s.\n", printer.Count(len(r.Gates), "gate"))
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s: %s: gate %s: %s\n", strings.ToLower(string(f.Severity)), f.ID, f.Gate, f.What)
		fmt.Fprintf(&b, "  why  %s\n  fix  %s\n", f.Why, f.Do)
	}
	if len(r.Gaps) > 0 {
		b.WriteByte('\n')
	}
	for _, g := range r.Gaps {
		fmt.Fprintf(&b, "Not checked: %s: %s; the following findings may be missing: %s.\n", g.What, g.Error, strings.Join(g.Hides, ", "))
	}
	return b.String()
}
