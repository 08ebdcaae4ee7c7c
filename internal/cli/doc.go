// SPDX-License-Identifier: Apache-2.0

// Package cli implements the verbs of 'kubectl gate'. A verb reads what it needs once,
// with the caller's credentials, and passes it to the package that decides and returns a
// result. '-o json' prints the result; the human-readable text is derived from it alone.
//
// A new verb is a file of its name here, which contains its flags, help, reads and exit
// status, and an entry in addVerbs. What it computes and prints is a package without I/O,
// such as internal/explain for why. Files of other names contain what verbs share: flags
// (output, files, dryrun), reads (snapshot, gates, nodes, leader), streams (terminal,
// commands), and manual overrides (override, overrideplan), which open, close and reset
// have in common.
package cli
