// SPDX-License-Identifier: Apache-2.0

package install

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// unreachableSeconds is how long nodegate's pods stay on an unreachable node. It is shorter
// than the usual five minutes, so that they are replaced sooner.
const unreachableSeconds = 60

// Tolerations returns the tolerations of nodegate's own pods. They tolerate every taint that
// a gate may add, so that gates cannot keep nodegate off all nodes; the taints of a node that
// is being set up, so that nodegate runs on the first nodes; and the taint of control plane
// nodes. They do not tolerate unschedulable, so that draining a node removes nodegate.
func Tolerations(allowedTaintKeys []string) []corev1.Toleration {
	var all []corev1.Toleration
	var keys []string
	for _, text := range allowedTaintKeys {
		key, _, _ := strings.Cut(text, ":") // without the effect
		keys = append(keys, key)
	}
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		all = append(all, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	for _, key := range []string{taintControlPlane, taintUninitialized, corev1.TaintNodeNetworkUnavailable, corev1.TaintNodeNotReady} {
		all = append(all, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		all = append(all, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(unreachableSeconds)),
		})
	}
	return all
}

const (
	// taintUninitialized is on a node until its cloud controller has initialized it.
	taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	// taintControlPlane is on control plane nodes that kubeadm created. The label with this
	// key is, too.
	taintControlPlane = "node-role.kubernetes.io/control-plane"
)
