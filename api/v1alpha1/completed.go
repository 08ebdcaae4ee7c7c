// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// CompletedSignal selects pods that run once on the node and then exit, such as
// those of a Job. Mirror pods are ignored.
type CompletedSignal struct {
	// namespace is the namespace of the pods.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="namespace must be a DNS label (lower-case letters, digits and '-'); correct it"
	Namespace string `json:"namespace"`

	// selector selects pods by their labels. It must select the pods of one check
	// only, because the last pod to finish decides: use several signals for several
	// checks. Must not be empty.
	// +required
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="selector must not be empty, because it would match every pod in the namespace; add matchLabels or matchExpressions"
	Selector LabelSelector `json:"selector"`

	// maxAgeSeconds specifies for how long a success counts, from the time at which
	// the last container of the pod exited. Afterwards, the signal does not hold until
	// another pod succeeds. A gate that is open closes for that only if its
	// reclosePolicy is OnRegression. If unset, a success counts until the node
	// reboots.
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=31536000
	MaxAgeSeconds *int32 `json:"maxAgeSeconds,omitempty"`
}
