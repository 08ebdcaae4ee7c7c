// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// mostAnnotations is the number of annotations above which a Node is created without them.
const mostAnnotations = 4096

// LostAtCreation returns what a Node was sent with and created without, or with another value or in
// another order, and what was added so that the Node cannot be deleted or used. Other admission
// plugins may add labels, annotations and taints.
func LostAtCreation(sent, created *corev1.Node) []string {
	var lost []string
	for key, value := range sent.Labels {
		if is, has := created.Labels[key]; !has || is != value {
			lost = append(lost, "metadata.labels."+key)
		}
	}
	for key, value := range sent.Annotations {
		is, has := created.Annotations[key]
		if (!has || is != value) && !strings.HasPrefix(key, v1alpha1.RecordAnnotationPrefix) && len(sent.Annotations) <= mostAnnotations {
			lost = append(lost, "metadata.annotations."+key)
		}
	}
	for path, values := range map[string][2]any{
		"metadata.finalizers":      {sent.Finalizers, created.Finalizers},
		"metadata.ownerReferences": {sent.OwnerReferences, created.OwnerReferences},
		"spec.unschedulable":       {sent.Spec.Unschedulable, created.Spec.Unschedulable},
		"spec.providerID":          {sent.Spec.ProviderID, created.Spec.ProviderID},
		"spec.taints":              {sent.Spec.Taints, sentTaints(sent, created)},
	} {
		if !equality.Semantic.DeepEqual(values[0], values[1]) {
			lost = append(lost, fmt.Sprintf("%s (%v, now %v)", path, values[0], values[1]))
		}
	}
	slices.Sort(lost)
	return lost
}

// sentTaints returns the taints of the created Node that it was sent with, by key and effect.
func sentTaints(sent, created *corev1.Node) []corev1.Taint {
	var taints []corev1.Taint
	for _, t := range created.Spec.Taints {
		if slices.ContainsFunc(sent.Spec.Taints, func(other corev1.Taint) bool { return other.MatchTaint(&t) }) {
			taints = append(taints, t)
		}
	}
	return taints
}
