// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/preview"
	"github.com/nodegate/nodegate/internal/printer"
)

func newPreview(c *connection) *cobra.Command {
	var o output
	p := previewFlags{connection: c}
	command := &cobra.Command{
		Use:   "preview (-f FILE | GATE... --delete)",
		Short: "Show what new, changed or deleted gates would do to the existing nodes",
		Long: "Show what would happen to every node if the gates in the files were applied or deleted: which nodes would be closed\n" +
			"immediately, which would wait for budget, which would open, be adopted or not become members, what new nodes would\n" +
			"wait for, and which pods a NoExecute taint or a descheduler would evict. Nothing is changed.\n\n" +
			"The files are validated by the rules of the CustomResourceDefinition; objects of other kinds are ignored. The\n" +
			"decisions are those of the controller, made for the current and for the changed gates.\n\n" +
			"Required permissions: list nodes and nodegates.nodegate.dev; where gates depend on them, list pods, daemonsets,\n" +
			"csinodes, resourceslices, devicetaintrules and objects of the kinds that they name; list pods of all namespaces\n" +
			"if a gate can evict pods or has existingNodes: CloseIfIdle; get validatingadmissionpolicies and list\n" +
			"nodereadinessrules for the taint keys that gates may use. If a node would get a taint, list deployments and\n" +
			"cronjobs, get the configmaps that deschedulers mount, and list pods of all namespaces if a descheduler evicts\n" +
			"pods because of taints. What cannot be read is unknown, and the output lists it. For a gate in DryRun, the output shows what\n" +
			"it would do in mode Enforce.\n\n" +
			"The exit status is 0 if no existing node would change, 1 if a node would change, immediately or later, and 2 if\n" +
			"this could not be determined.",
		Example: "  kubectl gate preview -f gate.yaml\n  kubectl gate preview agent --delete\n  kustomize build . | kubectl gate preview -f - -o json",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := p.check(cmd, args); err != nil {
				return err
			}
			return o.check()
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := p.change(args, c.streams.In)
			if err != nil {
				return err
			}
			reader, err := c.reader()
			if err != nil {
				return err
			}
			answer, err := predict(cmd.Context(), reader, change)
			if err != nil {
				return err
			}
			if err := o.print(cmd.Context(), c.streams.Out, answer, answer.Text); err != nil {
				return err
			}
			switch {
			case answer.Changes:
				return errNo
			case answer.Incomplete:
				return errNotDetermined
			}
			return nil
		},
	}
	command.ValidArgsFunction = c.gateNames
	o.addFlags(command.Flags())
	p.addFlags(command.Flags())
	command.Flags().BoolVar(&p.delete, "delete", false, "show what would happen to nodes if these gates were deleted")
	return command
}

// errNotDetermined is returned if a preview found no change, but could not read what might cause
// one. The process then exits with exitError.
var errNotDetermined = errors.New("no change was found, but not everything that decides about nodes could be read: see what is incomplete")

// previewFlags holds the flags of 'kubectl gate preview'.
type previewFlags struct {
	*connection
	files
	delete bool
}

func (p *previewFlags) check(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) > 0 && !p.delete:
		return fmt.Errorf("%s reads new and changed gates from files (-f); gate names require --delete", cmd.CommandPath())
	case len(args) == 0 && len(p.names) == 0:
		return fmt.Errorf("%s requires a file (-f) or, with --delete, a gate name", cmd.CommandPath())
	}
	return nil
}

// change returns the change to predict.
func (p *previewFlags) change(args []string, stdin io.Reader) (preview.Change, error) {
	c := preview.Change{Delete: parseGateNames(args)}
	if len(p.names) == 0 {
		return c, nil
	}
	gates, err := p.gates(stdin)
	if err != nil || !p.delete {
		c.Apply = gates
		return c, err
	}
	for i := range gates {
		args = append(args, gates[i].Name)
	}
	c.Delete = parseGateNames(args)
	return c, nil
}

// predict reads what a change depends on, and predicts its effect.
func predict(ctx context.Context, reader *read.Reader, c preview.Change) (*preview.Preview, error) {
	w := &preview.World{}
	var unread []string
	gap := func(err error) { unread = append(unread, printer.OneLine(err)) }
	declared, installed, err := declaredGates(ctx, reader)
	switch {
	case err != nil:
		return nil, err
	case !installed && len(c.Delete) > 0:
		return nil, errNotInstalled
	case !installed:
		gap(errNotInstalled)
	}
	w.Declared, w.Now = declared, reader.Now()
	if err := checkGateNames(c.Delete, namesOf(declared)); err != nil {
		return nil, err
	}
	policy, allowedErr, managedErr := keyPolicy(ctx, reader, declared)
	w.Policy = policy
	if allowedErr != nil {
		gap(fmt.Errorf("reading the allowed taint keys: %w", allowedErr))
	}
	if managedErr != nil {
		gap(fmt.Errorf("reading the taint keys that NodeReadinessRules manage: %w", managedErr))
	}
	var gaps []read.Error
	w.Nodes, gaps, err = reader.Snapshots(ctx, func(sets *gate.DaemonSets) gate.Needs { return w.Needs(c, sets) })
	if err != nil {
		return nil, describeRequestError(err)
	}
	for i := range gaps {
		gap(gaps[i].Err)
	}
	incomplete := len(gaps) > 0
	answer := preview.Of(w, c)
	if answer.WantsPods() {
		if w.Pods, err = reader.EveryPod(ctx); err != nil {
			gap(err)
			incomplete = true
		}
		answer = preview.Of(w, c)
	}
	if answer.AddsTaints() && readDeschedulers(ctx, reader, w, answer, gap) {
		answer = preview.Of(w, c)
	}
	answer.Unread, answer.Incomplete = unread, incomplete
	return answer, nil
}

// readDeschedulers reads the policies of deschedulers, which evict pods from tainted nodes,
// and all pods if they count because of that. It reports whether there is such a policy.
func readDeschedulers(ctx context.Context, reader *read.Reader, w *preview.World, answer *preview.Preview, gap func(error)) bool {
	var err error
	if w.Deschedulers, err = deschedulersOf(ctx, reader); err != nil {
		gap(fmt.Errorf("reading the policies of deschedulers: %w", err))
	}
	if len(w.Deschedulers) == 0 {
		return false
	}
	if !answer.WantsPods() { // they have been read otherwise
		if w.Pods, err = reader.EveryPod(ctx); err != nil {
			gap(err)
		}
	}
	return true
}
