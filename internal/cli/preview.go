// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/preview"
)

func newPreview(c *connection) *cobra.Command {
	var o output
	p := previewing{connection: c}
	command := &cobra.Command{
		Use:   "preview (-f FILE | GATE... --delete)",
		Short: "Foretell what new, changed or deleted gates would do to this fleet",
		Long: "Foretell what would become of every node if the gates in the files were applied, or deleted: which nodes would\n" +
			"be closed at once, which would wait for budget, which would open, join or stay outside, what new nodes would\n" +
			"wait for, and which pods a NoExecute taint would remove. Nothing is changed.\n\n" +
			"The files are validated by the rules of the CustomResourceDefinition; other kinds in them are left out. It is\n" +
			"decided as the controller decides, with the gates as they are and as they would be, from what may be read with\n" +
			"your own rights: list of nodes and of nodegates.nodegate.dev and, where gates look at them, of pods, daemonsets,\n" +
			"csinodes and resourceslices; get of validatingadmissionpolicies and list of nodereadinessrules for the keys that\n" +
			"gates may use. What may not be read is unknown, and told. Of a gate in DryRun it says what Enforce would do.\n\n" +
			"The exit status is 0 if no node that is there would be changed, 1 if one would be, at once or later, and 2 if\n" +
			"that could not be found out.",
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
			answer, err := foretell(cmd.Context(), reader, change)
			if err != nil {
				return err
			}
			if err := o.print(c.streams.Out, answer, func() string { return previewText(answer) }); err != nil {
				return err
			}
			if answer.Changes {
				return errNo
			}
			return nil
		},
	}
	command.ValidArgsFunction = c.gateNames
	o.addFlags(command.Flags())
	p.addFlags(command.Flags())
	command.Flags().BoolVar(&p.delete, "delete", false, "foretell what becomes of nodes if these gates are deleted")
	return command
}

// previewing is what is asked for.
type previewing struct {
	*connection
	files
	delete bool
}

func (p *previewing) check(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) > 0 && !p.delete:
		return fmt.Errorf("%s takes new and changed gates from files (-f); names are for --delete", cmd.CommandPath())
	case len(args) == 0 && len(p.names) == 0:
		return fmt.Errorf("%s needs a file (-f) or, with --delete, the name of a gate", cmd.CommandPath())
	}
	return nil
}

// change is what is to be foretold.
func (p *previewing) change(args []string, stdin io.Reader) (preview.Change, error) {
	c := preview.Change{Delete: args}
	if len(p.names) == 0 {
		return c, nil
	}
	gates, err := p.gates(stdin)
	if err != nil || !p.delete {
		c.Apply = gates
		return c, err
	}
	for i := range gates {
		c.Delete = append(c.Delete, gates[i].Name)
	}
	return c, nil
}

// foretell reads what a change may concern, and has it told.
func foretell(ctx context.Context, reader *cluster.Reader, c preview.Change) (*preview.Preview, error) {
	w := &preview.World{Now: time.Now()}
	var unread []string
	gap := func(err error) { unread = append(unread, oneLine(err)) }
	declared, installed, err := declaredGates(ctx, reader)
	switch {
	case err != nil:
		return nil, err
	case !installed && len(c.Delete) > 0:
		return nil, errNotInstalled
	case !installed:
		gap(errNotInstalled)
	}
	w.Declared = declared
	if err := known(c.Delete, declared); err != nil {
		return nil, err
	}
	policy, allowedErr, managedErr := keyPolicy(ctx, reader)
	w.Policy = policy
	if allowedErr != nil {
		gap(fmt.Errorf("which taint keys are allowed: %w", allowedErr))
	}
	if managedErr != nil {
		gap(fmt.Errorf("which taint keys NodeReadinessRules manage: %w", managedErr))
	}
	var gaps []cluster.Gap
	w.Nodes, gaps, err = reader.LookAll(ctx, func(sets *gate.DaemonSets) gate.Needs { return w.Needs(c, sets) })
	if err != nil {
		return nil, unanswered(err)
	}
	for i := range gaps {
		gap(gaps[i].Err)
	}
	if c.WantsPods() {
		if w.Pods, err = reader.EveryPod(ctx); err != nil {
			gap(err)
		}
	}
	answer := preview.Of(w, c)
	answer.Unread = unread
	return answer, nil
}

// known refuses gates that there are not, and says what may have been meant.
func known(names []string, declared []v1alpha1.NodeGate) error {
	all := namesOf(declared)
	for _, name := range names {
		if !slices.Contains(all, name) {
			return noSuchGate(name, all)
		}
	}
	return nil
}

// keyPolicy reads which keys gates may use, and why it is not known which keys are
// allowed, or which are managed by NodeReadinessRules. What it cannot read is nil.
func keyPolicy(ctx context.Context, reader *cluster.Reader) (p gate.KeyPolicy, allowedErr, managedErr error) {
	policy, allowedErr := reader.AdmissionPolicy(ctx, admission.ConfinementPolicy)
	if allowedErr == nil {
		p.Allowed, p.Stamps, allowedErr = admission.Allowed(policy)
	}
	p.Managed, managedErr = reader.ManagedKeys(ctx)
	return p, allowedErr, managedErr
}
