// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Shell completion with names from the cluster. kubectl runs the program
// kubectl_complete-gate for it, which is this program under another name.

// completer is the name under which the program completes command lines.
const completer = "kubectl_complete-gate"

// completionTimeout is the timeout for completing an argument.
const completionTimeout = 3 * time.Second

// Arguments returns the arguments for Execute, given the command line of a process.
// If the process was started as kubectl_complete-gate, the arguments make Execute
// complete the command line.
func Arguments(process []string) []string {
	name, args := strings.TrimSuffix(filepath.Base(process[0]), ".exe"), process[1:]
	if name != completer {
		return args
	}
	return append([]string{cobra.ShellCompRequestCmd}, args...)
}

// nodeNames completes node names, as NAME or TYPE/NAME, without those that are already arguments. oneNode
// completes the first argument only.
func (c *connection) nodeNames(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return complete(cmd, args, begun, nodeTypes, func(ctx context.Context) ([]string, error) {
		reader, err := c.reader()
		if err != nil {
			return nil, err
		}
		return reader.NodeNames(ctx)
	})
}

func (c *connection) oneNode(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.nodeNames(cmd, args, begun)
}

// gateNames completes names of NodeGates, as NAME or TYPE/NAME, without those that are already
// arguments.
func (c *connection) gateNames(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return complete(cmd, args, begun, gateTypes, c.readGateNames)
}

// gateName completes the name of a NodeGate as the value of a flag.
func (c *connection) gateName(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return complete(cmd, nil, begun, nil, c.readGateNames)
}

func (c *connection) readGateNames(ctx context.Context) ([]string, error) {
	reader, err := c.reader()
	if err != nil {
		return nil, err
	}
	declared, err := reader.Gates(ctx)
	return namesOf(declared), err
}

// complete returns the names with the given prefix, which may begin with one of the types and a slash, or
// none if they cannot be read.
func complete(cmd *cobra.Command, args []string, begun string, types []string, read func(context.Context) ([]string, error)) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	names, err := read(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveError
	}
	kind, name, typed := strings.Cut(begun, "/")
	if typed = typed && slices.Contains(types, kind); typed {
		begun = name
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, begun) || slices.ContainsFunc(args, func(arg string) bool { return arg == name || strings.HasSuffix(arg, "/"+name) })
	})
	if typed {
		for i := range names {
			names[i] = kind + "/" + names[i]
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeFlags registers completion for the values of the flags that verbs have in
// common.
func (c *connection) completeFlags(verb *cobra.Command) {
	for name, complete := range map[string]cobra.CompletionFunc{
		"gate":    c.gateName,
		"dry-run": cobra.FixedCompletions([]string{dryRunNone, dryRunClient, dryRunServer}, cobra.ShellCompDirectiveNoFileComp),
	} {
		if verb.Flags().Lookup(name) != nil {
			_ = verb.RegisterFlagCompletionFunc(name, complete) // fails only if the flag does not exist or already has a completion
		}
	}
	if flag := verb.Flags().Lookup("output"); flag != nil {
		_ = verb.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(flag.Annotations[formatsAnnotation], cobra.ShellCompDirectiveNoFileComp))
	}
}
