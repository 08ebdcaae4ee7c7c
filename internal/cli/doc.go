// SPDX-License-Identifier: Apache-2.0

// Package cli holds the verbs of 'kubectl gate', one file each. A verb reads what
// it needs with the rights of whoever asks, once, has the production code decide,
// and puts what came of it into a type of its own, which is what '-o json' prints;
// the text for people is made of that, and of nothing else.
package cli
