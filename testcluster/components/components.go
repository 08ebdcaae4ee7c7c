// SPDX-License-Identifier: Apache-2.0

// Package components provides the programs of a control plane. It uses installed
// programs with a suitable version, and builds all others from their Go modules.
// It depends only on Go's standard library, so that the first program that runs
// on a fresh machine is compiled in seconds.
package components

import (
	"slices"
	"strings"
)

// A Component is one program.
type Component string

// The known components.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	Scheduler         Component = "kube-scheduler"
	ControllerManager Component = "kube-controller-manager"
	KWOK              Component = "kwok"
	Kubectl           Component = "kubectl"
)

// All returns all components: first those that run in a cluster, in the order
// in which they start, and then the client.
func All() []Component {
	return []Component{Etcd, APIServer, Scheduler, ControllerManager, KWOK, Kubectl}
}

// mainPackages are the packages that the components are built from.
var mainPackages = map[Component]string{
	Etcd:              "go.etcd.io/etcd/server/v3",
	APIServer:         "k8s.io/kubernetes/cmd/kube-apiserver",
	Scheduler:         "k8s.io/kubernetes/cmd/kube-scheduler",
	ControllerManager: "k8s.io/kubernetes/cmd/kube-controller-manager",
	KWOK:              "sigs.k8s.io/kwok/cmd/kwok",
	Kubectl:           "k8s.io/kubernetes/cmd/kubectl",
}

// ofKubernetes reports whether the component runs in the control plane and has
// the requested Kubernetes version. All others are the same for every version.
func (c Component) ofKubernetes() bool {
	return slices.Contains([]Component{APIServer, Scheduler, ControllerManager}, c)
}

// join returns the names as a human-readable list.
func join(components []Component) string {
	names := make([]string, len(components))
	for i, c := range components {
		names[i] = string(c)
	}
	return strings.Join(names, ", ")
}
