// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ProtectedKind is a kind that object signals must not read, in any version.
//
// +kubebuilder:object:generate=false
type ProtectedKind struct {
	Group, Kind, Resource string
	// Instead contains what to use instead.
	Instead string
}

// ProtectedKinds returns the kinds that object signals must not read: Secret, and all kinds
// that nodegate may list without --observe. The results of expressions would reveal their
// content to authors of gates, although the administrator has not allowed that. A rule of
// ObjectSignal contains the same kinds.
func ProtectedKinds() []ProtectedKind {
	return []ProtectedKind{
		{"", "Secret", "secrets", "an object of another kind"},
		{"", "Pod", "pods", "the signal pods, completed, daemonSet or daemonSets"},
		{"", "Node", "nodes", "the signal condition, label, annotation, resource or expression"},
		{"apps", "DaemonSet", "daemonsets", "the signal daemonSet or daemonSets"},
		{"storage.k8s.io", "CSINode", "csinodes", "the signal csiDriver"},
		{"resource.k8s.io", "ResourceSlice", "resourceslices", "the signal resourceSlices"},
		{"resource.k8s.io", "DeviceTaintRule", "devicetaintrules", "the signal resourceSlices with minDevices"},
		{"readiness.node.x-k8s.io", "NodeReadinessRule", "nodereadinessrules", "an object of another kind"},
		{GroupName, "NodeGate", Resource.Resource, "an object of another kind"},
	}
}

// CheckKind returns an error if the signal must not read objects of its kind.
func (s *ObjectSignal) CheckKind() error {
	for _, p := range ProtectedKinds() {
		if p.Group == s.Group && p.Kind == s.Kind {
			return fmt.Errorf("kind must not be %s, because the results of expressions would reveal its content; use %s", p.Kind, p.Instead)
		}
	}
	return nil
}

// CheckObserved returns an error if object signals must not read a resource.
func CheckObserved(r schema.GroupResource) error {
	for _, p := range ProtectedKinds() {
		if p.Group == r.Group && p.Resource == r.Resource {
			return fmt.Errorf("%s must not be observed, because the results of expressions would reveal their content; gates must use %s", r, p.Instead)
		}
	}
	return nil
}
