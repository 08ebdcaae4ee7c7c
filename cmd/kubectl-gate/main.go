// SPDX-License-Identifier: Apache-2.0

// Command kubectl-gate is a plugin of kubectl ("kubectl gate") for whoever runs
// a cluster with gates. Under the name kubectl_complete-gate it completes what is
// typed.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"

	"github.com/nodegate/nodegate/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)   // a second signal ends the process at once
	klog.SetLogger(logr.Discard()) // what client-go has to say of a failing watch is said by the verbs, in one line
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(cli.Execute(ctx, streams, cli.Arguments(os.Args)))
}
