// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// registersDrivers publishes a CSINode with these drivers, owned by the current Node, as the
// kubelet does.
func (k *kubelet) registersDrivers(drivers ...storagev1.CSINodeDriver) {
	k.Helper()
	wanted := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: k.name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: k.name, UID: k.node().UID},
		}},
		Spec: storagev1.CSINodeSpec{Drivers: drivers},
	}
	k.deletedAtEnd(wanted)
	var found storagev1.CSINode
	err := k.api.Get(k.Context(), client.ObjectKey{Name: k.name}, &found)
	if err == nil && found.OwnerReferences[0].UID == wanted.OwnerReferences[0].UID {
		// A CSINode's drivers are immutable, so a kubelet removes them before it adds them again.
		for _, list := range [][]storagev1.CSINodeDriver{nil, drivers} {
			found.Spec.Drivers = list
			k.must(k.api.Update(k.Context(), &found))
		}
		return
	}
	if err == nil {
		k.must(k.api.Delete(k.Context(), &found))
	} else if !apierrors.IsNotFound(err) {
		k.must(err)
	}
	k.must(k.api.Create(k.Context(), wanted))
}

// csiDriver returns a driver of a CSINode, with a volume limit if one is given.
func csiDriver(name string, limit ...int32) storagev1.CSINodeDriver {
	d := storagev1.CSINodeDriver{Name: name, NodeID: "i-1"}
	if len(limit) > 0 {
		d.Allocatable = &storagev1.VolumeNodeResources{Count: &limit[0]}
	}
	return d
}

// reportsResource reports an amount of an extended resource as the kubelet, with the
// current boot ID in the same write.
func (k *kubelet) reportsResource(name string, count int) {
	k.Helper()
	k.writeStatus(k.api, fmt.Sprintf(`{"nodeInfo":{"bootID":%q},"capacity":{%q:"%d"},"allocatable":{%q:"%d"}}`, k.boot, name, count, name, count))
}
