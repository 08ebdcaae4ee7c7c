// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// BypassedPods specifies how the controller handles pods that bypassed a closed
// gate.
//
// +kubebuilder:validation:Enum=Ignore;Report;Evict;Hold
type BypassedPods string

const (
	// BypassedIgnore does nothing.
	BypassedIgnore BypassedPods = "Ignore"
	// BypassedReport reports the pods in an Event and a metric. It also reports pods
	// that the kubelet rejected while the gate was closed, as all other values but
	// Ignore do.
	BypassedReport BypassedPods = "Report"
	// BypassedEvict also evicts the pods through the Eviction API, at a limited
	// rate and subject to PodDisruptionBudgets. It never evicts daemon, mirror,
	// host-network or ownerless pods. It requires PodEviction in acknowledge.
	BypassedEvict BypassedPods = "Evict"
	// BypassedHold prevents the pods from starting while the gate is closed, on nodes
	// with containerd and nodegate's agent. It does not prevent static pods from
	// starting, or other containers of a pod after the first one has started. It reports
	// pods that start nevertheless, as Report does.
	BypassedHold BypassedPods = "Hold"
)

// Searched reports whether the controller searches for pods that bypassed the gate.
func (b BypassedPods) Searched() bool { return b != "" && b != BypassedIgnore }

// DefaultHoldSeconds is the default of holdSeconds.
const DefaultHoldSeconds = 600
