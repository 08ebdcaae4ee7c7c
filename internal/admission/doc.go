// SPDX-License-Identifier: Apache-2.0

// Package admission contains the admission policies that the API server evaluates
// for nodegate, even while nodegate is not running: the birth policy closes gates
// on new nodes (birth.yaml), the tolerations policy adds tolerations to the DaemonSets
// that gates wait for (tolerations.yaml), and the guards restrict what nodegate and
// other users may write (guards.yaml).
//
// The package also contains the parameters that the first two policies read, and the
// probes that prove that the policies are in force.
package admission
