// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/convert"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/read"
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
	root := newRoot(streams)
	root.SetArgs(args)
	switch err := root.ExecuteContext(ctx); {
	case err == nil:
		return exitYes
	case errors.Is(err, errNo):
		return exitNo
	default:
		fmt.Fprintln(streams.ErrOut, "error:", oneLine(err))
		return exitError
	}
}

// Command returns the 'kubectl gate' command for its documentation: it does not
// depend on the user or the machine.
func Command() *cobra.Command {
	root := newRoot(genericiooptions.NewTestIOStreamsDiscard())
	root.PersistentFlags().Lookup("cache-dir").DefValue = "$HOME/.kube/cache"
	return root
}

// connection holds the flags that select the API server and the credentials.
type connection struct {
	*genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams
}

func newRoot(streams genericiooptions.IOStreams) *cobra.Command {
	c := &connection{genericclioptions.NewConfigFlags(true), streams}
	root := &cobra.Command{
		Use:         "kubectl-gate",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl gate"},
		Short:       "Show the state of gates on nodes and the reasons for it",
		Version:     version(),
		// Errors are printed as one line. The usage is available with --help.
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	c.AddFlags(root.PersistentFlags())
	root.PersistentFlags().Lookup("namespace").Usage = "The namespace in which nodegate is installed (default " + v1alpha1.DefaultNamespace + ")"
	c.addVerbs(root)
	return root
}

// Groups of verbs, in the order of the help text.
const (
	groupInspect = "inspect"
	groupChange  = "change"
	groupPlan    = "plan"
)

// addVerbs adds the verbs. Each is in a file of its name. Within a group, they are
// in alphabetical order, as in the help text.
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
		{groupChange, "Change nodes (requires permission to patch nodes):", []*cobra.Command{
			newClose(c),
			newOpen(c),
			newRelease(c),
			newReset(c),
			newUninstall(c),
		}},
		{groupPlan, "Plan and check gates:", []*cobra.Command{
			convert.NewCommand("kubectl gate"),
			newLint(c),
			newPreview(c),
		}},
	} {
		if len(group.verbs) == 0 {
			continue
		}
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, verb := range group.verbs {
			verb.GroupID = group.id
			c.completeFlags(verb)
			root.AddCommand(verb)
		}
	}
}

// requestTimeout is the timeout of a single request if --request-timeout does not
// specify one.
const requestTimeout = 15 * time.Second

// fallbackHost is the API server that client-go uses if none is configured.
const fallbackHost = "http://localhost:8080"

// config returns the client configuration for the cluster that the flags specify.
func (c *connection) config() (*rest.Config, error) {
	config, err := c.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if raw, err := c.ToRawKubeConfigLoader().RawConfig(); config.Host == fallbackHost && *c.APIServer == "" && err == nil && len(raw.Clusters) == 0 {
		return nil, errors.New("no cluster is configured: no kubeconfig was found; set --kubeconfig or the environment variable KUBECONFIG")
	}
	if config.Timeout == 0 {
		config.Timeout = requestTimeout
	}
	config.WarningHandler = rest.NoWarnings{}
	return config, nil
}

// reader returns a reader for the cluster that the flags specify.
func (c *connection) reader() (*read.Reader, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	return read.NewReader(config)
}

// installNamespace returns the namespace in which nodegate is installed: that of
// --namespace or the default. The kubeconfig's namespace is not used, because it is
// unrelated to nodegate.
func (c *connection) installNamespace() string {
	return cmp.Or(*c.Namespace, v1alpha1.DefaultNamespace)
}

// rejectArguments returns an error for arguments of a verb that takes none.
func rejectArguments(cmd *cobra.Command, args []string) error {
	return fmt.Errorf("%s takes no arguments, got %d", cmd.CommandPath(), len(args))
}

// describeRequestError adds to the error of a request that the request was
// interrupted or that the API server could not be reached. It returns any other error
// unchanged.
func describeRequestError(err error) error {
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted: %w", err)
	case errors.As(err, &network):
		return fmt.Errorf("cannot reach the API server: %w", err)
	}
	return err
}

// similar returns up to three names that resemble name, by cobra's measure of
// similarity.
func similar(name string, names []string) []string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, n := range names {
		all.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	found := all.SuggestionsFor(name)
	return found[:min(len(found), 3)]
}

// didYouMean returns a suffix for an error message that suggests similar names, or "".
func didYouMean(name string, names []string) string {
	if alike := similar(name, names); len(alike) > 0 {
		return "; did you mean " + enumerate(alike, "or") + "?"
	}
	return ""
}

// oneNodeArgument accepts exactly one node name, and a known output format.
func oneNodeArgument(o *output) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes exactly one node name, got %d", cmd.CommandPath(), len(args))
		}
		return o.check()
	}
}

// oneLine returns the message of an error as one line, also for joined errors.
func oneLine(err error) string {
	text := ""
	for line := range strings.Lines(err.Error()) {
		line = strings.Join(strings.Fields(line), " ")
		switch {
		case text == "", line == "":
		case strings.HasSuffix(text, ":"), strings.HasSuffix(text, "?"):
			text += " "
		default:
			text += "; "
		}
		text += line
	}
	return gate.Printable(text)
}

// version returns the version of the main module from the build information.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(unknown version)"
	}
	return info.Main.Version
}
