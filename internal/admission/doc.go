// SPDX-License-Identifier: Apache-2.0

// Package admission is what the API server does for nodegate: it closes gates
// at a node's birth (birth.yaml), and confines nodegate and everybody else to
// what is theirs (guards.yaml). Both are plain admission policies, which work
// whether nodegate runs or not.
//
// The package holds the policies' text, the parameters that the birth policy
// reads, and the proof that it is in force. It does no I/O.
package admission
