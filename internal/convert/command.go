// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// NewCommand returns the command 'convert'. program is the name of the program in the
// examples.
func NewCommand(program string) *cobra.Command {
	command := &cobra.Command{
		Use:   "convert",
		Short: "Convert another tool's configuration to NodeGates",
		Long: "Convert another tool's configuration to NodeGates, and print them as YAML.\n\n" +
			"The meaning of the configuration is preserved. Differences are reported in comments and on standard error, by\n" +
			"line. If meaning would be lost, the command prints no gates and fails. Nothing is applied, and no cluster is\n" +
			"contacted.",
		Example: "  nodegate convert tainter tainter.toml > gates.yaml\n" +
			"  kubectl get configmap -n kube-system istio-cni-taint -o yaml | nodegate convert istio -",
		Args: knownTool,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.AddCommand(
		newConvertTainter(),
		newConvertFrom("istio", "Convert the ConfigMap of Istio's node readiness controller (istio-cni-taint)",
			"  nodegate convert istio configmap.yaml", Istio),
		newConvertFrom("nidhogg", "Convert a configuration of nidhogg (YAML, JSON, or the ConfigMap or Helm values with it)",
			"  nodegate convert nidhogg config.json\n"+
				"  { cat config.yaml; echo ---; kubectl get daemonsets -A -o yaml; } | nodegate convert nidhogg -   # without nodeSelector", Nidhogg),
		newConvertFrom("node-readiness-controller", "Convert NodeReadinessRules",
			"  kubectl get nodereadinessrules -o yaml | nodegate convert node-readiness-controller -", NodeReadinessRules),
		newConvertNodeTaintsHandler(),
	)
	for _, c := range append(command.Commands(), command) {
		c.Example = strings.ReplaceAll(c.Example, "nodegate convert", program+" convert")
	}
	return command
}

// knownTool rejects arguments that are not subcommands.
func knownTool(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var tools []string
	for _, c := range cmd.Commands() {
		tools = append(tools, c.Name())
	}
	return fmt.Errorf("unknown tool %q: use one of %s", args[0], strings.Join(tools, ", "))
}

// oneFile accepts exactly one argument.
func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return fmt.Errorf("%s takes one FILE, or - for standard input, got %d arguments", cmd.CommandPath(), len(args))
}

// newConvertFrom returns the command for a tool without flags.
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
			"  nodegate convert tainter --anchor tainter.toml   # 'Ready' no longer matches 'NotReady'\n"+
			"  nodegate convert tainter --format json - < config",
		func(source Source) *Result { return Tainter(source, options) })
	command.Long = "Convert a configuration of LasseHels/tainter. Each matcher becomes a gate that is closed while all of its\n" +
		"conditions match. Matchers with the same taint share it.\n\n" +
		"Tainter searches for a pattern anywhere in a type or status, so that Ready also matches NotReady. The gates\n" +
		"preserve this, and a note is printed for each condition. With --anchor, patterns must match as a whole."
	flags := command.Flags()
	flags.StringVar(&options.Format, "format", "", "toml, yaml or json (default by the extension of the file name, or toml)")
	flags.BoolVar(&options.Anchor, "anchor", false, "match whole types and statuses, instead of searching for patterns anywhere in them as Tainter does")
	return command
}

func newConvertNodeTaintsHandler() *cobra.Command {
	var namespace string
	command := newConvertFrom("nodetaintshandler", "Convert an installation of zhangchl007/nodetaintshandler (manifests or environment)",
		"  nodegate convert nodetaintshandler                      # default settings\n"+
			"  awk 'FNR == 1 {print \"---\"} {print}' deploy/*.yaml | nodegate convert nodetaintshandler -\n"+
			"  nodegate convert nodetaintshandler handler.env          # lines such as STARTUP_BACKFILL=1",
		func(source Source) *Result { return NodeTaintsHandler(source, namespace) })
	command.Use = "nodetaintshandler [FILE|-]"
	command.Long = "Convert an installation of zhangchl007/nodetaintshandler. Its taint, labels and annotations are fixed. Its\n" +
		"environment is read from the Deployment among the manifests, or from lines of NAME=VALUE. The namespace of the\n" +
		"initialization pods is read from their DaemonSet, if it is among the manifests."
	command.Args = cobra.MaximumNArgs(1)
	command.Flags().StringVar(&namespace, "init-namespace", "",
		fmt.Sprintf("namespace of the initialization pods, if no manifest specifies it (default %q)", defaultInitNamespace))
	return command
}

// printGates converts a file, or empty input if no file is named. If there are errors, it
// prints no gates, so that a part of the result is not mistaken for the whole.
func printGates(cmd *cobra.Command, args []string, run func(Source) *Result) error {
	source := Source{Name: "defaults"}
	if len(args) > 0 {
		var err error
		if source, err = readSource(cmd.InOrStdin(), args[0]); err != nil {
			return err
		}
	}
	result := run(source)
	var findings bytes.Buffer
	for _, finding := range result.Findings {
		fmt.Fprintln(&findings, finding)
	}
	if _, err := findings.WriteTo(cmd.ErrOrStderr()); err != nil {
		return fmt.Errorf("printing findings: %w", err)
	}
	if result.Errors() > 0 {
		return fmt.Errorf("%s was not converted: fix the errors above, and run the command again", source.Name)
	}
	return result.WriteYAML(cmd.OutOrStdout())
}

// readSource reads a file or standard input. Like kubectl, it reads UTF-16 with a byte order mark,
// which programs on Windows write. A byte order mark is removed.
func readSource(stdin io.Reader, path string) (Source, error) {
	source := Source{Name: path}
	var err error
	if path == "-" {
		source.Name = "stdin"
		if source.Data, err = io.ReadAll(stdin); err != nil {
			return Source{}, fmt.Errorf("reading standard input: %w", err)
		}
	} else if source.Data, err = os.ReadFile(path); err != nil {
		return Source{}, fmt.Errorf("reading the configuration: %w", err)
	}
	if source.Data, _, err = transform.Bytes(unicode.BOMOverride(transform.Nop), source.Data); err != nil {
		return Source{}, fmt.Errorf("decoding %s from UTF-16: %w", source.Name, err)
	}
	return source, nil
}
