// SPDX-License-Identifier: Apache-2.0

// Package testbed runs nodegate as its users do: a program of its own, installed
// in a cluster by what 'nodegate manifests' prints, under its own ServiceAccount
// and nothing else. The demo and the benchmarks stand on it.
package testbed
