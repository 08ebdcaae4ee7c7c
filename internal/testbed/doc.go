// SPDX-License-Identifier: Apache-2.0

// Package testbed runs nodegate as its users do: as a separate program, installed
// with the output of 'nodegate manifests', and with only the permissions of its
// own ServiceAccount. The demo, the judge's
// scenario, the torture campaign and the benchmarks use it.
package testbed
