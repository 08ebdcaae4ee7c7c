// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const (
	// kwokAnnotation with the value "fake" makes KWOK simulate the node: it
	// becomes Ready, renews its Lease, and its pods run. KWOKNode sets it.
	kwokAnnotation = "kwok.x-k8s.io/node"

	// DelayAnnotation on a pod is the time until it becomes Ready on a KWOK node,
	// as a Go duration such as "3s". Defaults to no delay.
	DelayAnnotation = "cluster.nodegate.dev/delay"

	// HoldAnnotation on a pod, with any value, keeps it from becoming Ready
	// on a KWOK node until the annotation is removed.
	HoldAnnotation = "cluster.nodegate.dev/hold"
)

// defaultStages are the KWOK stages of a cluster without Options.Stages, as YAML
// documents: nodes become Ready immediately, and so do pods without
// DelayAnnotation or HoldAnnotation. Pods of Jobs complete, and deleted pods are
// removed.
//
//go:embed config/stages.yaml
var defaultStages string

// KWOKNode returns a node that KWOK simulates. The caller must create it. It has
// 8 CPUs, 32 GiB, 110 pods, and the labels that every kubelet sets.
func KWOKNode(name string) *corev1.Node {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("8"),
		corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{kwokAnnotation: "fake"},
			Labels: map[string]string{
				corev1.LabelHostname:   name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: "amd64",
			},
		},
		Status: corev1.NodeStatus{Allocatable: resources, Capacity: resources},
	}
}

// stage contains the fields of a KWOK stage that this package reads.
type stage struct {
	Kind string `json:"kind"`
	Spec struct {
		ResourceRef struct {
			APIGroup string `json:"apiGroup"`
			Kind     string `json:"kind"`
		} `json:"resourceRef"`
	} `json:"spec"`
}

// mergeStages returns the given stages, and the default stages for all other
// kinds of objects.
func mergeStages(own string) (string, error) {
	documents, kinds, err := splitStages(own)
	if err != nil {
		return "", fmt.Errorf("reading Options.Stages: %w", err)
	}
	replaced := map[string]bool{}
	for _, kind := range kinds {
		replaced[kind] = true
	}
	defaults, kinds, err := splitStages(defaultStages)
	if err != nil {
		return "", fmt.Errorf("reading the default stages: %w", err)
	}
	for i, kind := range kinds {
		if !replaced[kind] {
			documents = append(documents, defaults[i])
		}
	}
	return strings.Join(documents, "\n---\n"), nil
}

// splitStages returns the documents of a YAML stream of stages, and the kind of object
// to which each applies.
func splitStages(stream string) (documents, kinds []string, err error) {
	reader := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(stream)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, kinds, nil
		}
		if err != nil {
			return nil, nil, err
		}
		var parsed stage
		if err := yaml.Unmarshal(document, &parsed); err != nil {
			return nil, nil, err
		}
		switch parsed.Kind {
		case "": // only comments
		case "Stage":
			documents = append(documents, strings.TrimSpace(string(document)))
			kinds = append(kinds, parsed.Spec.ResourceRef.APIGroup+"/"+parsed.Spec.ResourceRef.Kind)
		default:
			return nil, nil, fmt.Errorf("kind %q is not Stage", parsed.Kind)
		}
	}
}
