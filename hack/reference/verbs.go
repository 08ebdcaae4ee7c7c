// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

const verbsPreface = `<!-- Written by 'make generate' from the commands. -->

# kubectl gate

This page contains the output of ` + "`--help`" + `. For installation, exit statuses and required permissions, see
[kubectl gate](../kubectl-gate.md).

`

// writeVerbs writes the reference of a program and its verbs, group by group.
func writeVerbs(root *cobra.Command) []byte {
	var out bytes.Buffer
	out.WriteString(verbsPreface)
	for _, group := range root.Groups() {
		fmt.Fprintf(&out, "%s\n\n| | |\n| --- | --- |\n", group.Title)
		for _, verb := range root.Commands() {
			if verb.GroupID == group.ID {
				fmt.Fprintf(&out, "| [`%s`](#%s) | %s |\n", verb.Name(), anchor(verb), verb.Short)
			}
		}
		out.WriteByte('\n')
	}
	for _, group := range root.Groups() {
		for _, verb := range root.Commands() {
			if verb.GroupID == group.ID {
				writeVerb(&out, verb, "##")
			}
		}
	}
	out.WriteString("## Flags of all verbs\n\n")
	writeFlags(&out, root.PersistentFlags().FlagUsages())
	return out.Bytes()
}

// anchor returns the anchor that GitHub generates for a verb's heading.
func anchor(verb *cobra.Command) string { return strings.ReplaceAll(verb.CommandPath(), " ", "-") }

func writeVerb(out io.Writer, verb *cobra.Command, heading string) {
	fmt.Fprintf(out, "%s %s\n\n%s\n\n", heading, verb.CommandPath(), escapeProse(longOf(verb)))
	if verb.Runnable() {
		fmt.Fprintf(out, "```\n%s\n```\n\n", verb.UseLine())
	}
	if verb.Example != "" {
		fmt.Fprintf(out, "```sh\n%s\n```\n\n", unindent(verb.Example))
	}
	if flags := verb.NonInheritedFlags(); flags.HasAvailableFlags() {
		writeFlags(out, flags.FlagUsages())
	}
	for _, sub := range verb.Commands() {
		if sub.IsAvailableCommand() {
			writeVerb(out, sub, heading+"#")
		}
	}
}

func longOf(verb *cobra.Command) string {
	if verb.Long != "" {
		return verb.Long
	}
	return verb.Short + "."
}

func writeFlags(out io.Writer, usages string) { fmt.Fprintf(out, "```\n%s```\n\n", usages) }

// escapeProse escapes a text, so that Markdown renders it literally.
func escapeProse(text string) string {
	return strings.NewReplacer("<", `\<`, "*", `\*`).Replace(text)
}

func unindent(example string) string {
	lines := strings.Split(example, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}
