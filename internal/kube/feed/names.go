// SPDX-License-Identifier: Apache-2.0

package feed

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/internal/gate"
)

// Names of feeds. Each name begins with the resource.
const (
	nodesName    = "nodes"
	csiNodesName = "csinodes"
	rulesName    = "devicetaintrules"
	// sharedDaemonSetsName is the name of the feed of all DaemonSets.
	sharedDaemonSetsName = "daemonsets"
)

func objectsName(of gate.ObjectSource) string { return "objects " + of.String() }

func slicesName(of SliceSource) string {
	name := "resourceslices"
	if of.Driver != "" {
		name += " of " + of.Driver
	}
	if of.Shared {
		name += " that name no node"
	}
	return name
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

// SharedPodsName returns the name of the feed of all pods in a namespace, or in all
// namespaces.
func SharedPodsName(namespace string) string {
	if namespace == metav1.NamespaceAll {
		return "pods"
	}
	return "pods in " + namespace
}
