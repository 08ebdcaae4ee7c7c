// SPDX-License-Identifier: Apache-2.0

// Package neighbours tests nodegate beside other programs that read or write the taints or
// conditions of nodes. Their real code is built from their Go modules, or given as a program (-medik8s),
// and runs on a real control plane under a ServiceAccount of its own. Nodes and pods are simulated by KWOK.
package neighbours
