// SPDX-License-Identifier: Apache-2.0

// Package printer formats what kubectl gate prints: JSON and YAML, tables, marks, lists
// and times. It writes only to strings, and escapes characters that could control a
// terminal.
package printer
