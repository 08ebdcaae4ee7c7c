// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nodegate/nodegate/internal/install"
)

// The names under which nodegate is installed if nothing else is said.
const (
	defaultNamespace      = "nodegate-system"
	defaultServiceAccount = "nodegate"
)

// allowedTaintKeysFlag must say the same to both commands: what the policies
// let the controller change, and what the controller lets gates ask for.
func allowedTaintKeysFlag(flags *pflag.FlagSet, keys *[]string) {
	flags.StringSliceVar(keys, "allowed-taint-keys", nil,
		"the taint keys that gates may use, separated by commas; give the same list to 'manifests' and 'controller'")
}

func newManifestsCommand() *cobra.Command {
	options := install.Options{Namespace: defaultNamespace, ServiceAccount: defaultServiceAccount}
	command := &cobra.Command{
		Use:   "manifests",
		Short: "Print what nodegate needs in a cluster: CRD, RBAC and admission policies",
		Example: "  nodegate manifests --allowed-taint-keys node.cilium.io/agent-not-ready | " +
			"kubectl apply --server-side -f -",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return install.Write(cmd.OutOrStdout(), options)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.Namespace, "namespace", options.Namespace, "the namespace of nodegate")
	flags.StringVar(&options.ServiceAccount, "service-account", options.ServiceAccount, "the ServiceAccount that nodegate runs as")
	allowedTaintKeysFlag(flags, &options.AllowedTaintKeys)
	if err := command.MarkFlagRequired("allowed-taint-keys"); err != nil {
		panic(err) // the flag is defined above
	}
	return command
}
