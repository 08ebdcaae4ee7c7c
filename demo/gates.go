// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/testbed"
)

// The demo's objects, as a user would write them.
var (
	//go:embed config/gates.yaml
	gatesYAML []byte
	//go:embed config/daemons.yaml
	daemonsYAML []byte
	//go:embed config/web.yaml
	webYAML []byte
)

// A gate contains the properties of a NodeGate that the demo needs. The gate selects
// all nodes.
type gate struct {
	name      string
	taint     corev1.Taint
	daemonSet types.NamespacedName
}

// demoGates returns the demo's gates.
func demoGates() ([]gate, error) {
	objects, err := testbed.ParseObjects(gatesYAML)
	if err != nil {
		return nil, fmt.Errorf("reading the demo's gates: %w", err)
	}
	var gates []gate
	for _, object := range objects {
		var ng v1alpha1.NodeGate
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &ng); err != nil {
			return nil, fmt.Errorf("reading gate %s: %w", object.GetName(), err)
		}
		daemon := ng.Spec.OpenWhen[0].DaemonSet
		gates = append(gates, gate{
			name:      ng.Name,
			taint:     ng.Spec.Taint.Core(),
			daemonSet: types.NamespacedName{Namespace: daemon.Namespace, Name: daemon.Name},
		})
	}
	return gates, nil
}
