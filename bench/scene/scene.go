// SPDX-License-Identifier: Apache-2.0

// Package scene contains the common definitions of the benchmark: the measured
// gate, its daemon, and the nodes and pods. It makes no requests.
package scene

import (
	_ "embed"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nodegate/nodegate/internal/testbed"
)

const (
	// Namespace is the namespace of the daemon's pods.
	Namespace = "bench"

	// Daemon is the name of the DaemonSet, its container, the value of its pods'
	// label "app", and the gate that waits for it.
	Daemon = "agent"

	// Workers is the maximum number of concurrent PATCHes of nodegate, and of the
	// limit.
	Workers = 16
)

// Taint is the gate's taint.
var Taint = corev1.Taint{Key: "bench.nodegate.dev/agent-not-ready", Effect: corev1.TaintEffectNoSchedule}

//go:embed objects.yaml
var objectsYAML []byte

// Objects returns the objects that are applied once: the namespace, the
// DaemonSet, and last the gate.
func Objects() ([]*unstructured.Unstructured, error) {
	objects, err := testbed.ParseObjects(objectsYAML)
	if err != nil {
		return nil, fmt.Errorf("reading the benchmark's objects: %w", err)
	}
	return objects, nil
}

// Gate returns the gate with these fields of its spec added or replaced.
func Gate(spec map[string]any) (*unstructured.Unstructured, error) {
	objects, err := Objects()
	if err != nil {
		return nil, err
	}
	gate := objects[len(objects)-1]
	for field, value := range spec {
		if err := unstructured.SetNestedField(gate.Object, value, "spec", field); err != nil {
			return nil, fmt.Errorf("changing the gate: %w", err)
		}
	}
	return gate, nil
}

// NodeName is the name of a fleet's node.
func NodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// PodName is the name of the daemon's pod on a node.
func PodName(node string) string { return Daemon + "-" + node }

// Tainted reports whether a node carries the gate's taint.
func Tainted(node *corev1.Node) bool {
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].MatchTaint(&Taint) {
			return true
		}
	}
	return false
}
