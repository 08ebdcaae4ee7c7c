// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/lint"
	"github.com/nodegate/nodegate/internal/signal"
)

func newLint(c *connection) *cobra.Command {
	var o output
	var f files
	command := &cobra.Command{
		Use:   "lint [GATE... | -f FILE]",
		Short: "Find what is wrong about gates and what they depend on",
		Long: "Find what is wrong about gates: daemons and operators that do not tolerate a taint, Karpenter NodePools and\n" +
			"autoscalers that do not know a key, selectors on labels that arrive late, other writers of a key, budgets. All\n" +
			"gates of the cluster are judged, or those that are named, or those in files as if they were applied. Nothing is\n" +
			"changed. Every finding is explained in docs/lint.md.\n\n" +
			"It reads with your own rights: list of nodegates.nodegate.dev and, where these may be read, nodes, daemonsets,\n" +
			"deployments, nodepools.karpenter.sh, nodereadinessrules, validatingadmissionpolicies and the configmap\n" +
			"kube-system/cilium-config. What may not be read is told, with the findings that it may hide.\n\n" +
			"The exit status is 0 if nothing but notes was found, 1 if there is an error or a warning, and 2 if that could\n" +
			"not be found out.",
		Example: "  kubectl gate lint\n  kubectl gate lint -f gate.yaml\n  kubectl gate lint cilium -o json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && len(f.names) > 0 {
				return fmt.Errorf("%s takes names or files, not both", cmd.CommandPath())
			}
			return o.check()
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var applied []v1alpha1.NodeGate
			var err error
			if len(f.names) > 0 {
				if applied, err = f.gates(c.streams.In); err != nil {
					return err
				}
			}
			reader, err := c.reader()
			if err != nil {
				return err
			}
			w, err := lookAround(cmd.Context(), reader, args, applied)
			if err != nil {
				return err
			}
			return tellFindings(c.streams.Out, &o, lint.Of(w))
		},
	}
	command.ValidArgsFunction = c.gateNames
	o.addFlags(command.Flags())
	f.addFlags(command.Flags())
	return command
}

// errBlind has lint end with exitError where it has found nothing and could not see
// everything.
var errBlind = errors.New("nothing was found, but not everything could be read: see what is not judged")

// tellFindings prints what was found, and says what that means for the exit status.
func tellFindings(out io.Writer, o *output, r *lint.Report) error {
	if err := o.print(out, r, func() string { return lintText(r) }); err != nil {
		return err
	}
	switch {
	case r.Bad():
		return errNo
	case len(r.Gaps) > 0:
		return errBlind
	}
	return nil
}

// lookAround reads what the gates depend on: those that are named, or applied, or
// all.
func lookAround(ctx context.Context, reader *cluster.Reader, names []string, applied []v1alpha1.NodeGate) (*lint.World, error) {
	w := &lint.World{Unread: make(map[lint.Kind]error)}
	declared, installed, err := declaredGates(ctx, reader)
	switch {
	case err != nil:
		return nil, err
	case !installed && len(applied) == 0: // gates are checked before nodegate is installed, too
		return nil, errNotInstalled
	}
	w.Gates = declared
	if len(names) > 0 {
		if err := known(names, declared); err != nil {
			return nil, err
		}
		w.Judged = make(map[string]bool)
		for _, name := range names {
			w.Judged[name] = true
		}
	}
	if len(applied) > 0 {
		putIn(w, applied)
	}
	if len(w.Gates) > 0 {
		readAround(ctx, reader, w)
	}
	return w, nil
}

// putIn puts gates from files in the place of those that there are, and has only
// these judged.
func putIn(w *lint.World, applied []v1alpha1.NodeGate) {
	w.Judged = make(map[string]bool)
	for i := range applied {
		w.Judged[applied[i].Name] = true
		at := slices.IndexFunc(w.Gates, func(g v1alpha1.NodeGate) bool { return g.Name == applied[i].Name })
		if at < 0 {
			w.Gates = append(w.Gates, applied[i])
			continue
		}
		applied[i].CreationTimestamp, applied[i].Status = w.Gates[at].CreationTimestamp, w.Gates[at].Status
		w.Gates[at] = applied[i]
	}
}

// samplesMax is how many whole Nodes are looked at, to see who writes what.
const samplesMax = 100

// readAround reads everything but gates. What cannot be read is noted.
func readAround(ctx context.Context, reader *cluster.Reader, w *lint.World) {
	note := func(kind lint.Kind, err error) {
		if err != nil {
			w.Unread[kind] = errors.New(oneLine(err))
		}
	}
	policy, allowedErr, managedErr := keyPolicy(ctx, reader)
	w.Policy = policy
	note(lint.TaintKeys, allowedErr)
	note(lint.ReadinessRules, managedErr)
	var err error
	if w.Nodes, err = reader.AllNodeFacts(ctx, nil); err == nil {
		w.Samples, err = reader.SomeNodes(ctx, samplesMax)
	}
	note(lint.Nodes, err)
	var gaps []cluster.Gap
	w.DaemonSets, gaps = reader.DaemonSets(ctx, daemonNamespaces(w.Gates))
	for i := range gaps {
		note(lint.DaemonSets, gaps[i].Err)
	}
	w.Deployments, err = reader.Deployments(ctx)
	note(lint.Deployments, err)
	w.NodePools, err = reader.Others(ctx, cluster.NodePools)
	note(lint.NodePools, err)
	w.CiliumConfig, err = reader.ConfigMap(ctx, "kube-system", "cilium-config")
	note(lint.CiliumConfig, err)
}

// daemonNamespaces are where the DaemonSets are that gates wait for.
func daemonNamespaces(gates []v1alpha1.NodeGate) []string {
	var all gate.Needs
	for i := range gates {
		g, _ := signal.Compile(&gates[i], v1alpha1.SourceCRD) // a broken one is told of
		all.Add(g.Needs(&gate.DaemonSets{}))
	}
	slices.Sort(all.DaemonSetNamespaces)
	return slices.Compact(all.DaemonSetNamespaces)
}

// lintText is what was found, for people.
func lintText(r *lint.Report) string {
	var b strings.Builder
	if len(r.Findings) == 0 {
		fmt.Fprintf(&b, "Nothing was found about %s.\n", count(len(r.Gates), "gate"))
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s: %s: gate %s: %s\n", strings.ToLower(string(f.Severity)), f.ID, f.Gate, f.What)
		fmt.Fprintf(&b, "  why  %s\n  do   %s\n", f.Why, f.Do)
	}
	if len(r.Gaps) > 0 {
		b.WriteByte('\n')
	}
	for _, g := range r.Gaps {
		fmt.Fprintf(&b, "Not judged: %s: %s; it may hide %s.\n", g.What, g.Error, strings.Join(g.Hides, ", "))
	}
	return b.String()
}
