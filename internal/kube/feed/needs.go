// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"github.com/nodegate/nodegate/internal/gate"
)

// Needs is gate.Needs without duplicates.
type Needs struct {
	Namespaces map[string]bool
	Queries    map[gate.PodQuery]bool
	CSINodes   bool
	Drivers    map[string]bool
	Objects    map[gate.ObjectQuery]bool
}

// NewNeeds returns n without duplicates.
func NewNeeds(n gate.Needs) *Needs {
	out := &Needs{Namespaces: make(map[string]bool), Queries: make(map[gate.PodQuery]bool), CSINodes: n.CSINodes, Drivers: make(map[string]bool), Objects: make(map[gate.ObjectQuery]bool)}
	for _, query := range n.Objects {
		out.Objects[query] = true
	}
	for _, driver := range n.ResourceSlices {
		out.Drivers[driver] = true
	}
	for _, namespace := range n.DaemonSetNamespaces {
		out.Namespaces[namespace] = true
	}
	for _, query := range n.Pods {
		out.Queries[query] = true
	}
	return out
}
