// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
)

// What can be waited for.
const (
	waitOpen   = "open"
	waitClosed = "closed"
)

// waitFlags are what 'kubectl gate wait' was told.
type waitFlags struct {
	output
	selector, gate, want string
	all                  bool
	timeout              time.Duration
}

func newWait(c *connection) *cobra.Command {
	var f waitFlags
	command := &cobra.Command{
		Use:   "wait (NODE... | -l SELECTOR | --all)",
		Short: "Wait until gates are open or closed on nodes",
		Long: "Wait until no gate holds the nodes (--for=open), or one does (--for=closed); with --gate, until that gate is\n" +
			"open or closed. A gate in DryRun holds nothing, and a node that a gate does not select is not held by it. A\n" +
			"new node that a gate is about to close on is not open.\n\n" +
			"A node that is named and does not exist yet, or is deleted meanwhile, is waited for. With -l and --all, nodes\n" +
			"that come meanwhile are waited for too and deleted ones are not, and one node at least has to be there.\n\n" +
			"It takes the rights to list nodegates.nodegate.dev, and to list and watch nodes. Nothing is changed.\n\n" +
			"The exit status is 0 as soon as all of the nodes are so at the same time, 1 if that was not the case within\n" +
			"--timeout, and 2 if it could not be found out. Progress is told on standard error, on a terminal.",
		Example: "  kubectl gate wait ip-10-0-3-17 --timeout=5m\n" +
			"  kubectl gate wait -l pool=gpu --gate driver --for=open --timeout=10m\n" +
			"  kubectl gate wait --all --timeout=0   # look once",
		ValidArgsFunction: c.nodeNames,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("gate") && f.gate == "" {
				return errNoGate
			}
			return f.check(args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), c, args)
		},
	}
	flags := command.Flags()
	flags.StringVarP(&f.selector, "selector", "l", "", "wait for the nodes that this label selector selects")
	flags.BoolVar(&f.all, "all", false, "wait for all nodes")
	flags.StringVar(&f.gate, "gate", "", "wait for this gate only")
	flags.StringVar(&f.want, "for", waitOpen, "open or closed")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long to wait; 0 looks once, and less waits for a week")
	f.addFlags(flags, formatName)
	_ = command.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{waitOpen, waitClosed}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return command
}

// check refuses what cannot be meant, before anything is asked.
func (f *waitFlags) check(args []string) error {
	ways := 0
	for _, way := range []bool{len(args) > 0, f.selector != "", f.all} {
		if way {
			ways++
		}
	}
	if ways != 1 {
		return errors.New("say which nodes: by name, by -l, or --all")
	}
	if _, err := labels.Parse(f.selector); err != nil {
		return fmt.Errorf("-l %q is no label selector: %w", f.selector, err)
	}
	if f.want != waitOpen && f.want != waitClosed {
		return fmt.Errorf("there is no --for=%s: choose %s or %s", f.want, waitOpen, waitClosed)
	}
	return f.output.check()
}

func (f *waitFlags) run(ctx context.Context, c *connection, args []string) error {
	config, err := c.config()
	if err != nil {
		return err
	}
	reader, err := cluster.NewReader(config)
	if err != nil {
		return err
	}
	names, err := nodesOf(args)
	if err != nil {
		return err
	}
	declared, installed, err := declaredGates(ctx, reader)
	if err != nil {
		return err
	}
	w := newWaiting(f.want, f.gate, names, declared)
	w.installed = installed
	if warning := w.warning(); warning != "" {
		fmt.Fprintf(c.streams.ErrOut, "warning: gate %s %s\n", f.gate, gate.Printable(warning))
	}
	if err := w.wait(ctx, c, reader, f); err != nil {
		return err
	}
	answer := w.result()
	if err := f.print(c.streams.Out, answer, func() string { return answer.text(f.format) }); err != nil {
		return err
	}
	if !answer.Met {
		if f.format == "" || f.format == formatName {
			fmt.Fprintf(c.streams.ErrOut, "timed out after %s: %s\n", max(f.timeout, 0), w.progress())
		}
		return errNo
	}
	return nil
}

// wait waits until the nodes are as wanted, or the time is over.
func (w *waiting) wait(ctx context.Context, c *connection, reader *cluster.Reader, f *waitFlags) error {
	selection := cluster.Selection{Labels: f.selector}
	if len(w.names) == 1 {
		selection.Name = w.names[0]
	}
	if f.timeout == 0 {
		nodes, err := reader.Roster(ctx, selection)
		if err != nil {
			return unanswered(err)
		}
		w.begin(byName(nodes))
		return w.check()
	}
	config, err := c.config()
	if err != nil {
		return err
	}
	config.Timeout = 0 // a watch lasts
	watcher, err := cluster.NewReader(config)
	if err != nil {
		return err
	}
	timeout := f.timeout
	if timeout < 0 {
		timeout = 7 * 24 * time.Hour
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return w.follow(ctx, bounded, watcher, selection, newProgressLine(c.streams.ErrOut))
}

// follow watches until the nodes are as wanted, or the bounded context ends.
func (w *waiting) follow(ctx, bounded context.Context, reader *cluster.Reader, selection cluster.Selection, line *progressLine) error {
	defer line.clear()
	var wrong error
	tell := func(nodes map[string]*gate.Node, name string) bool {
		first := name == ""
		if first {
			w.begin(nodes)
		} else {
			w.note(name, nodes[name])
		}
		if met := w.met(); met || first {
			if wrong = w.check(); met || wrong != nil {
				return true
			}
		}
		line.show(w.progress())
		return false
	}
	var failure lastError
	err := reader.Follow(bounded, selection, tell, func(err error) {
		failure.set(err)
		line.show("the API server does not answer, asking again: " + oneLine(err))
	})
	switch {
	case wrong != nil:
		return wrong
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case errors.Is(err, context.DeadlineExceeded) && !w.begun && failure.get() != nil:
		return unanswered(failure.get())
	case errors.Is(err, context.DeadlineExceeded) && !w.begun:
		return errors.New("the nodes could not be read within --timeout")
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		return unanswered(err)
	}
	return nil
}

// check refuses a gate that neither is declared nor has left a record on any of the
// nodes, and nodes without any record where there may be no gates at all.
func (w *waiting) check() error {
	if !w.installed && len(w.nodes) > 0 && !w.recorded() {
		return fmt.Errorf("%w, and the nodes have no record of one", errNotInstalled)
	}
	if w.gate == "" || w.sight.gate(w.gate) != nil {
		return nil
	}
	known := make(map[string]bool)
	for i := range w.sight.gates {
		known[w.sight.gates[i].Name] = true
	}
	for _, n := range w.nodes {
		for name := range n.records {
			known[name] = true
		}
	}
	if known[w.gate] {
		return nil
	}
	return noSuchGate(w.gate, slices.Sorted(maps.Keys(known)))
}

// recorded tells whether a gate has left a record on any of the nodes.
func (w *waiting) recorded() bool {
	for _, n := range w.nodes {
		if len(n.records) > 0 {
			return true
		}
	}
	return false
}

func byName(nodes []*gate.Node) map[string]*gate.Node {
	all := make(map[string]*gate.Node, len(nodes))
	for _, n := range nodes {
		all[n.Name] = n
	}
	return all
}

// compileBlind compiles gates whose signals are not looked at.
func compileBlind(declared []v1alpha1.NodeGate) *sight {
	s := compile(declared)
	s.blindfold()
	return s
}
