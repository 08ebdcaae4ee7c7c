// SPDX-License-Identifier: Apache-2.0

package feed

import "github.com/nodegate/nodegate/internal/gate"

// nodeChange is a change of a node.
type nodeChange struct {
	node   string
	change gate.Change
}

// IgnoreChange is a callback for Nodes that does nothing.
func IgnoreChange(string, gate.Change) {}

// everythingChanged returns changes of everything about nodes.
func everythingChanged(nodes []string) []nodeChange {
	all := make([]nodeChange, 0, len(nodes)+1)
	for _, name := range nodes {
		all = append(all, nodeChange{name, gate.Everything()})
	}
	return all
}

// IgnoreNode is a callback for CSINodes, Pods and ResourceSlices that does nothing.
func IgnoreNode(string) {}
