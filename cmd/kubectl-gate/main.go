// SPDX-License-Identifier: Apache-2.0

// Command kubectl-gate is a kubectl plugin ("kubectl gate") for operators of clusters with
// gates. Under the name kubectl_complete-gate, it completes command lines.
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
	context.AfterFunc(ctx, stop)   // a second signal ends the process immediately
	klog.SetLogger(logr.Discard()) // verbs report errors of client-go in one line
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(cli.Execute(ctx, streams, cli.Arguments(os.Args)))
}
