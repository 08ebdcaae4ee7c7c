// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
)

// noSuchGate says that there is no such gate, and what may have been meant.
func noSuchGate(name string, names []string) error {
	if alike := similar(name, names); len(alike) > 0 {
		return fmt.Errorf("there is no gate %q; did you mean %s?", name, strings.Join(alike, " or "))
	}
	return fmt.Errorf("there is no gate %q", name)
}
