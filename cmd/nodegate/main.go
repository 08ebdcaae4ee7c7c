// SPDX-License-Identifier: Apache-2.0

// Command nodegate keeps pods off Kubernetes nodes until the nodes are ready for them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/internal/convert"
	"github.com/nodegate/nodegate/internal/printer"
	"github.com/nodegate/nodegate/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	if err := newRoot().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "nodegate:", printer.OneLine(err))
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:     "nodegate",
		Short:   "Keep pods off Kubernetes nodes until the nodes are ready for them",
		Version: version.Get(),
		// Errors are printed as one line. The usage is available with --help.
		SilenceUsage:       true,
		SilenceErrors:      true,
		DisableSuggestions: true,
	}
	root.AddCommand(newControllerCommand(), convert.NewCommand("nodegate"), newCopyCommand(), newManifestsCommand(), newReleaseCommand(), newUninstallCommand(),
		newWebhookCertificateCommand())
	return root
}
