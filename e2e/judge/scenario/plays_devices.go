// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// driver is the name of a DRA driver.
const driver = "dra.example.com"

// devices publishes pools of devices. None counts that is incomplete, that belongs to an earlier
// Node, or whose only device has a taint.
func devices(p *play) {
	former, n, tainted := p.registers("pools-former", "pools"), p.registers("pools", "pools"), p.registers("devices", "devices")
	former.publishes(1, 1, "another", "")
	n.publishes(1, 2, n.get().UID, "")
	tainted.publishes(1, 1, tainted.get().UID, resourcev1.DeviceTaintEffectNoSchedule)
	p.lingers()
	former.stays("pools", closed)
	n.stays("pools", closed)
	tainted.stays("devices", closed)

	n.publishes(2, 1, n.get().UID, "")
	n.becomes("pools", opened)
	tainted.publishes(2, 1, tainted.get().UID, "")
	tainted.becomes("devices", opened)
}

// publishes creates a ResourceSlice of a pool that consists of count slices, as the DRA driver on
// the node. Its device has a taint, unless the effect is empty.
func (n *node) publishes(generation, count int64, owner types.UID, effect resourcev1.DeviceTaintEffect) {
	device := resourcev1.Device{Name: "device"}
	if effect != "" {
		device.Taints = []resourcev1.DeviceTaint{{Key: "example.com/broken", Effect: effect}}
	}
	n.creates(&resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: n.Name + "-", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: owner}},
		},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: &n.Name, Devices: []resourcev1.Device{device},
			Pool: resourcev1.ResourcePool{Name: n.Name, Generation: generation, ResourceSliceCount: count},
		},
	})
}
