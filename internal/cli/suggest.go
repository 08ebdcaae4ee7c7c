// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gatefile"
	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/preview"
	"github.com/nodegate/nodegate/internal/printer"
	"github.com/nodegate/nodegate/internal/suggest"
	"github.com/nodegate/nodegate/presets"
)

// formatGates is YAML that kubectl can apply.
const formatGates = "gates"

func newSuggest(c *connection) *cobra.Command {
	var o output
	var s suggestFlags
	command := &cobra.Command{
		Use:   "suggest [NAMESPACE/DAEMONSET...]",
		Short: "Suggest gates for the DaemonSets that other pods need",
		Long: "Suggest gates for the DaemonSets of the cluster that other pods need, such as CNI agents, CSI drivers, node-local DNS\n" +
			"servers and device plugins. For each, the output shows the evidence, what to use (a preset, a label for an existing\n" +
			"gate, or a new NodeGate), which taint keys must be allowed, which tolerations are missing, which other programs write\n" +
			"the taint, and a preview of the gate. Nothing is changed.\n\n" +
			"The evidence is what presets wait for, the DaemonSet's pod template, and, on nodes younger than a day, which pods\n" +
			"started or failed before and after the daemon's pod became ready. With -o gates, the output is YAML to apply. It leaves\n" +
			"out gates for DaemonSets that pods only may need, unless the DaemonSet is an argument.\n\n" +
			"Required permissions: list daemonsets of all namespaces, and nodegates.nodegate.dev if nodegate is installed. For\n" +
			"better evidence, list nodes, csidrivers and, unless --pods=false, pods of all namespaces. For the previews, those of\n" +
			"'kubectl gate preview'. What cannot be read is listed.\n\n" +
			"The exit status is 0 if there are no suggestions, 1 if there are any, and 2 if this could not be determined: DaemonSets\n" +
			"or gates could not be read, or there are no suggestions, and nodes or pods could not be read.",
		Example: "  kubectl gate suggest\n  kubectl gate suggest -o gates > gates.yaml\n  kubectl gate suggest kube-system/cilium -o json",
		Args: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				if namespace, name, found := strings.Cut(arg, "/"); !found || namespace == "" || name == "" || strings.Contains(name, "/") {
					return fmt.Errorf("%s takes DaemonSets as NAMESPACE/NAME, got %q", cmd.CommandPath(), arg)
				}
			}
			return o.check()
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			reader, err := c.reader()
			if err != nil {
				return err
			}
			r, err := s.suggestions(cmd.Context(), reader, args)
			if err != nil {
				return err
			}
			return printSuggestions(cmd.Context(), c.streams.Out, &o, r, len(args) > 0)
		},
	}
	o.addFlags(command.Flags(), formatGates)
	s.addFlags(command.Flags())
	return command
}

// suggestFlags holds the flags of 'kubectl gate suggest'.
type suggestFlags struct{ pods bool }

func (s *suggestFlags) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&s.pods, "pods", true, "read all pods if there are nodes younger than a day, to compare the order of starts on them, and if suggested gates can evict pods, for the previews")
}

// printSuggestions prints the report. It returns errNo if there are suggestions, and another error if
// this is unknown.
func printSuggestions(ctx context.Context, out io.Writer, o *output, r *suggest.Report, named bool) error {
	text := r.Text
	if o.format == formatGates {
		text = func() string { return r.Gates(named) }
	}
	if err := o.print(ctx, out, r, text); err != nil {
		return err
	}
	switch hidden := r.Hidden(); {
	case len(r.Suggestions) > 0:
		return errNo
	case len(hidden) > 0:
		return fmt.Errorf("there are no suggestions, but %s could not be read, so some may be missing", printer.Enumerate(hidden, "and"))
	}
	return nil
}

// suggestions reads the cluster, and returns the suggestions for all DaemonSets or for the
// named ones.
func (s *suggestFlags) suggestions(ctx context.Context, reader *read.Reader, names []string) (*suggest.Report, error) {
	w, err := s.world(ctx, reader)
	if err != nil {
		return nil, err
	}
	r := suggest.Of(w)
	if unknown := r.Select(names); unknown != "" {
		return nil, fmt.Errorf("daemonset %q not found, or being deleted", unknown)
	}
	s.preview(ctx, reader, w, r)
	return r, nil
}

// world reads what suggestions depend on, except for what the previews need.
func (s *suggestFlags) world(ctx context.Context, reader *read.Reader) (*suggest.World, error) {
	w := &suggest.World{}
	gap := func(g suggest.Gap, err error) {
		if err != nil {
			g.Error = printer.OneLine(err)
			w.Unread = append(w.Unread, g)
		}
	}
	var err error
	if w.Presets, err = readPresets(); err != nil {
		return nil, err
	}
	var installed bool
	var daemonSetsErr, driversErr, nodesErr, policyErr error
	concurrently(
		func() { w.Gates, installed, err = declaredGates(ctx, reader) },
		func() { w.DaemonSets, daemonSetsErr = reader.DaemonSetObjects(ctx) },
		func() { w.CSIDrivers, driversErr = reader.CSIDrivers(ctx) },
		func() { w.Nodes, nodesErr = reader.NodeMetadata(ctx, read.NodeSelection{}) },
		func() { w.TolerationsPolicy, policyErr = reader.HasMutatingPolicy(ctx, admission.TolerationsPolicy) },
	)
	w.Now = reader.Now()
	switch {
	case err != nil:
		return nil, err
	case daemonSetsErr != nil:
		return nil, describeRequestError(daemonSetsErr)
	case !installed:
		gap(suggest.Gap{What: "NodeGates", Hides: "which DaemonSets have a gate"}, errNotInstalled)
	}
	gap(suggest.Gap{What: "CSIDrivers", Hides: "which CSI drivers gates could wait for"}, driversErr)
	gap(suggest.Gap{What: "Nodes", Hides: "the order of starts, and which nodes gates and presets select", HidesSuggestions: true}, nodesErr)
	gap(suggest.Gap{What: "the tolerations policy", Hides: "which tolerations the API server adds"}, policyErr)
	policy, allowedErr, managedErr := keyPolicy(ctx, reader, w.Gates)
	w.Policy = policy
	gap(suggest.Gap{What: "allowed taint keys", Hides: "which taint keys must be allowed"}, allowedErr)
	gap(suggest.Gap{What: "NodeReadinessRules", Hides: "which taint keys they manage"}, managedErr)
	if s.pods {
		w.Pods, err = readRecentPods(ctx, reader, w.Nodes, w.Now)
		gap(suggest.Gap{What: "Pods", Hides: "the order of starts", HidesSuggestions: true}, err)
	}
	return w, nil
}

// readPresets returns all presets, validated and with defaults.
func readPresets() ([]suggest.Preset, error) {
	var all []suggest.Preset
	for _, name := range presets.Names() {
		text, err := presets.Read(name)
		if err != nil {
			return nil, err
		}
		gates, err := gatefile.Declared(name, text)
		if err != nil {
			return nil, fmt.Errorf("reading preset %s: %w", name, err)
		}
		for _, g := range gates {
			all = append(all, suggest.Preset{Name: name, Text: string(text), Gate: *g})
		}
	}
	return all, nil
}

// readRecentPods returns the pods of the nodes on which the order of starts is compared.
// Without such nodes, it reads nothing.
func readRecentPods(ctx context.Context, reader *read.Reader, nodes []*gate.Node, now time.Time) ([]suggest.Pod, error) {
	recent := make(map[string]bool)
	for _, n := range nodes {
		if suggest.IsRecent(n, now) {
			recent[n.Name] = true
		}
	}
	if len(recent) == 0 {
		return nil, nil
	}
	var pods []suggest.Pod
	err := reader.EachWorkload(ctx, func(o *corev1.Pod) {
		if recent[o.Spec.NodeName] {
			pods = append(pods, suggest.NewPod(o))
		}
	})
	if err != nil {
		return nil, err // of some pods alone, nothing can be concluded
	}
	return pods, nil
}

// suggestedGates returns the gates of all suggestions, as they would be applied. A gate that the
// API server would reject is left out, and added to the read errors.
func suggestedGates(w *suggest.World, r *suggest.Report) (gates []v1alpha1.NodeGate) {
	for i := range r.Suggestions {
		s := &r.Suggestions[i]
		if s.Use == suggest.UseLabel {
			gates = appendGate(gates, w.Gates, s.Gate)
			continue
		}
		declared, err := gatefile.Declared("the suggested gate "+s.Gate, []byte(s.Manifest))
		if err != nil { // other suggestions do not depend on it
			s.Notes = append(s.Notes, "the API server would reject the gate: correct it before you apply it")
			r.AddGap(suggest.Gap{What: "preview of gate " + s.Gate, Error: printer.OneLine(err), Hides: "the effect of the gate, which is invalid"})
			continue
		}
		for _, g := range declared {
			gates = append(gates, *g)
		}
	}
	return gates
}

// preview adds the effect of all suggested gates. What cannot be read is added to the read
// errors.
func (s *suggestFlags) preview(ctx context.Context, reader *read.Reader, w *suggest.World, r *suggest.Report) {
	c := preview.Change{Apply: suggestedGates(w, r)}
	if len(c.Apply) == 0 {
		return
	}
	pw := &preview.World{Now: w.Now, Declared: w.Gates, Policy: w.Policy}
	nodes, gaps, err := reader.Snapshots(ctx, func(sets *gate.DaemonSets) gate.Needs {
		needs := pw.Needs(c, sets)
		needs.Add(pw.Needs(c, r.Labelled(sets)))
		return needs
	})
	if err != nil {
		gaps = []read.Error{{Err: err}}
	}
	for i := range gaps {
		r.AddGap(suggest.Gap{What: "previews", Error: printer.OneLine(gaps[i].Err), Hides: "what new nodes would wait for"})
	}
	if err != nil {
		return // without nodes, there are suggestions, but no previews
	}
	if len(nodes) > 0 {
		c.DaemonSets = r.Labelled(nodes[0].DaemonSets)
	}
	pw.Nodes = nodes
	answer := preview.Of(pw, c)
	if s.pods && answer.WantsPods() {
		if pw.Pods, err = reader.EveryPod(ctx); err != nil {
			r.AddGap(suggest.Gap{What: "Pods", Error: printer.OneLine(err), Hides: "which pods gates would evict, and which nodes are idle"})
		}
		answer = preview.Of(pw, c)
	}
	r.SetPreview(answer)
}

// appendGate appends the declared gate of this name, once.
func appendGate(gates, declared []v1alpha1.NodeGate, name string) []v1alpha1.NodeGate {
	for i := range gates {
		if gates[i].Name == name {
			return gates
		}
	}
	for i := range declared {
		if declared[i].Name == name {
			return append(gates, declared[i])
		}
	}
	return gates
}
