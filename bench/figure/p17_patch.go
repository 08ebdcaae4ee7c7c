// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/bench/child"
	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/write"
)

var patching = Figure{
	ID: "P17", Title: "Costs of the API server for one PATCH that opens a node, by the PATCH's operations",
	Measure: measurePatches,
}

// patchRounds is the maximum number of rounds. Allocations, which decide here, vary little.
const patchRounds = 3

// patched is the latency of each PATCH in ms.
const patched = "latency"

// A patchPart names operations of nodegate's PATCH, by prefixes of their paths.
type patchPart struct {
	what  string
	paths []string
}

// patchParts are the parts of nodegate's PATCH. Each variant consists of the parts up to
// one of them. The first is what the limit sends.
var patchParts = []patchPart{
	{"the limit's: test of the taint's key, removal", []string{"/spec/taints/0/key", "/spec/taints/0"}},
	{"and tests of the taint's effect and value", []string{"/spec/taints/0/effect", "/spec/taints/0/value"}},
	{"and test of the Node's UID", []string{"/metadata/uid"}},
	{"and test of its boot ID", []string{"/status/nodeInfo/bootID"}},
	{"and test and change of the gate's record: nodegate's", []string{"/metadata/annotations/"}},
}

// patchOperation is an operation of a JSON patch.
type patchOperation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

func measurePatches(ctx context.Context, e *Env) (r report.Result, err error) {
	if err := e.Prepare(ctx, 1, nil); err != nil {
		return r, err
	}
	if err := e.Reset(ctx, nil, len(e.Fleet.Nodes())); err != nil {
		return r, err
	}
	client, err := child.Client(e.limitConfig)
	if err != nil {
		return r, err
	}
	node, err := client.CoreV1().Nodes().Get(ctx, e.Fleet.Nodes()[0], metav1.GetOptions{})
	if err != nil {
		return r, fmt.Errorf("reading a node: %w", err)
	}
	variants, err := patchVariants(node)
	if err != nil {
		return r, err
	}
	var nothing counters
	for range 2 { // the second time, the servers have allocated their buffers
		if nothing, err = e.countServers(ctx, func() error { return nil }); err != nil {
			return r, err
		}
	}
	passes, err := e.patchPasses(variants, func(body []byte) (report.Sample, error) {
		return e.patchTurn(ctx, client, node.Name, body, nothing)
	})
	if err != nil {
		return r, err
	}
	r.Rows = patchRows(passes)
	r.Notes = []string{
		fmt.Sprintf("The limit here is the PATCH that the limit sends: %s. Each row adds operations to those of the row before; the last is nodegate's whole PATCH. CPU and allocations are those of API server and etcd, with nodegate's policies, for one PATCH.", strings.TrimPrefix(patchParts[0].what, "the limit's: ")),
		fmt.Sprintf("One node is patched in a dry run, which changes nothing, %d times in a row for each variant: forwards and backwards in each round. The write to etcd and events to watches are the same for all variants except for the length of the record.", e.Patches),
		"Times are those of the client. The values of a ratio are from the same pass over all variants, but not from successive turns.",
	}
	return r, nil
}

// patchRows returns the rows of all variants but the first, with which they are compared.
func patchRows(passes []outcome[[]report.Sample]) (rows []report.Row) {
	for i, part := range patchParts[1:] {
		against := make([]report.Pair, len(passes))
		for n, p := range passes {
			against[n] = report.Pair{Nodegate: p.result[i+1], Limit: p.result[0], Disturbed: p.disturbed}
		}
		rows = append(rows,
			report.Compare(part.what+": CPU", "ms", against, serverCPU, report.Mean, nil),
			report.Compare(part.what+": allocated", "KiB", report.Counts(against), serverAllocated, report.Mean, nil),
			report.Compare(part.what+": p50", "ms", against, patched, report.Percentile(50), nil))
	}
	return rows
}

// patchVariants returns the bodies of the variants of the PATCH that opens a node.
func patchVariants(node *corev1.Node) ([][]byte, error) {
	whole, err := openingPatch(node)
	if err != nil {
		return nil, err
	}
	var operations []patchOperation
	if err := json.Unmarshal(whole, &operations); err != nil {
		return nil, fmt.Errorf("decoding nodegate's patch: %w", err)
	}
	var bodies [][]byte
	used := 0
	for last := range patchParts {
		var some []patchOperation
		for _, o := range operations {
			if slices.ContainsFunc(patchParts[:last+1], func(p patchPart) bool { return p.contains(o.Path) }) {
				some = append(some, o)
			}
		}
		if used == len(some) {
			return nil, fmt.Errorf("nodegate's patch contains nothing of %q: %s", patchParts[last].what, whole)
		}
		used = len(some)
		body, err := json.Marshal(some)
		if err != nil {
			return nil, fmt.Errorf("encoding a patch: %w", err)
		}
		bodies = append(bodies, body)
	}
	if used != len(operations) {
		return nil, fmt.Errorf("nodegate's patch has %d operations, but its parts have %d: %s", len(operations), used, whole)
	}
	return bodies, nil
}

func (p *patchPart) contains(path string) bool {
	return slices.ContainsFunc(p.paths, func(own string) bool {
		return path == own || strings.HasSuffix(own, "/") && strings.HasPrefix(path, own)
	})
}

// openingPatch returns the PATCH with which nodegate opens a node that the gate keeps closed.
func openingPatch(node *corev1.Node) ([]byte, error) {
	key := v1alpha1.RecordAnnotationPrefix + fixture.Daemon
	closed := node.Annotations[key]
	record, err := gate.ParseRecord(closed)
	if err != nil {
		return nil, fmt.Errorf("parsing the record of %s: %w", node.Name, err)
	}
	bootID := node.Status.NodeInfo.BootID
	record.State, record.Reason, record.Boot, record.Since = v1alpha1.StateOpen, v1alpha1.ReasonSignalsHold, bootID, time.Now()
	n := &gate.Node{
		Name: node.Name, UID: node.UID, BootID: bootID, Taints: node.Spec.Taints,
		HasAnnotations: true, Records: map[string]string{fixture.Daemon: closed},
	}
	return write.Patch(n, &gate.Decision{
		Changes: true, Records: map[string]string{fixture.Daemon: record.String()},
		Verdicts: []gate.Verdict{{Gate: fixture.Daemon, Before: v1alpha1.StateClosed, After: v1alpha1.StateOpen}},
	})
}

// patchPasses measures all variants, forwards and then backwards in each round. Each pass
// has one sample per variant.
func (e *Env) patchPasses(variants [][]byte, turn func(body []byte) (report.Sample, error)) (all []outcome[[]report.Sample], err error) {
	rounds, err := repeat(&e.referee, min(e.Rounds, patchRounds), func(int) (both [][]report.Sample, err error) {
		for _, backwards := range []bool{false, true} {
			samples := make([]report.Sample, len(variants))
			err := e.referee.turn(func() (err error) { // turns of variants are too short
				for i := range variants {
					if backwards {
						i = len(variants) - 1 - i
					}
					if samples[i], err = turn(variants[i]); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
			both = append(both, samples)
		}
		return both, nil
	})
	for _, o := range rounds {
		for _, samples := range o.result {
			all = append(all, outcome[[]report.Sample]{samples, o.disturbed})
		}
	}
	return all, err
}

// patchTurn sends one variant repeatedly. What counting costs by itself is subtracted.
func (e *Env) patchTurn(ctx context.Context, client kubernetes.Interface, node string, body []byte, nothing counters) (report.Sample, error) {
	options := metav1.PatchOptions{FieldManager: v1alpha1.FieldManager, DryRun: []string{metav1.DryRunAll}}
	patch := func() error {
		_, err := client.CoreV1().Nodes().Patch(ctx, node, types.JSONPatchType, body, options)
		if err != nil {
			return fmt.Errorf("patching a node in a dry run: %w", err)
		}
		return nil
	}
	if err := patch(); err != nil { // replaces what the previous turn left in caches
		return nil, err
	}
	sample := report.Sample{}
	used, err := e.countServers(ctx, func() error {
		for range e.Patches {
			began := time.Now()
			if err := patch(); err != nil {
				return err
			}
			sample.Add(patched, milliseconds(time.Since(began)))
		}
		return nil
	})
	for quantity, total := range used {
		sample.Add(quantity, (total-nothing[quantity])/float64(e.Patches))
	}
	return sample, err
}
