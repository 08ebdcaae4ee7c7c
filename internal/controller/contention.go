// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/writers"
)

// writerRetry is the interval at which the nodes are read again until one of them has a field
// manager of the other writer. nodegate becomes the only one whenever it restores the taint.
const writerRetry = 10 * time.Second

// contention is what condition Contended reports.
type contention struct {
	nodes string // the nodes, as text
	// writer describes the other writer, and what to do.
	writer string
	// retryAt is when the nodes are read again, or zero if a field manager was found.
	retryAt time.Time
}

// identifyWriter updates a gate's contention to the contended nodes.
func (r *reporter) identifyWriter(ctx context.Context, ng *v1alpha1.NodeGate, last *reported, nodes *fleet.NameList) {
	c, names, now := &last.contention, nodes.String(), r.clock.Now()
	if nodes.Count == 0 {
		*c = contention{}
		return
	}
	if c.nodes == names && (c.retryAt.IsZero() || now.Before(c.retryAt)) {
		return
	}
	writer, found := r.otherWriter(ctx, nodes.First)
	*c = contention{nodes: names, writer: writer + knownWriters(&ng.Spec)}
	if !found {
		c.retryAt = now.Add(writerRetry)
	}
}

// otherWriter describes the last writer of the taints of one of the nodes other than nodegate,
// and reports whether a node has a field manager of that writer.
func (r *reporter) otherWriter(ctx context.Context, nodes []string) (text string, found bool) {
	for _, name := range nodes {
		var n corev1.Node
		if err := r.client.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			text = "reading the node to identify the writer failed"
			continue
		}
		if manager := taintManager(&n); manager != "" {
			return fmt.Sprintf("the last other writer of spec.taints is %q: configure it not to change this taint", manager), true
		}
		why := "no other field manager of spec.taints is recorded"
		if len(n.Spec.Taints) == 0 {
			why = "the API server does not record which field manager removed the last taint of a node"
		}
		text = fmt.Sprintf("%s: look for other users' updates and patches of node %s in the API server's audit log", why, name)
	}
	return text, false
}

// taintManager returns the field manager that last wrote the taints of a node, or "". nodegate
// does not count, and neither do programs that write other taints only. A field manager owns
// only fields that exist. A writer that empties the list owns nothing, and leaves no entry.
func taintManager(n *corev1.Node) string {
	var newest *metav1.ManagedFieldsEntry
	for i := range n.ManagedFields {
		e := &n.ManagedFields[i]
		if e.Manager == v1alpha1.FieldManager || writesOwnTaints(e.Manager) {
			continue
		}
		if e.FieldsV1 == nil || !strings.Contains(string(e.FieldsV1.GetRawBytes()), `"f:taints"`) {
			continue
		}
		if newest == nil || newest.Time.Before(e.Time) {
			newest = e
		}
	}
	if newest == nil {
		return ""
	}
	return newest.Manager
}

// writesOwnTaints reports whether a field manager is a part of Kubernetes that writes no
// taints but its own on Nodes that exist. Lists of taints have one owner, so it is recorded for
// all taints of a node after every cordon, and whenever a node is not ready for a moment.
func writesOwnTaints(manager string) bool {
	return manager == "kube-controller-manager" || manager == "kubelet" || strings.HasSuffix(manager, "cloud-controller-manager")
}

// knownWriters describes the well-known programs that write a gate's taints.
func knownWriters(spec *v1alpha1.NodeGateSpec) (text string) {
	keys := []string{spec.Taint.Key}
	if t := spec.RecloseTaint; t != nil && t.Key != spec.Taint.Key {
		keys = append(keys, t.Key)
	}
	for _, key := range keys {
		for _, w := range writers.Of(key) {
			text += fmt.Sprintf("; %s can be configured to write %s: %s", w.Program, key, w.How)
		}
	}
	return text
}
