// SPDX-License-Identifier: Apache-2.0

// Command nodegate keeps pods off Kubernetes nodes until the nodes are fit for
// them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/internal/convert"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := newRoot().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "nodegate:", oneLine(err))
		os.Exit(1)
	}
}

// oneLine says an error in one line, also if it is several that were joined.
func oneLine(err error) string {
	var parts []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			parts = append(parts, line)
		}
	}
	return strings.Join(parts, "; ")
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:     "nodegate",
		Short:   "Keep pods off Kubernetes nodes until the nodes are fit for them",
		Version: version(),
		// One clear line for an error; the usage is there with --help.
		SilenceUsage:       true,
		SilenceErrors:      true,
		DisableSuggestions: true,
	}
	root.AddCommand(newControllerCommand(), convert.NewCommand("nodegate"), newManifestsCommand(), newReleaseCommand(), newUninstallCommand())
	return root
}

// version is what the build knows of itself.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(unknown version)"
	}
	return info.Main.Version
}
