// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

const programsPreface = `<!-- Written by 'make generate' from the programs. -->

# nodegate and the node agent

This page contains the output of ` + "`--help`" + `. [Installing](../install.md#flags-and-values) lists the chart's value for each
flag. For ` + "`nodegate convert`, `nodegate release` and `nodegate uninstall`" + `, see [kubectl gate](kubectl-gate.md), which has the same
commands with all flags of kubectl. ` + "`nodegate release`" + ` requires ` + "`--all`" + ` or the names of nodes. These commands exit with 1 on
every failure.

Logs are JSON, one object per line, or text with ` + "`--development`" + `. There are no levels of verbosity: every opening and closing of
a gate is logged once.

`

// usageOf is the first line of the flag package's help, with the path of a temporary file.
var usageOf = regexp.MustCompile(`^Usage of .*:`)

// programs are the commands whose help is written.
var programs = [][]string{
	{"nodegate", "controller"},
	{"nodegate", "manifests"},
	{"nodegate", "webhook-certificate"},
	{"nodegate", "copy"},
	{"nodegate-agent"},
}

// writePrograms writes the reference of the programs in ./cmd that run in a cluster. It
// runs them, because their flags are in packages that cannot be imported.
func writePrograms(path string) error {
	var out bytes.Buffer
	out.WriteString(programsPreface)
	for _, command := range programs {
		name := strings.Join(command, " ")
		args := append([]string{"run", "./cmd/" + command[0]}, append(command[1:], "--help")...)
		help, err := exec.Command("go", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("reading the help of %s: %w: %s", name, err, help)
		}
		help = usageOf.ReplaceAll(help, []byte("Usage of "+name+":"))
		fmt.Fprintf(&out, "## %s\n\n```\n%s```\n\n", name, help)
	}
	return os.WriteFile(path, bytes.TrimSuffix(out.Bytes(), []byte("\n")), 0o644)
}
