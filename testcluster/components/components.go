// SPDX-License-Identifier: Apache-2.0

// Package components provides the programs of a control plane and of a node. It uses
// installed programs with a suitable version, and builds all others from their Go
// modules. It depends only on Go's standard library, so that the first program that runs
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
	// These run on a node.
	Kubelet        Component = "kubelet"
	Containerd     Component = "containerd"
	ContainerdShim Component = "containerd-shim-runc-v2"
	Ctr            Component = "ctr"
)

// ControlPlane returns the components that run in a cluster, in the order in which
// they start, and then the client.
func ControlPlane() []Component {
	return []Component{Etcd, APIServer, Scheduler, ControllerManager, KWOK, Kubectl}
}

// Node returns the components that run on a node. They also need runc and plugins of
// the Container Network Interface, which are installed.
func Node() []Component { return []Component{Kubelet, Containerd, ContainerdShim, Ctr} }

// mainPackages are the packages that the components are built from.
var mainPackages = map[Component]string{
	Etcd:              "go.etcd.io/etcd/server/v3",
	APIServer:         "k8s.io/kubernetes/cmd/kube-apiserver",
	Scheduler:         "k8s.io/kubernetes/cmd/kube-scheduler",
	ControllerManager: "k8s.io/kubernetes/cmd/kube-controller-manager",
	KWOK:              "sigs.k8s.io/kwok/cmd/kwok",
	Kubectl:           "k8s.io/kubernetes/cmd/kubectl",
	Kubelet:           "k8s.io/kubernetes/cmd/kubelet",
	Containerd:        "github.com/containerd/containerd/v2/cmd/containerd",
	ContainerdShim:    "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
	Ctr:               "github.com/containerd/containerd/v2/cmd/ctr",
}

// ofKubernetes reports whether the component runs in the control plane and has
// the requested Kubernetes version. All others are the same for every version.
func (c Component) ofKubernetes() bool {
	return slices.Contains([]Component{APIServer, Scheduler, ControllerManager}, c)
}

// ofContainerd reports whether the component is built from containerd's module.
func (c Component) ofContainerd() bool {
	return slices.Contains([]Component{Containerd, ContainerdShim, Ctr}, c)
}

// join returns the names as a human-readable list.
func join(components []Component) string {
	names := make([]string, len(components))
	for i, c := range components {
		names[i] = string(c)
	}
	return strings.Join(names, ", ")
}
