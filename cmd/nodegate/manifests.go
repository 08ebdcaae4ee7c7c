// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/install"
	"github.com/nodegate/nodegate/presets"
)

// Defaults of the installation.
const (
	defaultNamespace      = v1alpha1.DefaultNamespace
	defaultServiceAccount = "nodegate"
)

// birthFlag adds the flag --birth, which must be the same for both commands.
func birthFlag(flags *pflag.FlagSet, birth *admission.Birth) {
	flags.StringVar((*string)(birth), "birth", string(admission.ByPolicy), "what closes gates on new nodes: "+
		"'policy' (a policy of the API server, Kubernetes 1.36 or later) or 'webhook' (a webhook of nodegate); must be the same for 'manifests' and 'controller'")
}

// metricsSecureFlag adds the flag --metrics-secure, which must be the same for both commands.
func metricsSecureFlag(flags *pflag.FlagSet, secure *bool) {
	flags.BoolVar(secure, "metrics-secure", true, "serve metrics and /nodes/<name> with TLS, to clients that the API server authorizes; "+
		"if false, serve them with plain HTTP, to every client that can reach the port; must be the same for 'manifests' and 'controller'")
}

// allowedTaintKeysFlag adds the flag --allowed-taint-keys, which must be the same for both
// commands: the policies restrict the controller to these taints, and the controller accepts
// only gates with these taints.
func allowedTaintKeysFlag(flags *pflag.FlagSet, keys *[]string) {
	flags.StringSliceVar(keys, "allowed-taint-keys", presets.TaintKeys(),
		"comma-separated taints that gates may use, each as key:Effect, or as key for key:NoSchedule; replaces the taints of the presets; must be the same for 'manifests' and 'controller'")
}

// allowedStampAnnotationsFlag adds the flag --allowed-stamp-annotations, which must be the
// same for both commands.
func allowedStampAnnotationsFlag(flags *pflag.FlagSet, keys *[]string) {
	flags.StringSliceVar(keys, "allowed-stamp-annotations", nil,
		"comma-separated node annotations that gates may use as openedAtAnnotation; must be the same for 'manifests' and 'controller'")
}

func plainOptOutFlag(flags *pflag.FlagSet, allowed *bool) {
	flags.BoolVar(allowed, "allow-plain-opt-out", false, fmt.Sprintf(
		"make the label %s=%s, which every kubelet can set on its own Node, exclude Nodes from all gates like %s; must be the same for 'manifests' and 'controller'",
		v1alpha1.PlainOptOutLabel, v1alpha1.OptOutValue, v1alpha1.OptOutLabel))
}

func newManifestsCommand() *cobra.Command {
	options := install.Options{Namespace: defaultNamespace, ServiceAccount: defaultServiceAccount}
	var metricsSecure bool
	var observe []string
	command := &cobra.Command{
		Use:     "manifests",
		Short:   "Print the objects that nodegate requires in a cluster: CRD, RBAC and admission policies",
		Example: "  nodegate manifests | kubectl apply --server-side -f -",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.OpenMetrics = !metricsSecure
			for _, resource := range observe {
				options.Observe = append(options.Observe, schema.ParseGroupResource(resource))
			}
			return install.Write(cmd.OutOrStdout(), options)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.Namespace, "namespace", options.Namespace, "namespace in which nodegate is installed")
	flags.StringVar(&options.ServiceAccount, "service-account", options.ServiceAccount, "name of nodegate's ServiceAccount")
	flags.BoolVar(&options.EvictPods, "evict-pods", false,
		"permit nodegate to evict pods through the Eviction API, which gates with bypassedPods: Evict require")
	flags.BoolVar(&options.NodeConditions, "node-conditions", false,
		"permit nodegate to write the node conditions of gates with deadline.condition: Publish, on which remediation controllers act")
	flags.StringSliceVar(&observe, "observe", nil,
		"comma-separated resources that nodegate may read, as RESOURCE.GROUP, such as ciliumnodes.cilium.io, for gates with object signals")
	flags.BoolVar(&options.GuardDaemonPods, "guard-daemon-pods", false,
		"add a policy that permits only the DaemonSet controller to create pods of DaemonSets, so that other pods cannot count as theirs")
	flags.StringSliceVar(&options.DaemonPodCreators, "daemon-pod-creators", nil,
		"comma-separated additional users that may create such pods with --guard-daemon-pods, such as backup tools and operators with their own kind of DaemonSet")
	flags.BoolVar(&options.WithoutCRD, "without-crd", false,
		"omit the CRD and the permissions for it, for a controller with --gates")
	metricsSecureFlag(flags, &metricsSecure)
	birthFlag(flags, &options.Birth)
	allowedTaintKeysFlag(flags, &options.AllowedTaintKeys)
	allowedStampAnnotationsFlag(flags, &options.AllowedStampAnnotations)
	plainOptOutFlag(flags, &options.PlainOptOut)
	return command
}
