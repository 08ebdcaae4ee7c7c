// SPDX-License-Identifier: Apache-2.0

// Package cli implements the verbs of 'kubectl gate', one file each. A verb reads
// what it needs once, with the caller's credentials, lets the production code
// decide, and stores the result in a type of its own. '-o json' prints this type;
// the human-readable text is derived from it alone.
package cli
