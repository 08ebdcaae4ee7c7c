// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// CompletedSignal selects pods that run once on the node and then exit, such as
// those of a Job. Mirror pods and pods that are being deleted are ignored.
type CompletedSignal struct {
	// namespace is the namespace of the pods.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="namespace must be a DNS label (lower-case letters, digits and '-'); correct it"
	Namespace string `json:"namespace"`

	// selector selects pods by their labels. It must select the pods of one check
	// only, because the finished pod that was created last decides. Use several
	// signals for several checks. Must not be empty.
	// +required
	Selector EqualitySelector `json:"selector"`

	// maxAgeSeconds specifies for how long a success counts, from the time at which
	// the last container of the pod exited. Afterwards, the signal does not hold until
	// another pod succeeds. An open gate closes because of this only if its
	// reclosePolicy is OnRegression. If unset, a success counts until the node
	// reboots.
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=31536000
	MaxAgeSeconds *int32 `json:"maxAgeSeconds,omitempty"`
}
