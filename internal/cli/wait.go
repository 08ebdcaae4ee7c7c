// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/printer"
	"github.com/nodegate/nodegate/internal/release"
	"github.com/nodegate/nodegate/internal/wait"
)

// waitFlags holds the flags of 'kubectl gate wait'.
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
		Long: "Wait until no gate holds the nodes (--for=open) or until a gate holds each of them (--for=closed). With --gate,\n" +
			"wait until that gate is open or closed. A gate in DryRun holds nothing, and a gate does not hold a node that it\n" +
			"does not select. Without --gate, gates with the effect PreferNoSchedule, which does not keep pods off nodes, do not count:\n" +
			"if there are no others, --for=closed times out. A node on which a gate is about to close, because it is new or has the\n" +
			"gate's taint already, does not count as open.\n\n" +
			"If a named node does not exist yet or is deleted, the command waits for it. With -l and --all, it also waits for\n" +
			"nodes that are created meanwhile, but not for deleted ones, and at least one node must exist.\n\n" +
			"Required permissions: list nodegates.nodegate.dev; list and watch nodes. Nothing is changed.\n\n" +
			"The exit status is 0 as soon as all nodes are open or closed at the same time, 1 if this did not happen within\n" +
			"--timeout, and 2 if it could not be determined. Progress is printed to standard error if that is a terminal.",
		Example: "  kubectl gate wait ip-10-0-3-17 --timeout=5m\n" +
			"  kubectl gate wait -l pool=gpu --gate driver --for=open --timeout=10m\n" +
			"  kubectl gate wait --all --timeout=0   # check once",
		ValidArgsFunction: c.nodeNames,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("gate") && f.gate == "" {
				return release.ErrNoGate
			}
			return f.check(args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), c, args)
		},
	}
	flags := command.Flags()
	flags.StringVarP(&f.selector, "selector", "l", "", "label selector of the nodes")
	flags.BoolVar(&f.all, "all", false, "wait for all nodes")
	flags.StringVar(&f.gate, "gate", "", "name of the only gate to wait for (default all gates)")
	flags.StringVar(&f.want, "for", wait.Open, "open or closed")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long to wait; 0 checks once, a negative value waits for a week")
	f.addFlags(flags, formatName)
	_ = command.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{wait.Open, wait.Closed}, cobra.ShellCompDirectiveNoFileComp)) // fails only if the flag does not exist
	return command
}

// check rejects invalid flags and arguments before any request is sent.
func (f *waitFlags) check(args []string) error {
	ways := 0
	for _, way := range []bool{len(args) > 0, f.selector != "", f.all} {
		if way {
			ways++
		}
	}
	if ways != 1 {
		return errors.New("specify nodes either by name, with -l or with --all")
	}
	if _, err := labels.Parse(f.selector); err != nil {
		return fmt.Errorf("-l %q is not a valid label selector: %w", f.selector, err)
	}
	if f.want != wait.Open && f.want != wait.Closed {
		return fmt.Errorf("invalid --for=%s: use %s or %s", f.want, wait.Open, wait.Closed)
	}
	return f.output.check()
}

// limit returns how long to wait.
func (f *waitFlags) limit() time.Duration {
	if f.timeout < 0 {
		return 7 * 24 * time.Hour
	}
	return f.timeout
}

func (f *waitFlags) run(ctx context.Context, c *connection, args []string) error {
	config, err := c.config()
	if err != nil {
		return err
	}
	reader, err := read.NewReader(config)
	if err != nil {
		return err
	}
	names, err := parseNodeNames(args)
	if err != nil {
		return err
	}
	declared, installed, err := declaredGates(ctx, reader)
	if err != nil {
		return err
	}
	w := &waiter{waitFlags: f, tracker: wait.New(f.want, f.gate, names, gateset.Reported(declared)), installed: installed}
	if warning := w.tracker.Warning(); warning != "" {
		fmt.Fprintf(c.streams.ErrOut, "warning: gate %s %s\n", f.gate, gate.Printable(warning))
	}
	if err := w.wait(ctx, c, reader, names); err != nil {
		return err
	}
	answer := w.tracker.Result()
	text := answer.Text
	if f.format == formatName {
		text = answer.Names
	}
	if err := f.print(ctx, c.streams.Out, answer, text); err != nil {
		return err
	}
	if !answer.Met {
		if f.format == "" || f.format == formatName {
			fmt.Fprintf(c.streams.ErrOut, "timed out after %s: %s\n", f.limit(), w.tracker.Progress())
		}
		return errNo
	}
	return nil
}

// waiter waits for nodes according to the flags.
type waiter struct {
	*waitFlags
	tracker *wait.Tracker
	// installed specifies whether the API server serves NodeGates.
	installed bool
}

// wait waits until the nodes are in the desired state or the timeout expires.
func (w *waiter) wait(ctx context.Context, c *connection, reader *read.Reader, names []string) error {
	selection := read.NodeSelection{Labels: w.selector}
	if len(names) == 1 {
		selection.Name = names[0]
	}
	if w.timeout == 0 {
		nodes, err := reader.NodeTaints(ctx, selection)
		if err != nil {
			return describeRequestError(err)
		}
		w.tracker.Start(byName(nodes), reader.Now())
		return w.checkGate()
	}
	config, err := c.config()
	if err != nil {
		return err
	}
	config.Timeout = 0 // it would also limit the duration of a watch
	watcher, err := read.NewReader(config)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, w.limit())
	defer cancel()
	return w.follow(ctx, bounded, watcher, selection, newProgressLine(c.streams.ErrOut))
}

// follow watches the nodes until they are in the desired state or the context bounded
// ends.
func (w *waiter) follow(ctx, bounded context.Context, reader *read.Reader, selection read.NodeSelection, line *progressLine) error {
	defer line.clear()
	var wrong error
	onChange := func(nodes map[string]*gate.Node, name string) bool {
		first := name == ""
		if first {
			w.tracker.Start(nodes, reader.Now())
		} else {
			w.tracker.Update(name, nodes[name], reader.Now())
		}
		if met := w.tracker.Met(); met || first {
			if wrong = w.checkGate(); met || wrong != nil {
				return true
			}
		}
		line.show(w.tracker.Progress())
		return false
	}
	var failure atomic.Pointer[error] // the last one
	err := reader.WatchNodeTaints(bounded, selection, onChange, func(err error) {
		if failure.Store(&err); err != nil {
			line.show("cannot reach the API server, retrying: " + printer.OneLine(err))
		}
	})
	switch {
	case wrong != nil:
		return wrong
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case errors.Is(err, context.DeadlineExceeded):
		return cmp.Or(w.stateUnknown(ptr.Deref(failure.Load(), nil)), w.checkGate())
	case err != nil:
		return describeRequestError(err)
	}
	return w.checkGate()
}

// stateUnknown returns an error if the state of the nodes is not known when the timeout expires.
// failure is the error of the last request for them, if it failed.
func (w *waiter) stateUnknown(failure error) error {
	switch known := w.tracker.Started(); {
	case known && failure != nil:
		return fmt.Errorf("timed out after %s, and the nodes can no longer be read: %w; last known state: %s", w.limit(), describeRequestError(failure), w.tracker.Progress())
	case failure != nil:
		return describeRequestError(failure)
	case !known:
		return errors.New("the nodes could not be read within --timeout")
	}
	return nil
}

// checkGate returns an error if the gate is neither declared nor has a record on any of
// the nodes, or if NodeGates are not served and the nodes have no records. It returns nil while a
// named node does not exist: a gate from a file is known only from records.
func (w *waiter) checkGate() error {
	switch {
	case !w.tracker.AllExist():
		return nil
	case !w.installed && w.tracker.NoRecords():
		return fmt.Errorf("%w, and the nodes have no gate records", errNotInstalled)
	case w.gate == "":
		return nil
	}
	return checkGateNames([]string{w.gate}, w.tracker.Gates())
}

func byName(nodes []*gate.Node) map[string]*gate.Node {
	all := make(map[string]*gate.Node, len(nodes))
	for _, n := range nodes {
		all[n.Name] = n
	}
	return all
}
