// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/lint"
	"github.com/nodegate/nodegate/internal/printer"
)

func newLint(c *connection) *cobra.Command {
	var o output
	var f files
	command := &cobra.Command{
		Use:   "lint [GATE... | -f FILE]",
		Short: "Find problems of gates and of what they depend on",
		Long: "Find problems of gates: daemons and operators that do not tolerate a taint, Karpenter NodePools and autoscalers that\n" +
			"do not know a taint key, selectors on labels that are set late, other writers of a key, budgets, and what the\n" +
			"descheduler, Kueue and topologySpreadConstraints do because of a taint. The command checks all gates of the cluster,\n" +
			"or the named ones, or those in files as if they were applied. Nothing is changed. docs/lint.md explains every finding.\n\n" +
			"Required permissions: list nodegates.nodegate.dev. The checks also read nodes, daemonsets, deployments, statefulsets,\n" +
			"cronjobs, nodepools.karpenter.sh, resourceflavors.kueue.x-k8s.io, nodereadinessrules, validatingadmissionpolicies,\n" +
			"mutatingadmissionpolicies and their bindings, clusterroles, configmaps named cilium-config, and those that deschedulers\n" +
			"mount.\n" +
			"For what cannot be read, the output lists the findings that may be missing.\n\n" +
			"The exit status is 0 if there are no findings other than notes, 1 if there is an error or a warning, and 2 if this\n" +
			"could not be determined.",
		Example: "  kubectl gate lint\n  kubectl gate lint -f gate.yaml\n  kubectl gate lint cilium -o json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && len(f.names) > 0 {
				return fmt.Errorf("%s takes gate names or files, not both", cmd.CommandPath())
			}
			if i := slices.IndexFunc(args, isManifest); i >= 0 {
				return fmt.Errorf("%q is not the name of a gate: to check the gates in a file, use -f", args[i])
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
			w, err := readWorld(cmd.Context(), reader, parseGateNames(args), applied)
			if err != nil {
				return err
			}
			return printReport(cmd.Context(), c.streams.Out, &o, lint.Of(w))
		},
	}
	command.ValidArgsFunction = c.gateNames
	o.addFlags(command.Flags())
	f.addFlags(command.Flags())
	return command
}

// errNotAllRead is returned if lint has no findings but could not read everything. The
// process then exits with exitError.
var errNotAllRead = errors.New("no errors or warnings were found, but not everything could be read: see what was not checked")

// printReport prints the report and returns an error according to its findings.
func printReport(ctx context.Context, out io.Writer, o *output, r *lint.Report) error {
	if err := o.print(ctx, out, r, r.Text); err != nil {
		return err
	}
	switch {
	case r.Bad():
		return errNo
	case len(r.Gaps) > 0:
		return errNotAllRead
	}
	return nil
}

// readWorld reads what the gates depend on: the named gates, the applied gates, or all
// gates.
func readWorld(ctx context.Context, reader *read.Reader, names []string, applied []v1alpha1.NodeGate) (*lint.World, error) {
	w := &lint.World{Unread: make(map[lint.Kind]error)}
	declared, installed, err := declaredGates(ctx, reader)
	switch {
	case err != nil:
		return nil, err
	case !installed && len(applied) == 0: // gates in files can be checked before nodegate is installed
		return nil, errNotInstalled
	}
	w.Gates = declared
	if len(names) > 0 {
		if err := checkGateNames(names, namesOf(declared)); err != nil {
			return nil, err
		}
		w.Checked = make(map[string]bool)
		for _, name := range names {
			w.Checked[name] = true
		}
	}
	if len(applied) > 0 {
		replaceGates(w, applied)
	}
	if len(w.Gates) > 0 {
		readCluster(ctx, reader, w)
	}
	return w, nil
}

// replaceGates adds the gates from files to the declared ones, replaces those of the
// same name, and limits the checks to them. A gate that does not exist yet counts as created
// now, in full seconds as by the API server: of two conflicting gates, the older one is accepted,
// or for gates of the same age, the one whose name sorts first. What the status of a gate says about
// other writers does not apply to a gate with other taints, and what it says about contradictions
// does not apply if any gate changes.
func replaceGates(w *lint.World, applied []v1alpha1.NodeGate) {
	w.Checked = make(map[string]bool)
	now, changed := metav1.Now().Rfc3339Copy(), false
	for i := range applied {
		w.Checked[applied[i].Name] = true
		at := slices.IndexFunc(w.Gates, func(g v1alpha1.NodeGate) bool { return g.Name == applied[i].Name })
		if at < 0 {
			applied[i].CreationTimestamp = now
			w.Gates = append(w.Gates, applied[i])
			continue
		}
		is := &w.Gates[at]
		applied[i].CreationTimestamp, applied[i].Status = is.CreationTimestamp, is.Status
		if !slices.Equal(applied[i].Spec.Taints(), is.Spec.Taints()) {
			forget(&applied[i], v1alpha1.ReasonContended)
		}
		changed = changed || !equality.Semantic.DeepEqual(applied[i].Spec, is.Spec)
		*is = applied[i]
	}
	for i := range w.Gates {
		if changed { // the change may end the contradiction
			forget(&w.Gates[i], v1alpha1.ReasonGatesContradict)
		}
	}
}

// forget removes the gate's condition Contended if it has this reason.
func forget(g *v1alpha1.NodeGate, reason string) {
	g.Status.Conditions = slices.DeleteFunc(slices.Clone(g.Status.Conditions), func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionContended && c.Reason == reason
	})
}

// samplesMax is the maximum number of complete Nodes that are read to find out which
// writers set which fields.
const samplesMax = 100

// readCluster reads everything except gates. It records read errors in w.Unread.
func readCluster(ctx context.Context, reader *read.Reader, w *lint.World) {
	note := func(kind lint.Kind, err error) {
		if err != nil {
			w.Unread[kind] = errors.New(printer.OneLine(err))
		}
	}
	policy, allowedErr, managedErr := keyPolicy(ctx, reader, w.Gates)
	w.Policy = policy
	note(lint.TaintKeys, allowedErr)
	note(lint.ReadinessRules, managedErr)
	var err error
	if w.Nodes, err = reader.AllNodeFacts(ctx, nil); err == nil {
		w.Samples, err = reader.SomeNodes(ctx, samplesMax)
	}
	note(lint.Nodes, err)
	var gaps []read.Error
	w.DaemonSets, gaps = reader.DaemonSets(ctx, w.DaemonSetNamespaces())
	for i := range gaps {
		note(lint.DaemonSets, gaps[i].Err)
	}
	w.Deployments, err = reader.Deployments(ctx)
	note(lint.Deployments, err)
	w.TolerationsPolicy, err = reader.HasMutatingPolicy(ctx, admission.TolerationsPolicy)
	note(lint.TolerationsPolicy, err)
	agent, err := reader.AgentRole(ctx)
	note(lint.AgentRole, err)
	w.AgentMissing = agent == nil && err == nil
	w.UnconfinedAgent, err = reader.AgentUnconfined(ctx, agent)
	note(lint.AgentPolicy, err)
	w.NodePools, err = reader.Others(ctx, read.NodePools)
	note(lint.NodePools, err)
	w.CiliumConfigs = make(map[string]map[string]string)
	for _, namespace := range w.CiliumNamespaces() {
		w.CiliumConfigs[namespace], err = reader.ConfigMap(ctx, namespace, "cilium-config")
		note(lint.CiliumConfig, err)
	}
	readNeighbours(ctx, reader, w, note)
}

// readNeighbours reads what other controllers do because of a taint.
func readNeighbours(ctx context.Context, reader *read.Reader, w *lint.World, note func(lint.Kind, error)) {
	var err error
	w.StatefulSets, err = reader.StatefulSets(ctx)
	note(lint.StatefulSets, err)
	w.ResourceFlavors, err = reader.Others(ctx, read.ResourceFlavors)
	note(lint.ResourceFlavors, err)
	cronJobs, err := reader.CronJobs(ctx)
	note(lint.CronJobs, err)
	w.DeschedulerPolicies, err = deschedulerPolicies(ctx, reader, deschedulerConfigMaps(w.Deployments, cronJobs))
	note(lint.DeschedulerPolicies, err)
}
