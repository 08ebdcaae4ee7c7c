// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/certificate"
)

func newWebhookCertificateCommand() *cobra.Command {
	var (
		at connectionFlags
		o  certificate.Options
	)
	command := &cobra.Command{
		Use:   "webhook-certificate",
		Short: "Create the certificate of the webhook of --birth=webhook and make the API server trust it",
		Long: "Create the certificate of the webhook of --birth=webhook and make the API server trust it. The command creates a\n" +
			"certificate if there is none, or if the one in the Secret that nodegate's pods mount expires in less than six months,\n" +
			"is for another host, or cannot be verified; then it says why. It stores the certificate in this Secret, and adds its\n" +
			"authority to the webhook configuration. A certificate is valid for ten years. Gates close on all nodes that are created\n" +
			"while a certificate is replaced.\n\n" +
			"The command requires an administrator's permissions on this Secret and on the MutatingWebhookConfiguration; the\n" +
			"controller has none on either. Helm does the same automatically, and cert-manager can do it instead.",
		Example: "  nodegate webhook-certificate --kubeconfig admin.kubeconfig",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := restConfig(at.kubeconfig)
			if err != nil {
				return err
			}
			if o.Client, err = client.New(config, client.Options{}); err != nil {
				return err
			}
			o.Namespace, o.Out, o.Progress = at.namespace, cmd.OutOrStdout(), cmd.ErrOrStderr()
			return certificate.Ensure(cmd.Context(), o)
		},
	}
	flags := command.Flags()
	at.add(flags)
	flags.BoolVar(&o.Renew, "renew", false, "replace a certificate that is still valid")
	return command
}
