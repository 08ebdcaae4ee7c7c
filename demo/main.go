// SPDX-License-Identifier: Apache-2.0

// Command demo shows nodegate at work: it starts a real Kubernetes control plane
// on this machine, installs nodegate in it, scales out simulated nodes in waves,
// shows how gates close and open on them, and ends with a verdict that is
// computed, with e2e/judge, from etcd's revisions and the API server's audit log.
// The exit status is 0 if the verdict is PASS.
//
// Everything except the nodes is real: etcd, the API server, the scheduler, the
// controllers of DaemonSets, Deployments and nodes, and nodegate with its own
// ServiceAccount. This program simulates the nodes' kubelets (kubelet.go), each with its own identity. On
// every node two daemons become ready after times drawn from a fixed seed
// (plan.go): at different moments on most nodes, at the same one on others, and
// never on one node. The nodes of the last wave come from a cloud that sets them
// up only after their daemons are ready, so that both gates open at one moment.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/nodegate/nodegate/testcluster/command"
)

// options are the parsed command line.
type options struct {
	nodes int
	keep  bool
	plain bool
	// program is nodegate's program; empty to build it.
	program string
}

func main() {
	command.Main("demo", func(ctx context.Context, args []string) error {
		o, err := parse(args, os.Stdout)
		if err != nil {
			return err
		}
		return demonstrate(ctx, o)
	})
}

// parse parses the command line. If help is requested, it prints the help and
// returns flag.ErrHelp.
func parse(args []string, help io.Writer) (*options, error) {
	var o options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.IntVar(&o.nodes, "nodes", 60, "number of nodes to simulate, from 8 to 500")
	flags.BoolVar(&o.keep, "keep", false, "keep everything running after the verdict, until Ctrl-C")
	flags.BoolVar(&o.plain, "plain", false, "print lines instead of a table, also on a terminal")
	flags.StringVar(&o.program, "nodegate", "", "nodegate's program (default: build it)")
	switch err := command.ParseFlags(flags, args, help); {
	case err != nil:
		return nil, err
	case o.nodes < 2*waveCount || o.nodes > 500:
		return nil, fmt.Errorf("--nodes is %d and must be from %d to 500", o.nodes, 2*waveCount)
	}
	return &o, nil
}
