// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// NewCommand returns the command 'convert' of a program. What the program is called
// stands in the examples.
func NewCommand(program string) *cobra.Command {
	command := &cobra.Command{
		Use:   "convert",
		Short: "Turn another tool's configuration into NodeGates",
		Long: "Turn another tool's configuration into NodeGates, and print them as YAML.\n\n" +
			"What the configuration means is kept. What is not exactly the same is told in comments and on standard\n" +
			"error, by line. Where meaning would be lost, nothing is printed and it fails. Nothing is applied,\n" +
			"and no cluster is asked.",
		Example: "  nodegate convert tainter tainter.toml > gates.yaml\n" +
			"  kubectl get configmap -n kube-system istio-cni-taint -o yaml | nodegate convert istio -",
		Args: knownTool,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.AddCommand(
		newConvertTainter(),
		newConvertFrom("istio", "Convert the ConfigMap of Istio's node readiness controller (istio-cni-taint)",
			"  nodegate convert istio configmap.yaml", Istio),
		newConvertFrom("nidhogg", "Convert a configuration of nidhogg (YAML, JSON, or the ConfigMap with it)",
			"  nodegate convert nidhogg config.json", Nidhogg),
		newConvertFrom("node-readiness-controller", "Convert NodeReadinessRules",
			"  kubectl get nodereadinessrules -o yaml | nodegate convert node-readiness-controller -", NodeReadinessRules),
		newConvertNodeTaintsHandler(),
	)
	for _, c := range append(command.Commands(), command) {
		c.Example = strings.ReplaceAll(c.Example, "nodegate convert", program+" convert")
	}
	return command
}

// knownTool refuses what is none of the commands.
func knownTool(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var tools []string
	for _, c := range cmd.Commands() {
		tools = append(tools, c.Name())
	}
	return fmt.Errorf("cannot convert from %q: choose one of %s", args[0], strings.Join(tools, ", "))
}

// oneFile refuses anything but one argument.
func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return fmt.Errorf("%s takes a FILE, or - for standard input; it was given %d arguments", cmd.CommandPath(), len(args))
}

// newConvertFrom makes the command of a tool that has nothing to choose.
func newConvertFrom(tool, short, example string, run func(Source) *Result) *cobra.Command {
	return &cobra.Command{
		Use: tool + " FILE|-", Short: short, Example: example, Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			return printGates(cmd, args, run)
		},
	}
}

func newConvertTainter() *cobra.Command {
	var options TainterOptions
	command := newConvertFrom("tainter", "Convert a configuration of LasseHels/tainter (TOML, YAML or JSON)",
		"  nodegate convert tainter tainter.toml\n"+
			"  nodegate convert tainter --anchor tainter.toml   # 'Ready' is not to match 'NotReady' any more\n"+
			"  nodegate convert tainter --format json - < config",
		func(source Source) *Result { return Tainter(source, options) })
	command.Long = "Convert a configuration of LasseHels/tainter. Each matcher becomes a gate that is closed while all of its\n" +
		"conditions match; matchers with the same taint share it.\n\n" +
		"Tainter finds a pattern anywhere in a type or status, so that Ready also matches NotReady. The gates keep\n" +
		"that, and it is told for each condition; --anchor has patterns match as a whole."
	flags := command.Flags()
	flags.StringVar(&options.Format, "format", "", "toml, yaml or json; default: by the ending of the file's name, toml without one")
	flags.BoolVar(&options.Anchor, "anchor", false, "match whole types and statuses, where Tainter finds a pattern anywhere in them")
	return command
}

func newConvertNodeTaintsHandler() *cobra.Command {
	namespace := DefaultInitNamespace
	command := newConvertFrom("nodetaintshandler", "Convert a set-up of zhangchl007/nodetaintshandler (manifests or environment)",
		"  nodegate convert nodetaintshandler                      # as it is without settings\n"+
			"  cat deploy/*.yaml | nodegate convert nodetaintshandler -\n"+
			"  nodegate convert nodetaintshandler handler.env          # lines such as STARTUP_BACKFILL=1",
		func(source Source) *Result { return NodeTaintsHandler(source, namespace) })
	command.Use = "nodetaintshandler [FILE|-]"
	command.Long = "Convert a set-up of zhangchl007/nodetaintshandler. Its taint, labels and annotations are fixed; its environment\n" +
		"is read from the Deployment among the manifests, or from lines of NAME=VALUE, and the namespace of the\n" +
		"initialization pods from their DaemonSet, if it is among them."
	command.Args = cobra.MaximumNArgs(1)
	command.Flags().StringVar(&namespace, "namespace", namespace, "the namespace of the initialization pods, if no manifest tells")
	return command
}

// printGates converts a file, or nothing if none is named. Nothing is printed if
// something would be lost, so that no part of it is taken for the whole.
func printGates(cmd *cobra.Command, args []string, run func(Source) *Result) error {
	source := Source{Name: "defaults"}
	if len(args) > 0 {
		var err error
		if source, err = readSource(cmd.InOrStdin(), args[0]); err != nil {
			return err
		}
	}
	result := run(source)
	var told bytes.Buffer
	for _, finding := range result.Findings {
		fmt.Fprintln(&told, finding)
	}
	if _, err := told.WriteTo(cmd.ErrOrStderr()); err != nil {
		return fmt.Errorf("telling what differs: %w", err)
	}
	if n := result.Errors(); n > 0 {
		return fmt.Errorf("%s is not converted: see the errors above (%d)", source.Name, n)
	}
	return result.WriteYAML(cmd.OutOrStdout())
}

func readSource(stdin io.Reader, path string) (Source, error) {
	if path == "-" {
		data, err := io.ReadAll(stdin)
		if err != nil {
			return Source{}, fmt.Errorf("reading standard input: %w", err)
		}
		return Source{Name: "stdin", Data: data}, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Source{}, fmt.Errorf("reading the configuration: %w", err)
	}
	return Source{Name: path, Data: data}, nil
}
