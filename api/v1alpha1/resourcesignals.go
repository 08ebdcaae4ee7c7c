// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
)

// CSIDriverSignal specifies a CSI driver.
type CSIDriverSignal struct {
	// name is the name of the CSI driver.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="name must be the name of a CSI driver, such as ebs.csi.aws.com; correct it"
	Name string `json:"name"`

	// allocatable specifies whether the driver must also report its volume limit
	// (allocatable.count). Until the limit is reported, the scheduler may bind more
	// volumes to the node than can be attached. Defaults to false.
	// +optional
	Allocatable bool `json:"allocatable,omitempty"`
}

// ResourceSignal specifies a resource in the node's allocatable.
type ResourceSignal struct {
	// name is the name of the resource.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="name must be the name of a resource, such as example.com/gpu; correct it"
	Name string `json:"name"`

	// atLeast specifies the minimum allocatable quantity of the resource. Must be
	// greater than 0. Defaults to 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self > 0 : !self.matches('[eE][+-]?[0-9]{3}') && quantity(self).isGreaterThan(quantity('0'))",message="atLeast must be greater than 0 and have an exponent of at most two digits; correct it, or remove it to use the default of 1"
	AtLeast *resource.Quantity `json:"atLeast,omitempty"`
}

// ResourceSlicesSignal specifies the device pools of a DRA driver.
//
// +kubebuilder:validation:XValidation:rule="!has(self.selectors) || has(self.minDevices)",message="selectors require minDevices, because they select the devices that are counted; set minDevices, or remove selectors",fieldPath=".selectors"
type ResourceSlicesSignal struct {
	// driver is the name of the DRA driver.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="driver must be the name of a DRA driver, such as gpu.example.com; correct it"
	Driver string `json:"driver"`

	// pools specifies which of the driver's pools are considered. At least one of
	// them must exist.
	// +optional
	// +kubebuilder:default=NodeLocal
	Pools DevicePools `json:"pools,omitempty"`

	// minDevices specifies how many usable devices the pools must have in total. A
	// device is usable unless it has a taint with the effect NoSchedule or NoExecute,
	// set by its driver or by a DeviceTaintRule. Devices that are allocated are
	// usable. If devices are partitions of others, each of them is counted.
	//
	// If unset, devices are not counted, and a pool without devices is sufficient.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	MinDevices int32 `json:"minDevices,omitempty"`

	// selectors select the devices that minDevices counts, as in a DeviceClass. A
	// device must match all of them. If unset, all devices are counted. Must not be
	// set without minDevices.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	Selectors []DeviceSelector `json:"selectors,omitempty"`
}

// DevicePools specifies which pools of a DRA driver a signal considers.
//
// +kubebuilder:validation:Enum=NodeLocal;Shared
type DevicePools string

const (
	// PoolsNodeLocal considers ResourceSlices that name the node in spec.nodeName and
	// are owned by its Node, which is how drivers publish the devices of a machine.
	PoolsNodeLocal DevicePools = "NodeLocal"
	// PoolsShared considers pools of ResourceSlices without spec.nodeName that the
	// node can reach by spec.nodeSelector, spec.allNodes or the selection of a device
	// (spec.perDeviceNodeSelection), such as network-attached devices. Such slices
	// have no owner and survive reboots, so they prove nothing about the node's boot.
	PoolsShared DevicePools = "Shared"
)

// DeviceSelector selects devices. It has the form of a selector in a DeviceClass.
type DeviceSelector struct {
	// cel selects devices by a CEL expression.
	// +required
	CEL CELDeviceSelector `json:"cel"`
}

// CELDeviceSelector selects devices by a CEL expression.
type CELDeviceSelector struct {
	// expression is a CEL expression that must return true for the device, which is
	// the variable device, as in a DeviceClass: device.driver, device.attributes and
	// device.capacity. If it cannot be evaluated, for example because the device
	// lacks an attribute, the device does not count, and the signal is unknown if
	// the device could make a difference.
	//
	// The API server does not compile the expression. A gate is not accepted if the
	// expression does not compile, is too large, or exceeds the cost limit, which
	// are the limits of the signal expression.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches(r'^[^(\\[{]*([(\\[{][^(\\[{]*){0,100}$')",message="expression must have at most 100 opening brackets; split it into several selectors"
	// +kubebuilder:validation:XValidation:rule="!self.matches(r'(?s)(opt(Flat)?Map.*){4}')",message="expression must use optMap and optFlatMap at most 3 times in total; use orValue or hasValue instead"
	Expression string `json:"expression"`
}
