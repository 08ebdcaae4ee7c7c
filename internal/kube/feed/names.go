// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"github.com/nodegate/nodegate/internal/gate"
)

// Names of feeds. Each name begins with the resource.
const (
	nodesName    = "nodes"
	csiNodesName = "csinodes"
	rulesName    = "devicetaintrules"
)

func objectsName(of gate.ObjectSource) string { return "objects " + of.String() }

func slicesName(of SliceSource) string {
	if of.Shared {
		return "resourceslices of " + of.Driver + " that name no node"
	}
	return "resourceslices of " + of.Driver
}

// DaemonSetsName returns the name of the feed of a namespace's DaemonSets.
func DaemonSetsName(namespace string) string { return "daemonsets in " + namespace }

// PodsName returns the name of the feed of a query's pods.
func PodsName(q gate.PodQuery) string {
	name := "pods in " + q.Namespace + " (" + q.Selector + ")"
	if q.Annotation != "" {
		name += " with annotation " + q.Annotation
	}
	if q.Runs {
		name += " that run once"
	}
	return name
}

// SharedPodsName returns the name of the feed of all pods in a namespace.
func SharedPodsName(namespace string) string { return "pods in " + namespace }
