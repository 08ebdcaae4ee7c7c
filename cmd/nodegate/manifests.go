// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/install"
	"github.com/nodegate/nodegate/presets"
)

// The names under which nodegate is installed if nothing else is said.
const (
	defaultNamespace      = v1alpha1.DefaultNamespace
	defaultServiceAccount = "nodegate"
)

// birthFlag must say the same to both commands, too.
func birthFlag(flags *pflag.FlagSet, birth *admission.Birth) {
	flags.StringVar((*string)(birth), "birth", string(admission.ByPolicy), "who closes gates on new nodes: "+
		"'policy', the API server itself (Kubernetes 1.36 or newer), or 'webhook', nodegate when asked; give the same to 'manifests' and 'controller'")
}

// allowedTaintKeysFlag must say the same to both commands: what the policies
// let the controller change, and what the controller lets gates ask for.
func allowedTaintKeysFlag(flags *pflag.FlagSet, keys *[]string) {
	flags.StringSliceVar(keys, "allowed-taint-keys", presets.TaintKeys(),
		"the taints that gates may use, separated by commas, each as key:Effect or, for NoSchedule, as key, instead of those of the presets; give the same list to 'manifests' and 'controller'")
}

// allowedStampAnnotationsFlag must say the same to both commands, too.
func allowedStampAnnotationsFlag(flags *pflag.FlagSet, keys *[]string) {
	flags.StringSliceVar(keys, "allowed-stamp-annotations", nil,
		"the node annotations that gates may name as openedAtAnnotation, separated by commas; give the same list to 'manifests' and 'controller'")
}

func newManifestsCommand() *cobra.Command {
	options := install.Options{Namespace: defaultNamespace, ServiceAccount: defaultServiceAccount}
	command := &cobra.Command{
		Use:     "manifests",
		Short:   "Print what nodegate needs in a cluster: CRD, RBAC and admission policies",
		Example: "  nodegate manifests | kubectl apply --server-side -f -",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return install.Write(cmd.OutOrStdout(), options)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.Namespace, "namespace", options.Namespace, "the namespace of nodegate")
	flags.StringVar(&options.ServiceAccount, "service-account", options.ServiceAccount, "the ServiceAccount that nodegate runs as")
	flags.BoolVar(&options.EvictPods, "evict-pods", false,
		"let nodegate evict pods, through the Eviction API; gates with bypassedPods: Evict need it")
	flags.BoolVar(&options.WithoutCRD, "without-crd", false,
		"leave out the CRD and the rights that go with it; run the controller with --gates")
	birthFlag(flags, &options.Birth)
	allowedTaintKeysFlag(flags, &options.AllowedTaintKeys)
	allowedStampAnnotationsFlag(flags, &options.AllowedStampAnnotations)
	return command
}
