// SPDX-License-Identifier: Apache-2.0

// Package components provides the programs of a control plane and of a node, and others that
// nodegate is tested beside. It uses installed programs with a suitable version, and builds
// all others from their Go modules. It depends only on Go's standard library, so that the
// first program that runs on a fresh machine is compiled in seconds.
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
	// Controllers is a program with a few of the controllers of kube-controller-manager, for
	// clusters that need no others. It takes far less time to compile.
	Controllers Component = "controllers"
	Kubectl     Component = "kubectl"
	// These run on a node.
	Kubelet        Component = "kubelet"
	Containerd     Component = "containerd"
	ContainerdShim Component = "containerd-shim-runc-v2"
	Ctr            Component = "ctr"
	// These run beside nodegate, and read or write the taints or conditions of nodes.
	Descheduler Component = "descheduler"
	Karpenter   Component = "karpenter"
	// ClusterAPI is the manager of its core provider.
	ClusterAPI Component = "cluster-api"
	// IstioUntaint is the part of istiod that removes a taint.
	IstioUntaint Component = "istio-untaint"
	// ArgoCD is the part of Argo CD that applies, compares and assesses objects.
	ArgoCD Component = "argocd"
	// Flux is the part of Flux that applies objects and finds drift.
	Flux Component = "flux"
	// CiliumOperator has the name of the release's program, because the program derives its user
	// agent and its defaults from its own name.
	CiliumOperator Component = "cilium-operator-generic"
)

// ControlPlane returns the components that run in a cluster, in the order in which
// they start, and then the client.
func ControlPlane() []Component {
	return []Component{Etcd, APIServer, Scheduler, ControllerManager, Controllers, KWOK, Kubectl}
}

// Node returns the components that run on a node. They also need runc and plugins of
// the Container Network Interface, which are installed.
func Node() []Component { return []Component{Kubelet, Containerd, ContainerdShim, Ctr} }

// neighbours returns the components that run beside nodegate in a cluster.
func neighbours() []Component {
	return []Component{Descheduler, Karpenter, ClusterAPI, IstioUntaint, ArgoCD, Flux, CiliumOperator}
}

// mainPackages are the packages that the components are built from.
var mainPackages = map[Component]string{
	Etcd:              "go.etcd.io/etcd/server/v3",
	APIServer:         "k8s.io/kubernetes/cmd/kube-apiserver",
	Scheduler:         "k8s.io/kubernetes/cmd/kube-scheduler",
	ControllerManager: "k8s.io/kubernetes/cmd/kube-controller-manager",
	KWOK:              "sigs.k8s.io/kwok/cmd/kwok",
	Controllers:       "nodegate.dev/cluster/kubernetes", // a main package of ours: see module.main
	Kubectl:           "k8s.io/kubernetes/cmd/kubectl",
	Kubelet:           "k8s.io/kubernetes/cmd/kubelet",
	Containerd:        "github.com/containerd/containerd/v2/cmd/containerd",
	ContainerdShim:    "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
	Ctr:               "github.com/containerd/containerd/v2/cmd/ctr",
	Descheduler:       "sigs.k8s.io/descheduler/cmd/descheduler",
	Karpenter:         "sigs.k8s.io/karpenter/kwok", // Karpenter with the provider of simulated nodes
	ClusterAPI:        "sigs.k8s.io/cluster-api/core",
	IstioUntaint:      "nodegate.dev/cluster/istio",
	ArgoCD:            "nodegate.dev/cluster/argocd",
	Flux:              "nodegate.dev/cluster/flux",
	CiliumOperator:    "github.com/cilium/cilium/operator",
}

// ownModules are the names of module files (see moduleFiles) by the components that are not
// built from a module of Kubernetes. Each has the versions of dependencies that its project
// releases it with, and so shares few compiled packages with nodegate.
var ownModules = map[Component]string{
	Containerd:     containerdFile,
	ContainerdShim: containerdFile,
	Ctr:            containerdFile,
	Descheduler:    "descheduler-0.36",
	Karpenter:      "karpenter-1.15",
	ClusterAPI:     "cluster-api-1.14",
	IstioUntaint:   "istio-0.0",
	ArgoCD:         "argocd-3.6",
	Flux:           "flux-0.76",
	CiliumOperator: "cilium-1.20",
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
