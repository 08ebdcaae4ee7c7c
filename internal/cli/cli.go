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
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/convert"
	"github.com/nodegate/nodegate/internal/gate"
)

// Exit statuses. A verb that answers a question says by the first two what the
// answer is.
const (
	exitYes   = 0
	exitNo    = 1
	exitError = 2
)

// errNo has a verb that has said all there is to say end with exitNo.
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

// Command returns 'kubectl gate' as it is documented: nothing of it depends on who
// runs it, or where.
func Command() *cobra.Command {
	root := newRoot(genericiooptions.NewTestIOStreamsDiscard())
	root.PersistentFlags().Lookup("cache-dir").DefValue = "$HOME/.kube/cache"
	return root
}

// connection is where the API server is, and who asks.
type connection struct {
	*genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams
}

func newRoot(streams genericiooptions.IOStreams) *cobra.Command {
	c := &connection{genericclioptions.NewConfigFlags(true), streams}
	root := &cobra.Command{
		Use:         "kubectl-gate",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl gate"},
		Short:       "See how gates stand on nodes, and why",
		Version:     version(),
		// One clear line for an error; the usage is there with --help.
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	c.AddFlags(root.PersistentFlags())
	root.PersistentFlags().Lookup("namespace").Usage = "The namespace that nodegate is installed in (default " + v1alpha1.DefaultNamespace + ")"
	c.addVerbs(root)
	return root
}

// Groups of verbs, in the order in which help lists them.
const (
	groupSee   = "see"
	groupSteer = "steer"
	groupPlan  = "plan"
)

// addVerbs adds the verbs. Each is in a file of its name. Those of a group stand in
// alphabetical order in help.
func (c *connection) addVerbs(root *cobra.Command) {
	for _, group := range []struct {
		id, title string
		verbs     []*cobra.Command
	}{
		{groupSee, "See how nodes and gates stand:", []*cobra.Command{
			newReport(c),
			newStatus(c),
			newTimeline(c),
			newWait(c),
			newWhy(c),
		}},
		{groupSteer, "Steer (takes the right to change nodes):", []*cobra.Command{
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

// answersWithin is how long one request may take where --request-timeout does not
// say: who asks is waiting.
const answersWithin = 15 * time.Second

// nowhere is where clients of Kubernetes look for an API server that nothing tells of.
const nowhere = "http://localhost:8080"

// config says how to reach the cluster that the flags name.
func (c *connection) config() (*rest.Config, error) {
	config, err := c.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if raw, err := c.ToRawKubeConfigLoader().RawConfig(); config.Host == nowhere && *c.APIServer == "" && err == nil && len(raw.Clusters) == 0 {
		return nil, errors.New("which cluster is meant is not known: there is no kubeconfig; see --kubeconfig, and the environment variable KUBECONFIG")
	}
	if config.Timeout == 0 {
		config.Timeout = answersWithin
	}
	config.WarningHandler = rest.NoWarnings{}
	return config, nil
}

// reader returns access to the cluster that the flags name.
func (c *connection) reader() (*cluster.Reader, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	return cluster.NewReader(config)
}

// installedIn is the namespace that nodegate is installed in: --namespace says, and
// not the kubeconfig, whose namespace is that of something else.
func (c *connection) installedIn() string { return cmp.Or(*c.Namespace, v1alpha1.DefaultNamespace) }

// takesNone refuses arguments of a verb that has none.
func takesNone(cmd *cobra.Command, args []string) error {
	return fmt.Errorf("%s takes no arguments, and was given %d", cmd.CommandPath(), len(args))
}

// unanswered says that the API server cannot be asked, or need not be any more,
// where that is why a request failed. Any other error is told as it is.
func unanswered(err error) error {
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted: %w", err)
	case errors.As(err, &network):
		return fmt.Errorf("the API server does not answer: %w", err)
	}
	return err
}

// similar returns names like one that does not exist, by cobra's own measure.
func similar(name string, names []string) []string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, n := range names {
		all.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	found := all.SuggestionsFor(name)
	return found[:min(len(found), 3)]
}

// didYouMean asks whether a name was meant that is like one that does not exist.
func didYouMean(name string, names []string) string {
	if alike := similar(name, names); len(alike) > 0 {
		return "; did you mean " + enumerate(alike, "or") + "?"
	}
	return ""
}

// takesOneNode refuses all but the name of one node, and a format that there is not.
func takesOneNode(o *output) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes the name of one node, and was given %d", cmd.CommandPath(), len(args))
		}
		return o.check()
	}
}

// oneLine says an error in one line, also if it is several that were joined.
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

// version is what the build knows of itself.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(unknown version)"
	}
	return info.Main.Version
}
