// SPDX-License-Identifier: Apache-2.0

package nodestore

import "github.com/nodegate/nodegate/internal/gate"

// nodeChange is a change of a node.
type nodeChange struct {
	node   string
	change gate.Change
}

// everythingChanged returns changes of everything about nodes.
func everythingChanged(nodes []string) []nodeChange {
	all := make([]nodeChange, 0, len(nodes)+1)
	for _, name := range nodes {
		all = append(all, nodeChange{name, gate.Everything()})
	}
	return all
}
