// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// FieldManager is the field manager for writes to Nodes. It differs from the
// controller's, which would otherwise treat these writes as its own.
const FieldManager = "nodegate-release"

// parallel is the number of nodes that are written concurrently.
const parallel = 16

// A DryRun specifies whether changes are sent and persisted.
type DryRun string

const (
	// DryRunNone sends changes, and the API server persists them.
	DryRunNone DryRun = ""
	// DryRunClient sends no changes.
	DryRunClient DryRun = "client"
	// DryRunServer sends changes, and the API server validates but does not persist them.
	DryRunServer DryRun = "server"
)

// ParseDryRun parses the value of a flag --dry-run, which are those of kubectl.
func ParseDryRun(mode string) (DryRun, error) {
	switch mode {
	case "", "none":
		return DryRunNone, nil
	case string(DryRunClient), string(DryRunServer):
		return DryRun(mode), nil
	}
	return "", fmt.Errorf("invalid --dry-run=%s: use none, %s or %s", mode, DryRunClient, DryRunServer)
}

// DryRunUsage is the usage text of a flag --dry-run.
const DryRunUsage = "none, client (only print what would change) or server (send dry-run requests, which the API server does not persist)"

// Server returns the value of DryRun in the options of a request.
func (d DryRun) Server() []string {
	if d == DryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// Suffix returns the suffix that kubectl appends to a line about a change.
func (d DryRun) Suffix() string {
	switch d {
	case DryRunClient:
		return " (dry run)"
	case DryRunServer:
		return " (server dry run)"
	}
	return ""
}

// Options specify what to release.
type Options struct {
	// Nodes are the names of the nodes to release. Empty for all nodes.
	Nodes []string
	// Gates are the names of the gates to release. Empty for all gates.
	Gates []string
	// Namespace is the namespace in which nodegate runs or ran.
	Namespace string
	// DryRun specifies whether changes are sent and persisted.
	DryRun DryRun
	// Force also releases gates that exist while nodegate is running or may be running.
	Force bool
	// Waiting, if not nil, is called with the reason before the release waits for something.
	Waiting func(reason string)
	// Progress, if not nil, is called with the number of finished nodes and the total
	// number of nodes. Calls are not concurrent. In the last call, both numbers are equal: if
	// the release is interrupted, the total is then the number of finished nodes.
	Progress func(done, of int)
}

// ErrNoGate is returned for an empty gate name, such as that of an unset variable in a
// script. It must not select all gates.
var ErrNoGate = errors.New("--gate contains an empty gate name")

// CheckGates checks the value of a flag --gate. set specifies whether the flag is used.
func CheckGates(set bool, names []string) error {
	if set && (len(names) == 0 || slices.Contains(names, "")) {
		return ErrNoGate
	}
	return nil
}

// names reports whether a gate is to be released.
func (o *Options) names(name string) bool {
	return len(o.Gates) == 0 || slices.Contains(o.Gates, name)
}

// NoSuchNodeError is returned when a named node does not exist.
type NoSuchNodeError struct {
	// Node is the name of the node.
	Node string
}

// Error implements error.
func (e *NoSuchNodeError) Error() string { return fmt.Sprintf("node %q not found", e.Node) }

// Run releases nodes. It returns an error if it failed before changing anything, or if
// the context ended. In the latter case, it also returns the report, and another run
// continues. Errors of single nodes are in the report only.
func Run(ctx context.Context, config *rest.Config, o Options) (*Report, error) {
	r, err := newReleaser(config, o)
	if err != nil {
		return nil, err
	}
	nodes, report, err := r.prepare(ctx, config)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, errors.New("stopped before any node was changed; run the command again")
	case err != nil:
		return nil, err
	}
	return report, r.release(ctx, nodes, report)
}

// prepare returns the nodes to release, and a report without them. It returns an error if these
// nodes should not be released.
func (r *releaser) prepare(ctx context.Context, config *rest.Config) ([]*gate.Node, *Report, error) {
	nodes, err := r.find(ctx)
	if err != nil {
		return nil, nil, err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("creating a client for metadata: %w", err)
	}
	report := &Report{DryRun: r.DryRun, Nodes: []Node{}}
	if len(nodes) > 0 {
		s, err := survey(ctx, config, objects, &r.Options)
		if err != nil {
			return nil, nil, err
		}
		remarks, refusal := s.judge(nodes, &r.Options)
		switch {
		case refusal != nil && r.DryRun == DryRunNone:
			return nil, nil, refusal
		case refusal != nil:
			remarks = append(remarks, "without --dry-run, this would be rejected: "+refusal.Error())
		}
		report.Remarks = remarks
	}
	report.Unknown = r.unknownGates(func() (map[string]bool, error) { return existingGates(ctx, objects) })
	return nodes, report, nil
}

// nodeReader reads Nodes. read.Reader implements it.
type nodeReader interface {
	NodeFacts(ctx context.Context, name string) (*gate.Node, error)
	AllNodeFacts(ctx context.Context, wanted func(*gate.Node) bool) ([]*gate.Node, error)
}

type releaser struct {
	Options
	reader nodeReader
	writer write.Applier
	// backoff specifies the retries of a write.
	backoff wait.Backoff
	// seen contains the gates that have left something on the nodes that were read.
	seen map[string]bool
}

// backoff specifies the retries of a write to one node.
var backoff = wait.Backoff{Steps: 8, Duration: 20 * time.Millisecond, Factor: 2.5, Jitter: 0.5, Cap: 5 * time.Second}

func newReleaser(config *rest.Config, o Options) (*releaser, error) {
	reader, err := read.NewReader(config)
	if err != nil {
		return nil, err
	}
	writer, err := write.NewWriterAs(config, metav1.PatchOptions{FieldManager: FieldManager, DryRun: o.DryRun.Server()})
	if err != nil {
		return nil, err
	}
	return &releaser{Options: o, reader: reader, writer: writer, backoff: backoff}, nil
}

// find returns the nodes to change or report.
func (r *releaser) find(ctx context.Context) ([]*gate.Node, error) {
	r.seen = make(map[string]bool)
	concerned := func(n *gate.Node) bool {
		for name := range n.Records {
			r.seen[name] = true
		}
		d := gate.Release(n, r.names)
		for _, name := range d.Gates { // also those of which only an override or a condition is left
			r.seen[name] = true
		}
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

// release releases the nodes concurrently and adds the results to the report.
func (r *releaser) release(ctx context.Context, nodes []*gate.Node, report *Report) error {
	var (
		mu      sync.Mutex
		workers sync.WaitGroup
		done    int
	)
	if r.Progress == nil {
		r.Progress = func(int, int) {}
	}
	work := make(chan *gate.Node)
	for range min(parallel, len(nodes)) {
		workers.Go(func() {
			for n := range work {
				out, finished := r.one(ctx, n)
				mu.Lock()
				if out != nil {
					report.Nodes = append(report.Nodes, *out)
				}
				if finished {
					done++
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
		r.Progress(done, done)
		return fmt.Errorf("stopped after %d of %d nodes; run the command again to continue", report.released(), len(nodes))
	}
	return nil
}

// one releases one node. If another writer changes the node meanwhile, it reads the node
// and decides again. It returns nil if there was nothing to do. If the answer of a write is lost,
// the node shows whether the write was carried out. finished is false if the release was interrupted.
func (r *releaser) one(ctx context.Context, n *gate.Node) (out *Node, finished bool) {
	name := n.Name
	var last error
	var lost *attempt
	written := false // everything except conditions
	stopped := wait.ExponentialBackoffWithContext(ctx, r.backoff, func(ctx context.Context) (bool, error) {
		if last != nil {
			if n, last = r.reader.NodeFacts(ctx, name); last != nil {
				return r.isFinal(&last), nil
			}
		}
		d := gate.Release(n, r.names)
		if written = written || lost.carriedOut(n, &d); !written {
			out = newNode(name, &d)
		}
		if d.Changes && r.DryRun != DryRunClient {
			if last = r.write(ctx, n, &d, &written); write.IsUncertain(last) {
				lost = &attempt{n.UID, d}
			}
		}
		return r.isFinal(&last), nil
	}) // its error is less specific than last
	finished = stopped == nil || ctx.Err() == nil
	switch {
	case last == nil:
	case written:
		out.Error = "the conditions could not be removed: " + last.Error()
	default:
		out = &Node{Node: name, Error: last.Error()}
	}
	return out, finished
}

// write writes a decision. Conditions, if there are any, need a second write. It sets written
// when the first one has succeeded.
func (r *releaser) write(ctx context.Context, n *gate.Node, d *gate.Released, written *bool) error {
	_, err := r.writer.Apply(ctx, n, &d.Decision)
	if *written = *written || err == nil; err != nil || len(d.Conditions) == 0 || onlyConditions(d) || r.DryRun != DryRunNone {
		return err
	}
	if n, err = r.reader.NodeFacts(ctx, n.Name); err != nil {
		return err
	}
	rest := gate.Release(n, r.names)
	_, err = r.writer.Apply(ctx, n, &rest.Decision)
	return err
}

// onlyConditions reports whether a decision writes at most conditions.
func onlyConditions(d *gate.Released) bool { return len(d.Records)+len(d.Withdrawn) == 0 }

// attempt is a write whose answer was lost, so that it may have been carried out.
type attempt struct {
	uid      types.UID
	decision gate.Released
}

// carriedOut reports whether the write was carried out, given the node that was read after it and what
// is left on it. A write that contains more than conditions does not remove these.
func (a *attempt) carriedOut(n *gate.Node, left *gate.Released) bool {
	if a == nil || a.uid != n.UID {
		return false
	}
	return !left.Changes || onlyConditions(left) && !onlyConditions(&a.decision)
}

// isFinal reports whether another attempt would have the same result. A node that no
// longer exists counts as released.
func (r *releaser) isFinal(err *error) bool {
	denied := errors.Is(*err, write.ErrDenied)
	if apierrors.IsNotFound(*err) && !denied {
		*err = nil
	}
	return *err == nil || denied || apierrors.IsForbidden(*err)
}

// newNode returns the result for a node, or nil if there is nothing to do.
func newNode(name string, d *gate.Released) *Node {
	if !d.Changes && len(d.Kept) == 0 {
		return nil
	}
	out := &Node{Node: name, Gates: d.Gates, Kept: d.Kept}
	for _, t := range d.Removed {
		out.Taints = append(out.Taints, gate.TaintText(v1alpha1.TaintOf(t)))
	}
	return out
}

// listed joins the first few names and counts the rest.
func listed(names []string) string { return gate.FirstNames(names[:min(5, len(names))], len(names)) }
