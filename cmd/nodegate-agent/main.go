// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command nodegate-agent runs in a pod on each node. It writes which gates are closed on the
// node, and which of its pods wait for them, for nodegate-hold, which keeps these from starting.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/nodegate/nodegate/internal/hold"
	"github.com/nodegate/nodegate/internal/hold/agent"
	"github.com/nodegate/nodegate/internal/kube/jsonclient"
	"github.com/nodegate/nodegate/internal/logind"
)

// gcPercent limits garbage to a fifth of the memory in use: the agent allocates little.
const gcPercent = 20

func main() {
	hold.WithoutHugePages()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		// The runtime keeps memory for each processor, of which large machines have hundreds.
		runtime.GOMAXPROCS(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "nodegate-agent:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	a, err := newAgent(os.Args[1:])
	if err != nil {
		return err
	}
	if a.Client, err = jsonclient.InCluster(userAgent()); err != nil {
		return fmt.Errorf("configuring the client: %w", err)
	}
	return a.Run(ctx)
}

// newAgent returns the agent for its arguments, without a client.
func newAgent(args []string) (*agent.Agent, error) {
	flags := flag.NewFlagSet("nodegate-agent", flag.ExitOnError)
	node := flags.String("node-name", os.Getenv("NODE_NAME"), "name of the node; defaults to the variable NODE_NAME")
	dir := flags.String("state-dir", hold.Dir, "directory on the node in which the agent stores its state")
	bootID := flags.String("boot-id-file", hold.BootIDFile, "file with the ID of the current boot")
	announce := flags.Bool("announce-shutdowns", false, "delay shutdowns until the node's gates are closed, which requires systemd-logind and its bus")
	_ = flags.Parse(args) // exits on errors
	if *node == "" || flags.NArg() > 0 {
		return nil, errors.New("--node-name is required, and there are no arguments")
	}
	boot, err := hold.BootID(*bootID)
	if err != nil {
		return nil, err
	}
	a := &agent.Agent{
		Node: *node, Boot: boot, Uptime: hold.Uptime, Store: hold.Store{Dir: *dir}, Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	}
	if *announce {
		a.Bus = logind.Socket
	}
	return a, nil
}

// userAgent identifies the agent in the API server's log. Its first part is the field manager of
// the agent's patches.
func userAgent() string {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	return fmt.Sprintf("nodegate-agent/%s (%s/%s)", version, runtime.GOOS, runtime.GOARCH)
}
