// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// draDriver is the name of the tests' DRA driver.
const draDriver = "gpu.example.com"

// publishes creates a slice of the node's pool, owned by the current Node, with the node's
// credentials, as a DRA driver does.
func (k *kubelet) publishes(name string, generation, count int64) *resourcev1.ResourceSlice {
	k.Helper()
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: k.name + "-" + name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: k.name, UID: k.node().UID},
		}},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: draDriver, NodeName: &k.name,
			Pool:    resourcev1.ResourcePool{Name: k.name, Generation: generation, ResourceSliceCount: count},
			Devices: []resourcev1.Device{{Name: name}},
		},
	}
	k.must(k.api.Create(k.Context(), slice))
	k.deletedAtEnd(slice)
	return slice
}

// publishesForAll creates a slice that every node can use, in a pool of its own.
func (k *kubelet) publishesForAll(name string) {
	k.Helper()
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: k.name + "-" + name},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: draDriver, AllNodes: new(true),
			Pool:    resourcev1.ResourcePool{Name: "network", Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: name}},
		},
	}
	k.must(k.admin.Create(k.Context(), slice))
	k.deletedAtEnd(slice)
}

// republishes moves a slice to another generation of its pool.
func (k *kubelet) republishes(slice *resourcev1.ResourceSlice, generation, count int64) {
	k.Helper()
	k.must(k.api.Get(k.Context(), client.ObjectKeyFromObject(slice), slice))
	slice.Spec.Pool.Generation, slice.Spec.Pool.ResourceSliceCount = generation, count
	k.must(k.api.Update(k.Context(), slice))
}
