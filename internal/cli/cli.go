// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nodegate/nodegate/internal/convert"
	"github.com/nodegate/nodegate/internal/printer"
	"github.com/nodegate/nodegate/internal/version"
)

// Exit statuses. A verb that answers a yes-or-no question uses the first two for
// the answer.
const (
	exitYes   = 0
	exitNo    = 1
	exitError = 2
)

// errNo is returned by a verb that has printed a negative answer. The process then
// exits with exitNo and prints no error.
var errNo = errors.New("the answer is no")

// Execute runs 'kubectl gate' with these arguments and returns its exit status.
func Execute(ctx context.Context, streams genericiooptions.IOStreams, args []string) int {
	return execute(ctx, newConnection(streams), args)
}

func execute(ctx context.Context, c *connection, args []string) int {
	// An interrupted request returns the cause of the context's end. That of a signal need not be
	// context.Canceled.
	interrupted := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(interrupted))
	defer cancel()
	defer context.AfterFunc(interrupted, cancel)()
	defer c.printClusterFlags()
	root := newRoot(c)
	root.SetArgs(args)
	switch err := root.ExecuteContext(ctx); {
	case err == nil:
		return exitYes
	case errors.Is(err, errNo):
		return exitNo
	default:
		fmt.Fprintln(c.streams.ErrOut, "error:", printer.OneLine(err))
		return exitError
	}
}

// Command returns the 'kubectl gate' command for its documentation: it does not
// depend on the user or the machine.
func Command() *cobra.Command {
	root := newRoot(newConnection(genericiooptions.NewTestIOStreamsDiscard()))
	root.PersistentFlags().Lookup("cache-dir").DefValue = "$HOME/.kube/cache"
	return root
}

func newRoot(c *connection) *cobra.Command {
	root := &cobra.Command{
		Use:         "kubectl-gate",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl gate"},
		Short:       "Show the state of gates on nodes and the reasons for it",
		Version:     version.Get(),
		// Errors are printed as one line. The usage is available with --help.
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(c.streams.In)
	root.SetOut(c.streams.Out)
	root.SetErr(c.streams.ErrOut)
	c.addConnectionFlags(root.PersistentFlags())
	c.addVerbs(root)
	return root
}

// Groups of verbs, in the order of the help text.
const (
	groupInspect = "inspect"
	groupChange  = "change"
	groupPlan    = "plan"
)

// addVerbs adds the verbs. Within a group, they are in alphabetical order, as in the help
// text.
func (c *connection) addVerbs(root *cobra.Command) {
	for _, group := range []struct {
		id, title string
		verbs     []*cobra.Command
	}{
		{groupInspect, "Inspect nodes and gates:", []*cobra.Command{
			newReport(c),
			newStatus(c),
			newTimeline(c),
			newWait(c),
			newWhy(c),
		}},
		{groupChange, "Change nodes and DaemonSets (requires permission to patch them):", []*cobra.Command{
			newClose(c),
			newOpen(c),
			newRelease(c),
			newReset(c),
			newTolerate(c),
			newUninstall(c),
		}},
		{groupPlan, "Plan and check gates:", []*cobra.Command{
			convert.NewCommand("kubectl gate"),
			newLint(c),
			newPreview(c),
			newSuggest(c),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, verb := range group.verbs {
			verb.GroupID = group.id
			c.completeFlags(verb)
			root.AddCommand(verb)
		}
	}
}

// rejectArguments returns an error for arguments of a verb that takes none.
func rejectArguments(cmd *cobra.Command, args []string) error {
	return fmt.Errorf("%s takes no arguments, got %d", cmd.CommandPath(), len(args))
}

// oneNodeArgument accepts exactly one node name, and a known output format. others are the arguments
// that the command accepts instead, for the error.
func oneNodeArgument(o *output, others string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes exactly one node name%s, got %d", cmd.CommandPath(), others, len(args))
		}
		return o.check()
	}
}
