// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/read"
)

// reportNodePools reports the NodePools of Karpenter whose nodes register with the taint of a gate.
// Nothing would open these nodes. It runs before the gates and records are removed that name the
// taints. An error does not prevent that nodegate is uninstalled.
func (u *uninstaller) reportNodePools(ctx context.Context) error {
	reader, err := read.NewReader(u.config)
	if err != nil {
		return err
	}
	pools, err := reader.Others(ctx, read.NodePools)
	if err == nil && len(pools) > 0 {
		err = u.reportStartupTaints(ctx, reader, pools)
	}
	if err != nil && ctx.Err() == nil {
		u.report("warning: NodePools with startup taints of gates are not reported: %v", err)
	}
	return ctx.Err()
}

func (u *uninstaller) reportStartupTaints(ctx context.Context, reader *read.Reader, pools []unstructured.Unstructured) error {
	known, err := gateTaints(ctx, reader)
	if err != nil {
		return err
	}
	for i := range pools {
		startup := slices.DeleteFunc(startupTaints(&pools[i]), func(taint string) bool { return !known[taint] })
		if len(startup) > 0 {
			u.report("warning: NodePool %s: its nodes register with startup taints of gates (%s), and nodegate no longer removes them. "+
				"Remove them from spec.template.spec.startupTaints, unless another program removes them from nodes: see docs/runbooks/README.md#nodes-that-register-with-the-taint",
				pools[i].GetName(), strings.Join(startup, ", "))
		}
	}
	return nil
}

// gateTaints returns the taints of all gates that exist, or that have a record on a node:
// 'helm uninstall' deletes gates, but leaves records.
func gateTaints(ctx context.Context, reader *read.Reader) (map[string]bool, error) {
	taints := make(map[string]bool)
	gates, err := reader.Gates(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	for i := range gates {
		taints[gate.TaintText(gates[i].Spec.Taint)] = true
	}
	_, err = reader.AllNodeFacts(ctx, func(n *gate.Node) bool {
		for _, raw := range n.Records {
			if r, err := gate.ParseRecord(raw); err == nil {
				taints[r.Taint] = true
			}
		}
		return false
	})
	return taints, err
}

// startupTaints returns the startup taints of a NodePool, in the form of records.
func startupTaints(pool *unstructured.Unstructured) (taints []string) {
	list, _, _ := unstructured.NestedSlice(pool.Object, "spec", "template", "spec", "startupTaints")
	for _, item := range list {
		fields, _ := item.(map[string]any)
		text := func(name string) string { value, _ := fields[name].(string); return value }
		taints = append(taints, gate.TaintText(v1alpha1.Taint{Key: text("key"), Value: text("value"), Effect: corev1.TaintEffect(text("effect"))}))
	}
	return taints
}
