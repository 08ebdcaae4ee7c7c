// SPDX-License-Identifier: Apache-2.0

package install

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// diesAfter is for how long, in seconds, nodegate stays on a node that has fallen
// silent: it is to be replaced sooner than after the usual five minutes.
const diesAfter = 60

// Tolerations are those of nodegate's own pods: every taint that a gate may put
// somewhere, so that it cannot lock itself out, and what a node has while it is
// being set up, so that it comes with the first ones. Never unschedulable: who
// drains a node has nodegate leave it.
func Tolerations(allowedTaintKeys []string) []corev1.Toleration {
	var all []corev1.Toleration
	var keys []string
	for _, text := range allowedTaintKeys {
		key, _, _ := strings.Cut(text, ":") // whatever the effect
		keys = append(keys, key)
	}
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		all = append(all, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	for _, key := range []string{taintUninitialized, corev1.TaintNodeNetworkUnavailable, corev1.TaintNodeNotReady} {
		all = append(all, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		all = append(all, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](diesAfter),
		})
	}
	return all
}

// taintUninitialized is on a node until its cloud's controller has seen to it.
const taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
