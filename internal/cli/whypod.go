// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/pending"
	"github.com/nodegate/nodegate/internal/printer"
	"github.com/nodegate/nodegate/internal/report"
)

// workload is an argument of 'kubectl gate why' that names a pod, or an object that creates
// pods.
type workload struct{ kind, namespace, name string }

// workloadKinds are the kinds of workloads, by the names that kubectl accepts.
var workloadKinds = map[string]string{
	"pod": "pod", "pods": "pod", "po": "pod",
	"deployment": "deployment", "deployments": "deployment", "deploy": "deployment", "deployment.apps": "deployment", "deployments.apps": "deployment",
}

// parseWorkload parses KIND/NAMESPACE/NAME. ok is false if the argument may name a node.
func parseWorkload(arg string) (w workload, ok bool, err error) {
	kind, rest, _ := strings.Cut(arg, "/")
	w.namespace, w.name, _ = strings.Cut(rest, "/")
	switch w.kind, ok = workloadKinds[kind]; {
	case !ok && w.name == "":
		return w, false, nil
	case !ok:
		return w, true, fmt.Errorf("%q is neither a node, pod/NAMESPACE/NAME nor deployment/NAMESPACE/NAME: for objects of other kinds, specify one of their pods", arg)
	}
	if w.namespace == "" || w.name == "" || strings.Contains(w.name, "/") {
		return w, true, fmt.Errorf("%q is not a valid %s: use %s/NAMESPACE/NAME", arg, w.kind, w.kind)
	}
	return w, true, nil
}

func (w workload) String() string { return fmt.Sprintf("%s %s/%s", w.kind, w.namespace, w.name) }

// pod returns the pod, or a pod as the object creates it.
func (w workload) pod(ctx context.Context, reader *read.Reader) (*corev1.Pod, error) {
	get := reader.Pod
	if w.kind == "deployment" {
		get = reader.PodOfDeployment
	}
	pod, err := get(ctx, w.namespace, w.name)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%s not found", w)
	}
	return pod, describeRequestError(err)
}

// explain returns which gates keep the workload's pod off nodes.
func (w workload) explain(ctx context.Context, reader *read.Reader) (*pending.Explanation, error) {
	pod, err := w.pod(ctx, reader)
	if err != nil {
		return nil, err
	}
	f := &pending.Facts{Object: w.String(), Pod: pod, Now: reader.Now()}
	if w.kind != "pod" { // the API server has not added it yet
		var unread error
		if f.Rejected, unread = reader.AddRuntimeClass(ctx, pod); unread != nil {
			f.Unread = append(f.Unread, printer.OneLine(unread))
		}
	}
	if pod.Spec.NodeName != "" || f.Rejected != "" {
		return pending.Of(f), nil
	}
	declared, installed, err := declaredGates(ctx, reader)
	if err != nil {
		return nil, err
	}
	f.Gates = gateset.Reported(declared)
	if err := readFleet(ctx, reader, f, completeSources(f.Gates, installed)); err != nil {
		return nil, err
	}
	recorded := func(n pending.Node) bool { return len(n.Facts.Node.Records) > 0 }
	if !installed && !slices.ContainsFunc(f.Nodes, recorded) {
		return nil, fmt.Errorf("%w, and no node has a gate record", errNotInstalled)
	}
	return pending.Of(f), nil
}

// readFleet reads the nodes, what their pods request, and how long gates usually took. complete
// contains the sources of gates that were read completely.
func readFleet(ctx context.Context, reader *read.Reader, f *pending.Facts, complete map[string]bool) error {
	var nodes []corev1.Node
	var facts []gate.Facts
	var gaps []read.Error
	var nodesErr, factsErr, podsErr error
	requested, pods := map[string]corev1.ResourceList{}, map[string]*gate.PodList{}
	concurrently(
		func() { nodes, nodesErr = reader.Nodes(ctx, "") },
		func() { facts, gaps, factsErr = reader.Snapshots(ctx, f.Gates.Needs) },
		func() {
			podsErr = reader.EachBoundPod(ctx, func(pod *corev1.Pod) {
				pending.Add(requested, pod)
				read.AddPod(pods, f.Now, pod)
			})
		},
	)
	if err := errors.Join(nodesErr, factsErr); err != nil {
		return describeRequestError(err)
	}
	for i := range facts {
		facts[i].CompleteSources = complete
	}
	if podsErr != nil {
		gaps = append(gaps, read.Error{Err: podsErr})
	} else {
		f.Usual = usualOpenings(f.Gates, slices.Clone(facts), pods, f.Now)
	}
	f.Unread = append(f.Unread, messages(gaps)...)
	f.Gates.SetGroups(facts, f.Now)
	byName := make(map[string]*gate.Facts, len(facts))
	for i := range facts {
		byName[facts[i].Node.Name] = &facts[i]
	}
	for i := range nodes {
		if known := byName[nodes[i].Name]; known != nil { // else it was created in between
			f.Nodes = append(f.Nodes, pending.Node{Node: &nodes[i], Facts: *known, Requested: requested[nodes[i].Name]})
		}
	}
	return nil
}

// usualOpenings returns, by gate, how long after the creation of the fleet's nodes it opened. The
// pods show which openings are not the first of their nodes.
func usualOpenings(gates *gateset.Set, all []gate.Facts, pods map[string]*gate.PodList, now time.Time) map[string]report.Spread {
	f := &report.Facts{Time: now, Gates: gates, PodsRead: true, Within: defaultWithin}
	f.Trace(all, pods, "")
	usual := map[string]report.Spread{}
	for _, g := range report.New(f).Gates {
		usual[g.Gate] = g.Opened
	}
	return usual
}
