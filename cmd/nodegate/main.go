// SPDX-License-Identifier: Apache-2.0

// Command nodegate keeps pods off Kubernetes nodes until the nodes are fit for
// them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newRoot().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "nodegate:", err)
		os.Exit(1) //nolint:gocritic // stop only resets signal handling, which ends with the process
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "nodegate",
		Short: "Keep pods off Kubernetes nodes until the nodes are fit for them",
		// One clear line for an error; the usage is there with --help.
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newControllerCommand(), newManifestsCommand())
	return root
}
