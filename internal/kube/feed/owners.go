// SPDX-License-Identifier: Apache-2.0

package feed

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// nodeOwner returns the first reference to a Node of this name, or nil.
func nodeOwner(owners []metav1.OwnerReference, name string) *metav1.OwnerReference {
	for i := range owners {
		if isNode(&owners[i]) && owners[i].Name == name {
			return &owners[i]
		}
	}
	return nil
}

// anyNodeOwner returns the first reference to a Node, or nil.
func anyNodeOwner(owners []metav1.OwnerReference) *metav1.OwnerReference {
	for i := range owners {
		if isNode(&owners[i]) {
			return &owners[i]
		}
	}
	return nil
}

// isNode reports whether an owner is a Node. Other API groups may have a kind of this name.
func isNode(owner *metav1.OwnerReference) bool {
	return owner.APIVersion == "v1" && owner.Kind == "Node"
}
