// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 contains the nodegate.dev/v1alpha1 API: the NodeGate kind, its
// validation rules, and every name in nodegate's external contract (annotations,
// labels, condition types, reasons).
//
// +kubebuilder:object:generate=true
// +groupName=nodegate.dev
package v1alpha1
