// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
)

// FieldManager is the name under which Nodes are written: not the controller's,
// which would take such a write for one of its own.
const FieldManager = "nodegate-release"

// parallel is how many nodes are written at a time.
const parallel = 16

// A DryRun says how much of a change is made.
type DryRun string

const (
	// DryRunNone makes it.
	DryRunNone DryRun = ""
	// DryRunClient sends nothing that changes anything.
	DryRunClient DryRun = "client"
	// DryRunServer has the API server check every change, and keep none.
	DryRunServer DryRun = "server"
)

// ParseDryRun reads the value of a flag --dry-run, in kubectl's words.
func ParseDryRun(mode string) (DryRun, error) {
	switch mode {
	case "", "none":
		return DryRunNone, nil
	case string(DryRunClient), string(DryRunServer):
		return DryRun(mode), nil
	}
	return "", fmt.Errorf("there is no --dry-run=%s: choose none, %s or %s", mode, DryRunClient, DryRunServer)
}

// DryRunUsage says what the values of a flag --dry-run mean.
const DryRunUsage = "none, client (say what would be changed, and send nothing) or server (have the API server check it, and keep nothing)"

// Server is the DryRun of the options of a request.
func (d DryRun) Server() []string {
	if d == DryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// Suffix is what kubectl puts behind a line that says what was done.
func (d DryRun) Suffix() string {
	switch d {
	case DryRunClient:
		return " (dry run)"
	case DryRunServer:
		return " (server dry run)"
	}
	return ""
}

// Options say what is to be released.
type Options struct {
	// Nodes are the names of the nodes to release; none stands for all nodes.
	Nodes []string
	// Gates are the names of the gates to release them from; none stands for all
	// gates.
	Gates []string
	// Namespace is where nodegate runs, if it does.
	Namespace string
	// DryRun says how much of it is done.
	DryRun DryRun
	// Force releases also from gates that exist while nodegate runs.
	Force bool
	// Progress, if not nil, is told how many nodes are done of those that there are
	// to do, by one goroutine at a time.
	Progress func(done, of int)
}

// names tells whether a gate is to be released.
func (o *Options) names(name string) bool {
	return len(o.Gates) == 0 || slices.Contains(o.Gates, name)
}

// NoSuchNodeError says that a node that was named does not exist.
type NoSuchNodeError struct {
	// Node is its name.
	Node string
}

// Error implements error.
func (e *NoSuchNodeError) Error() string { return fmt.Sprintf("there is no node %q", e.Node) }

// Run releases nodes. It fails before it has changed anything, or because the
// context ended; then the report says what was done until then, and another run
// goes on from there. That a node could not be released is told by the report.
func Run(ctx context.Context, config *rest.Config, o Options) (*Report, error) {
	r, err := newReleaser(config, o)
	if err != nil {
		return nil, err
	}
	nodes, err := r.find(ctx)
	if err != nil {
		return nil, err
	}
	report := &Report{DryRun: o.DryRun, Nodes: []Node{}}
	if len(nodes) > 0 {
		s, err := survey(ctx, config, o.Namespace)
		if err != nil {
			return nil, err
		}
		remarks, refusal := s.judge(nodes, &o)
		switch {
		case refusal != nil && o.DryRun == DryRunNone:
			return nil, refusal
		case refusal != nil:
			remarks = append(remarks, "without --dry-run this would be refused: "+refusal.Error())
		}
		report.Remarks = remarks
	}
	return report, r.release(ctx, nodes, report)
}

// nodeReader reads Nodes. It is what a cluster.Reader does.
type nodeReader interface {
	NodeFacts(ctx context.Context, name string) (*gate.Node, error)
	AllNodeFacts(ctx context.Context, wanted func(*gate.Node) bool) ([]*gate.Node, error)
}

type releaser struct {
	Options
	reader nodeReader
	writer cluster.Applier
	// patience is how a write is tried again.
	patience wait.Backoff
}

// patience is how often, and after how long, the write of one node is tried again.
var patience = wait.Backoff{Steps: 8, Duration: 20 * time.Millisecond, Factor: 2.5, Jitter: 0.5, Cap: 5 * time.Second}

func newReleaser(config *rest.Config, o Options) (*releaser, error) {
	reader, err := cluster.NewReader(config)
	if err != nil {
		return nil, err
	}
	writer, err := cluster.NewWriterAs(config, metav1.PatchOptions{FieldManager: FieldManager, DryRun: o.DryRun.Server()})
	if err != nil {
		return nil, err
	}
	return &releaser{Options: o, reader: reader, writer: writer, patience: patience}, nil
}

// find returns the nodes that there is something to do about, or to tell of.
func (r *releaser) find(ctx context.Context) ([]*gate.Node, error) {
	concerned := func(n *gate.Node) bool {
		d := gate.Release(n, r.names)
		return d.Changes || len(d.Kept) > 0
	}
	if len(r.Nodes) == 0 {
		return r.reader.AllNodeFacts(ctx, concerned)
	}
	var nodes []*gate.Node
	for _, name := range slices.Compact(slices.Sorted(slices.Values(r.Nodes))) {
		n, err := r.reader.NodeFacts(ctx, name)
		switch {
		case apierrors.IsNotFound(err):
			return nil, &NoSuchNodeError{Node: name}
		case err != nil:
			return nil, err
		case concerned(n):
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}

// release releases the nodes, some at a time, and writes into the report what came
// of it.
func (r *releaser) release(ctx context.Context, nodes []*gate.Node, report *Report) error {
	var (
		mu      sync.Mutex
		workers sync.WaitGroup
		done    int
	)
	work := make(chan *gate.Node)
	for range min(parallel, len(nodes)) {
		workers.Go(func() {
			for n := range work {
				out := r.one(ctx, n)
				mu.Lock()
				if done++; out != nil {
					report.Nodes = append(report.Nodes, *out)
				}
				if r.Progress != nil {
					r.Progress(done, len(nodes))
				}
				mu.Unlock()
			}
		})
	}
	for _, n := range nodes {
		if ctx.Err() == nil {
			work <- n
		}
	}
	close(work)
	workers.Wait()
	slices.SortFunc(report.Nodes, func(a, b Node) int { return cmp.Compare(a.Node, b.Node) })
	if ctx.Err() != nil {
		return fmt.Errorf("stopped after %d of %d nodes; run it again to go on", report.released(), len(nodes))
	}
	return nil
}

// one releases one node: what is to go is decided anew as long as somebody else
// changes the node meanwhile. It returns nil where nothing was left to do.
func (r *releaser) one(ctx context.Context, n *gate.Node) *Node {
	name := n.Name
	var out *Node
	var last error
	_ = wait.ExponentialBackoffWithContext(ctx, r.patience, func(ctx context.Context) (bool, error) {
		if last != nil {
			if n, last = r.reader.NodeFacts(ctx, name); last != nil {
				return r.settled(&last), nil
			}
		}
		d := gate.Release(n, r.names)
		if out = newNode(name, &d); d.Changes && r.DryRun != DryRunClient {
			_, last = r.writer.Apply(ctx, n, &d.Decision)
		}
		return r.settled(&last), nil
	}) // last says more than its error
	if last != nil {
		return &Node{Node: name, Error: last.Error()}
	}
	return out
}

// settled tells whether another try would come to the same. A node that is gone is
// as good as released.
func (r *releaser) settled(err *error) bool {
	if apierrors.IsNotFound(*err) {
		*err = nil
	}
	return *err == nil || errors.Is(*err, cluster.ErrDenied) || apierrors.IsForbidden(*err)
}

// newNode tells of what is decided about a node; nil where that is nothing.
func newNode(name string, d *gate.Released) *Node {
	if !d.Changes && len(d.Kept) == 0 {
		return nil
	}
	out := &Node{Node: name, Gates: d.Gates, Kept: d.Kept}
	for _, t := range d.Taken {
		out.Taints = append(out.Taints, gate.TaintText(v1alpha1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}))
	}
	return out
}

// listed says names in a row, of many only the first.
func listed(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d others", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
