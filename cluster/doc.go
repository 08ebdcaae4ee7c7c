// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes control plane on one machine: etcd,
// kube-apiserver, kube-scheduler, kube-controller-manager, and KWOK, which
// plays the kubelets. Tests, the demo and people use it; it needs Go and
// nothing else: no container runtime, no image registry, no root.
//
//	c, err := cluster.Start(ctx, cluster.Options{Progress: os.Stderr})
//	if err != nil { ... }
//	defer c.Stop()
//	client, err := kubernetes.NewForConfig(c.Admin())
//
// The components are the upstream programs: those of the right version that are
// in $KUBEBUILDER_ASSETS or on the PATH, and otherwise ones that are built from
// their Go modules the first time they are needed (see package components).
//
// The security boundary is the real one: TLS everywhere, authorization mode
// Node,RBAC, the NodeRestriction admission plugin, ServiceAccounts with signed
// tokens. A [Cluster] hands out clients for any identity: see [Cluster.Admin],
// [Cluster.Node], [Cluster.User] and [Cluster.ServiceAccount].
//
// Everything listens on 127.0.0.1 only. Nothing is left running: when the
// process that called [Start] ends in whatever way, SIGKILL included, all
// components are killed with it.
//
// It is tested on Linux; nothing in it is particular to Linux, but it needs a
// Unix.
package cluster
