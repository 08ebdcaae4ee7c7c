// SPDX-License-Identifier: Apache-2.0

// Command nodegate-cluster runs a real Kubernetes control plane with simulated
// nodes on this machine: see package testcluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/command"
)

const usage = `Usage:
  nodegate-cluster up [flags]   start a cluster, print the path of its kubeconfig, run until Ctrl-C

Run "nodegate-cluster up -h" for the flags.
`

func main() {
	command.Main("nodegate-cluster", func(ctx context.Context, args []string) error {
		return run(ctx, args, os.Stdout, os.Stderr)
	})
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return errors.New("no command given")
	}
	switch name, args := args[0], args[1:]; name {
	case "up":
		return up(ctx, args, stdout, stderr)
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, usage)
		return nil
	default:
		return fmt.Errorf("unknown command %q; the only command is up", name)
	}
}

// up starts a cluster and keeps it until ctx ends.
func up(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var options testcluster.Options
	flags := flag.NewFlagSet("nodegate-cluster up", flag.ContinueOnError)
	flags.StringVar(&options.KubernetesVersion, "kubernetes-version", "",
		"one of "+strings.Join(testcluster.Versions(), ", ")+" (default $NODEGATE_KUBERNETES_VERSION, or else the newest)")
	flags.Func("components", "components to run besides etcd and the API server, such as kube-scheduler,kwok; "+
		"kube-apiserver for none (default all)", func(value string) error {
		options.Components = nil
		for name := range strings.SplitSeq(value, ",") {
			options.Components = append(options.Components, testcluster.Component(name))
		}
		return nil
	})
	flags.StringVar(&options.Dir, "dir", "", "directory for state, logs and credentials (default a temporary one)")
	flags.IntVar(&options.APIServerPort, "port", 0, "port of the API server on 127.0.0.1 (default a free one)")
	flags.BoolVar(&options.Audit, "audit", false, "write an audit log")
	if err := command.ParseFlags(flags, args, stdout); err != nil {
		return err
	}
	options.Progress = stderr
	c, err := testcluster.Start(ctx, options)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, c.Kubeconfig())
	fmt.Fprintf(stderr, "Use it with:   export KUBECONFIG=%s\n", quoted(c.Kubeconfig()))
	if options.Audit {
		fmt.Fprintf(stderr, "Audit log:     %s\n", c.AuditLog())
	}
	fmt.Fprintf(stderr, "Logs:          %s    Press Ctrl-C to stop.\n", c.Dir()+"/logs")
	select {
	case <-ctx.Done():
		fmt.Fprintln(stderr, "stopping")
		return c.Stop()
	case <-c.Done():
		return errors.Join(c.Err(), c.Stop())
	}
}

// quoted returns the path as a shell reads it.
func quoted(path string) string {
	if !strings.ContainsFunc(path, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-", r)
	}) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
