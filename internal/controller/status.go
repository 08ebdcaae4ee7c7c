// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
)

// statusInterval bounds how often a gate's status is written: counts change
// with every node, and nobody reads them faster.
const statusInterval = time.Second

// reportStatus keeps the gates' status up to date until the context ends.
func (c *Controller) reportStatus(ctx context.Context) {
	ticker := c.clock.NewTicker(statusInterval)
	defer ticker.Stop()
	written := make(map[types.UID]v1alpha1.NodeGateStatus)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		set := c.set.Load()
		for _, name := range set.names() {
			if err := c.writeStatus(ctx, set, set.declared[name], written); err != nil && ctx.Err() == nil {
				c.log.Error(err, "cannot write status, retrying", "gate", name)
			}
		}
	}
}

// writeStatus writes a gate's status if it is not what was written last.
func (c *Controller) writeStatus(ctx context.Context, set *gateSet, ng *v1alpha1.NodeGate, written map[types.UID]v1alpha1.NodeGateStatus) error {
	last, known := written[ng.UID]
	if !known {
		last = ng.Status
	}
	summary := c.tally.summary(ng.Name)
	c.metrics.gateNodes(ng.Name, summary.counts)
	status := c.status(ctx, set, ng, last, summary)
	if apiequality.Semantic.DeepEqual(last, status) {
		return nil
	}
	body, err := statusPatch(&status)
	if err != nil {
		return err
	}
	target := &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: ng.Name}}
	err = c.client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, body))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patching status: %w", err)
	}
	written[ng.UID] = status
	return nil
}

// statusPatch is a merge patch that replaces the status. Lists are named even
// when they are empty, for a merge patch leaves alone what it does not name.
func statusPatch(status *v1alpha1.NodeGateStatus) ([]byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return nil, fmt.Errorf("converting status: %w", err)
	}
	for _, list := range []string{"conditions", "waiting"} {
		if _, ok := content[list]; !ok {
			content[list] = nil
		}
	}
	body, err := json.Marshal(map[string]any{"status": content})
	if err != nil {
		return nil, fmt.Errorf("marshalling status: %w", err)
	}
	return body, nil
}

// status says how a gate fares.
func (c *Controller) status(ctx context.Context, set *gateSet, ng *v1alpha1.NodeGate, last v1alpha1.NodeGateStatus, s summary) v1alpha1.NodeGateStatus {
	out := *last.DeepCopy()
	out.ObservedGeneration, out.Nodes, out.Waiting = ng.Generation, s.counts, s.waiting
	condition := func(kind string, holds bool, reason, message string) {
		status := metav1.ConditionFalse
		if holds {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&out.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: ng.Generation,
		})
	}
	a := set.acceptance[ng.Name]
	condition(v1alpha1.ConditionAccepted, a.Accepted, a.Reason, a.Message)
	ready, reason, message := c.ready(set, ng)
	condition(v1alpha1.ConditionReady, ready, reason, message)
	c.metrics.birthProved(ng.Name, c.birth.proved(ng.Name) == nil)
	if len(s.throttled) > 0 {
		condition(v1alpha1.ConditionThrottled, true, v1alpha1.ReasonThrottled, fmt.Sprintf(
			"closing waits on %s: as many nodes of their zone are closed as budget.maxReclosed (%s) allows",
			listNodes(s.throttled), ng.Spec.Budget.MaxReclosed.String()))
	} else {
		meta.RemoveStatusCondition(&out.Conditions, v1alpha1.ConditionThrottled)
	}
	switch {
	case len(s.contended) == 0:
		meta.RemoveStatusCondition(&out.Conditions, v1alpha1.ConditionContended)
	case !meta.IsStatusConditionTrue(out.Conditions, v1alpha1.ConditionContended):
		condition(v1alpha1.ConditionContended, true, v1alpha1.ReasonContended, fmt.Sprintf(
			"another writer keeps undoing the taint on %s; %s", listNodes(s.contended), c.otherWriter(ctx, s.contended[0])))
	}
	return out
}

// ready says whether all is well with a gate, in the order in which things
// have to be put right.
func (c *Controller) ready(set *gateSet, ng *v1alpha1.NodeGate) (ok bool, reason, message string) {
	if a := set.acceptance[ng.Name]; !a.Accepted {
		return false, v1alpha1.ReasonNotAccepted, a.Message
	}
	if err := c.feed.GatesError(); err != nil {
		return false, v1alpha1.ReasonFeedsNotSynced, err.Error()
	}
	if unsynced := c.feed.Unsynced(); len(unsynced) > 0 {
		return false, v1alpha1.ReasonFeedsNotSynced, "not observed yet: " + strings.Join(unsynced, ", ")
	}
	g, known := set.gate(ng.Name)
	if !known {
		return false, v1alpha1.ReasonFeedsNotSynced, "the gate is not compiled yet"
	}
	for _, s := range g.Signals {
		if r := signal.Diagnose(s.Signal, g.Taint, c.feed.DaemonSets()); r.State == gate.NotYet {
			return false, string(r.Reason), fmt.Sprintf("signal %s: %s", s.Name, r.Message())
		}
	}
	if err := c.birth.proved(ng.Name); err != nil {
		return false, v1alpha1.ReasonBirthNotProved, err.Error()
	}
	return true, v1alpha1.ReasonReady, "new nodes are closed by the API server, and everything that opens them is observed"
}

// otherWriter names who wrote the node's taints last, apart from us.
func (c *Controller) otherWriter(ctx context.Context, node string) string {
	var n corev1.Node
	if err := c.client.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
		return "who that is could not be read"
	}
	var newest *metav1.ManagedFieldsEntry
	for i := range n.ManagedFields {
		e := &n.ManagedFields[i]
		if e.Manager == cluster.FieldManager || e.FieldsV1 == nil || !strings.Contains(string(e.FieldsV1.GetRawBytes()), `"f:taints"`) {
			continue
		}
		if newest == nil || newest.Time.Before(e.Time) {
			newest = e
		}
	}
	if newest == nil {
		return "no other field manager of spec.taints is recorded"
	}
	return fmt.Sprintf("the last other writer of spec.taints is %q: have it leave this key alone", newest.Manager)
}

// listNodes names a few nodes.
func listNodes(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
