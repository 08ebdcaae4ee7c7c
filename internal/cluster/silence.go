// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

const conditionsPath = "/status/conditions"

// errSpeaks means that the decision is wrong, and must not be written.
var errSpeaks = errors.New("putting node.kubernetes.io/out-of-service on a node whose Ready condition is not known to be Unknown")

// testSilence guards a patch that takes a node out of service. What we know may
// be minutes old, if our watch has stalled, and volumes of a living node must not
// be detached: the API server applies the patch only while the node is in the
// same silence that the decision rests on, and in its cloud's word if it is given.
func testSilence(n *gate.Node, want []corev1.Taint) ([]operation, error) {
	isOutOfService := func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintOutOfService }
	if !slices.ContainsFunc(want, func(t corev1.Taint) bool { return isOutOfService(t) && index(n.Taints, t) < 0 }) {
		return nil, nil
	}
	i := slices.IndexFunc(n.Conditions, func(c gate.Condition) bool { return c.Type == string(corev1.NodeReady) })
	if i < 0 || n.Conditions[i].Status != corev1.ConditionUnknown {
		return nil, errSpeaks
	}
	ready := conditionsPath + "/" + strconv.Itoa(i)
	ops := []operation{
		test(ready+"/type", string(corev1.NodeReady)),
		test(ready+"/status", string(corev1.ConditionUnknown)),
	}
	// The same silence, not a later one that has only just begun.
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
