// SPDX-License-Identifier: Apache-2.0

package write

import (
	"errors"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// errNotUnreachable is returned for a decision that must not be written because it is
// wrong.
var errNotUnreachable = errors.New("adding taint node.kubernetes.io/out-of-service to a node whose Ready condition is not known to be Unknown")

// testUnreachable returns the tests for a patch that takes a node out of service. If the
// watch has stalled, the facts may be minutes old, and volumes of a node that is alive
// must not be detached. Therefore the API server applies the patch only if the node has
// been unreachable since the time that the decision is based on and, if the decision is
// based on the cloud's shutdown taint, still has that taint.
func testUnreachable(n *gate.Node, want []corev1.Taint) ([]operation, error) {
	isOutOfService := func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintOutOfService }
	if !slices.ContainsFunc(want, func(t corev1.Taint) bool { return isOutOfService(t) && indexOf(n.Taints, t) < 0 }) {
		return nil, nil
	}
	i := slices.IndexFunc(n.Conditions, func(c gate.Condition) bool { return c.Type == string(corev1.NodeReady) })
	if i < 0 || n.Conditions[i].Status != corev1.ConditionUnknown {
		return nil, errNotUnreachable
	}
	ready := conditionsPath + "/" + strconv.Itoa(i)
	ops := []operation{
		test(ready+"/type", string(corev1.NodeReady)),
		test(ready+"/status", string(corev1.ConditionUnknown)),
	}
	// The same transition, not a later one that has only just happened.
	if since := n.Conditions[i].Transition; !since.IsZero() {
		ops = append(ops, test(ready+"/lastTransitionTime", since.UTC().Format(time.RFC3339)))
	}
	for i, t := range n.Taints {
		if t.Key == v1alpha1.TaintCloudShutdown {
			ops = append(ops, test(taintsPath+"/"+strconv.Itoa(i)+"/key", t.Key))
		}
	}
	return ops, nil
}
