// SPDX-License-Identifier: Apache-2.0

package feed

import "github.com/nodegate/nodegate/internal/gate"

// notifier returns a function that reports a change of one aspect of a node to the
// handler.
func (f *Feed) notifier(a gate.Aspect) func(node string) {
	change := gate.ChangeOf(a)
	return func(node string) { f.handler.NodeChanged(node, change) }
}

// IgnoreNode is a callback for CSINodes, Pods and ResourceSlices that does nothing.
func IgnoreNode(string) {}
