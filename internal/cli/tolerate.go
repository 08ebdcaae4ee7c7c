// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/kube/write"
	"github.com/nodegate/nodegate/internal/release"
	"github.com/nodegate/nodegate/internal/tolerate"
)

// tolerateFlags holds the flags and arguments of 'kubectl gate tolerate'.
type tolerateFlags struct {
	output
	dryRun
	all, force bool
	gates      []string
	daemonSets []types.NamespacedName
}

func newTolerate(c *connection) *cobra.Command {
	var f tolerateFlags
	command := &cobra.Command{
		Use:   "tolerate NAMESPACE/DAEMONSET... | --all | --gate GATE",
		Short: "Add tolerations of gates' taints to the DaemonSets that the gates wait for",
		Long: "Add tolerations of gates' taints to the pod templates of the DaemonSets that the gates wait for. A daemon without the\n" +
			"toleration deadlocks its gate: it cannot run on a node before the gate opens. The policy nodegate-tolerations does the\n" +
			"same for gates with 'tolerate: true' when a DaemonSet is created or updated; this command is for DaemonSets that exist\n" +
			"already, for other gates, and for clusters without the policy. It considers gates that are in force and gates in dry\n" +
			"run. Nothing else is changed, and no toleration is removed. DaemonSets are changed one after the other.\n\n" +
			"Only the signals daemonSet and daemonSets name DaemonSets. Gates that have neither, and wait for pods, a CSI driver, a\n" +
			"resource or ResourceSlices, are listed: check their DaemonSets yourself. The command does not add tolerations that are\n" +
			"missing because two gates wait for each other's DaemonSets: 'kubectl gate lint' reports these (gates-deadlock).\n\n" +
			"Adding a toleration changes the pod template: the DaemonSet controller replaces the pods by its update strategy. The\n" +
			"command does not ask for confirmation: see --dry-run.\n\n" +
			"If the policy adds the tolerations, the command only causes an update that changes nothing else, and the list of\n" +
			"tolerations keeps its owner. Otherwise it writes the list by server-side apply, as field manager\n" +
			v1alpha1.TolerateFieldManager + ". The list is atomic, so this field manager then owns all of it. If another field manager owns the\n" +
			"list, such as Helm or a GitOps tool, the DaemonSet is not changed: add the toleration to its manifest, or use\n" +
			"--force-conflicts.\n\n" +
			"Required permissions: list nodegates.nodegate.dev; get, list and patch daemonsets. If permitted, the command reads the\n" +
			"validatingadmissionpolicy nodegate-confinement and nodereadinessrules, to ignore gates that are not accepted.\n\n" +
			"The exit status is 0 if all DaemonSets that gates name or select have the tolerations, 1 if some could not be\n" +
			"changed, and 2 if the command failed before changing anything.",
		Example: "  kubectl gate tolerate --all --dry-run=server\n  kubectl gate tolerate kube-system/agent\n  kubectl gate tolerate --gate required-daemonsets",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := release.CheckGates(cmd.Flags().Changed("gate"), f.gates); err != nil {
				return err
			}
			return f.check(args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), c) },
	}
	flags := command.Flags()
	flags.BoolVar(&f.all, "all", false, "all DaemonSets that gates wait for")
	flags.StringSliceVar(&f.gates, "gate", nil, "comma-separated names of the only gates to consider; applies to all their DaemonSets if none is named")
	flags.BoolVar(&f.force, "force-conflicts", false, "take over the list of tolerations from other field managers")
	f.output.addFlags(flags, formatName)
	f.dryRun.addFlags(flags)
	return command
}

// check parses the arguments, and rejects invalid ones before any request is sent.
func (f *tolerateFlags) check(args []string) error {
	f.daemonSets = nil
	for _, arg := range args {
		namespace, name, ok := strings.Cut(arg, "/")
		if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
			return fmt.Errorf("%q is not a valid DaemonSet: use NAMESPACE/NAME", arg)
		}
		f.daemonSets = append(f.daemonSets, types.NamespacedName{Namespace: namespace, Name: name})
	}
	switch {
	case f.all && len(args)+len(f.gates) > 0:
		return errors.New("--all selects all DaemonSets of all gates: remove it, or the names")
	case !f.all && len(args)+len(f.gates) == 0:
		return errors.New("specify DaemonSets as NAMESPACE/NAME, or --gate, or --all")
	}
	if err := f.dryRun.check(); err != nil {
		return err
	}
	return f.output.check()
}

func (f *tolerateFlags) run(ctx context.Context, c *connection) error {
	config, err := c.config()
	if err != nil {
		return err
	}
	reader, err := read.NewReader(config)
	if err != nil {
		return err
	}
	plans, withoutDaemonSets, err := f.plan(ctx, reader)
	if err != nil {
		return err
	}
	report, err := f.apply(ctx, config, reader, plans)
	if err != nil {
		return err
	}
	report.GatesWithoutDaemonSets = withoutDaemonSets
	text := report.Text
	if f.format == formatName {
		text = report.Names
	}
	if err := f.print(context.WithoutCancel(ctx), c.streams.Out, report, text); err != nil {
		return err
	}
	if !report.Complete() {
		return errNo
	}
	return nil
}

func (f *tolerateFlags) apply(ctx context.Context, config *rest.Config, reader *read.Reader, plans []tolerate.Plan) (*tolerate.Report, error) {
	writer, err := write.NewDaemonSetWriter(config)
	if err != nil {
		return nil, err
	}
	t := &tolerate.Tolerator{Reader: reader, Writer: writer, DryRun: f.kind(), Force: f.force}
	return t.Run(ctx, plans), nil
}

// plan returns the DaemonSets to change, and the gates that name no DaemonSet unless the
// arguments are DaemonSets. It returns an error for gates and DaemonSets that do not exist or
// are not waited for, before anything is changed.
func (f *tolerateFlags) plan(ctx context.Context, reader *read.Reader) ([]tolerate.Plan, []tolerate.GateWithoutDaemonSets, error) {
	declared, installed, err := declaredGates(ctx, reader)
	switch {
	case err != nil:
		return nil, nil, err
	case !installed:
		return nil, nil, errNotInstalled
	}
	if err := checkGateNames(f.gates, namesOf(declared)); err != nil {
		return nil, nil, err
	}
	policy, _, _ := keyPolicy(ctx, reader, declared) // the status of the gates replaces what cannot be read
	set := gateset.Of(declared, policy, gateset.StatusForUnknownPolicy)
	for _, name := range f.gates {
		if why := set.Rejection(name); why != "" {
			return nil, nil, fmt.Errorf("gate %s is not in force: %s", name, why)
		}
	}
	entries, err := tolerate.Waited(set, f.gates)
	if err != nil {
		return nil, nil, err
	}
	sets, gaps := reader.DaemonSets(ctx, tolerate.Namespaces(entries))
	if len(gaps) > 0 {
		return nil, nil, describeRequestError(gaps[0].Err)
	}
	plans, waited := tolerate.Of(entries, sets)
	if len(f.daemonSets) == 0 {
		return plans, tolerate.WithoutDaemonSets(set, f.gates), nil
	}
	for _, name := range f.daemonSets {
		if !waited[name] {
			return nil, nil, notWaitedFor(ctx, reader, name)
		}
	}
	return slices.DeleteFunc(plans, func(p tolerate.Plan) bool { return !slices.Contains(f.daemonSets, p.NamespacedName) }), nil, nil
}

// notWaitedFor returns an error for a DaemonSet for which no gate waits.
func notWaitedFor(ctx context.Context, reader *read.Reader, name types.NamespacedName) error {
	switch ds, err := reader.DaemonSet(ctx, name.Namespace, name.Name); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("DaemonSet %s not found", name)
	case err == nil && ds.DeletionTimestamp != nil:
		return fmt.Errorf("DaemonSet %s is being deleted", name)
	}
	return fmt.Errorf("no gate waits for DaemonSet %s: check its labels and the signals of the gates", name)
}
