// SPDX-License-Identifier: Apache-2.0

// Package testcluster runs a real Kubernetes control plane on one machine: etcd,
// kube-apiserver, kube-scheduler, kube-controller-manager, and KWOK, which
// simulates the kubelets. It is used by tests, by the demo, and interactively. It
// needs only Go: no container runtime, no image registry, no root.
//
//	c, err := testcluster.Start(ctx, testcluster.Options{Progress: os.Stderr})
//	if err != nil { ... }
//	defer c.Stop()
//	client, err := kubernetes.NewForConfig(c.Admin())
//
// The components are the upstream programs. Programs of the right version in
// $KUBEBUILDER_ASSETS or on the PATH are used; all others are built from their Go
// modules when they are first needed (see package components).
//
// The security boundary is the real one: TLS everywhere, authorization mode
// Node,RBAC, the NodeRestriction admission plugin, ServiceAccounts with signed
// tokens. A [Cluster] returns clients for any identity: see [Cluster.Admin],
// [Cluster.Node], [Cluster.User] and [Cluster.ServiceAccount].
//
// Everything listens on 127.0.0.1 only. Nothing is left running: when the process
// that called [Start] ends, even by SIGKILL, all components are killed with it.
//
// It is tested on Linux. It should work on any Unix.
package testcluster
