// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Completion of what is typed, by what is in the cluster. kubectl asks for it the
// program kubectl_complete-gate, which is this one under another name.

// completer is that name.
const completer = "kubectl_complete-gate"

// completesWithin is how long one who has pressed Tab waits.
const completesWithin = 3 * time.Second

// Arguments returns the arguments of a process for Execute, given its name and
// what follows it. Called as kubectl_complete-gate, it is to complete them.
func Arguments(process []string) []string {
	name, args := strings.TrimSuffix(filepath.Base(process[0]), ".exe"), process[1:]
	if name != completer {
		return args
	}
	return append([]string{cobra.ShellCompRequestCmd}, args...)
}

// nodeNames completes the name of a node that is not there yet, and oneNode the
// first alone.
func (c *connection) nodeNames(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c.complete(cmd, args, begun, func(ctx context.Context) ([]string, error) {
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

// gateNames completes the name of a NodeGate that is not there yet.
func (c *connection) gateNames(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c.complete(cmd, args, begun, func(ctx context.Context) ([]string, error) {
		reader, err := c.reader()
		if err != nil {
			return nil, err
		}
		declared, err := reader.Gates(ctx)
		return namesOf(declared), err
	})
}

// gateName completes the value of a flag.
func (c *connection) gateName(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c.gateNames(cmd, nil, begun)
}

// complete offers names that begin so. Whoever cannot be told is offered none.
func (c *connection) complete(cmd *cobra.Command, args []string, begun string, read func(context.Context) ([]string, error)) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completesWithin)
	defer cancel()
	names, err := read(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveError
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, begun) || slices.Contains(args, name)
	}), cobra.ShellCompDirectiveNoFileComp
}

// namesOf returns the gates' names.
func namesOf(declared []v1alpha1.NodeGate) []string {
	names := make([]string, 0, len(declared))
	for i := range declared {
		names = append(names, declared[i].Name)
	}
	return names
}

// completeFlags completes the values of a verb's flags, wherever they have the
// usual names.
func (c *connection) completeFlags(verb *cobra.Command) {
	for name, complete := range map[string]cobra.CompletionFunc{
		"gate":    c.gateName,
		"dry-run": cobra.FixedCompletions([]string{dryRunNone, dryRunClient, dryRunServer}, cobra.ShellCompDirectiveNoFileComp),
	} {
		if verb.Flags().Lookup(name) != nil {
			_ = verb.RegisterFlagCompletionFunc(name, complete) // the flag is there, and is completed by nothing else
		}
	}
	if flag := verb.Flags().Lookup("output"); flag != nil {
		_ = verb.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(flag.Annotations[formatsAnnotation], cobra.ShellCompDirectiveNoFileComp))
	}
}
