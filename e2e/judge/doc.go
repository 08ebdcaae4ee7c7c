// SPDX-License-Identifier: Apache-2.0

// Package judge checks, from the API server's own data, whether nodegate kept its
// guarantees in a run. Every revision of the run and the requests that wrote them
// (package recording) are one history (package revisions), in which it checks each write
// of a Node against the facts that were committed before it.
//
// It shares no code with the core, the signals or the controller, so it does not
// repeat their mistakes. README.md defines the rules, and docs/reliability.md lists what is
// not judged.
package judge
