// SPDX-License-Identifier: Apache-2.0

// Package upstream contains what tests of presets compare them with: for each preset, the
// DaemonSets that the projects ship, reduced to what gates and the scheduler read, and the
// nodes that they run on. The first line of each file names the source.
package upstream

import (
	"bytes"
	"embed"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

//go:embed *.yaml
var files embed.FS

// Objects is what is shipped for a preset.
type Objects struct {
	// Source names the repository, the files and the version.
	Source string
	// Selected is a node that the preset's gate selects, as its kubelet registers it.
	Selected corev1.Node
	// LeftOut are nodes that the gate does not select.
	LeftOut []corev1.Node
	// Ready has the labels, allocatable resources and conditions that the node gets from what
	// the gate waits for. For a gate with closeWhen, it has the conditions that close the gate.
	Ready corev1.Node
	// Other has conditions that do not affect the gate.
	Other corev1.Node
	// Drivers are the drivers in the node's CSINode when it is ready.
	Drivers []storagev1.CSINodeDriver
	// DaemonSets are all DaemonSets that are shipped, sorted as in the file. The gate does not
	// wait for all of them.
	DaemonSets []appsv1.DaemonSet
}

// Names of the Nodes in the files. The names of nodes that the gate does not select have a
// prefix.
const (
	selectedNode  = "selected"
	readyNode     = "ready"
	otherNode     = "other"
	leftOutPrefix = "left-out-"
)

// For returns what is shipped for a preset.
func For(preset string) (*Objects, error) {
	text, err := files.ReadFile(preset + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("there is no file for preset %s in presets/upstream: write what its project ships", preset)
	}
	o := &Objects{Source: source(string(text))}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		if err := o.add(document); err != nil {
			return nil, fmt.Errorf("reading %s.yaml: %w", preset, err)
		}
	}
	return o, nil
}

// source returns the comment at the top of a file.
func source(text string) string {
	var words []string
	for line := range strings.Lines(text) {
		comment, is := strings.CutPrefix(line, "#")
		if !is {
			break
		}
		words = append(words, strings.Fields(comment)...)
	}
	return strings.TrimPrefix(strings.Join(words, " "), "Source: ")
}

func (o *Objects) add(document []byte) error {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return err
	}
	switch kind.Kind {
	case "DaemonSet":
		var ds appsv1.DaemonSet
		err := yaml.UnmarshalStrict(document, &ds)
		o.DaemonSets = append(o.DaemonSets, ds)
		return err
	case "CSINode":
		var n storagev1.CSINode
		err := yaml.UnmarshalStrict(document, &n)
		o.Drivers = n.Spec.Drivers
		return err
	case "Node":
		var n corev1.Node
		if err := yaml.UnmarshalStrict(document, &n); err != nil {
			return err
		}
		return o.addNode(n)
	}
	return fmt.Errorf("unexpected kind %q", kind.Kind)
}

func (o *Objects) addNode(n corev1.Node) error {
	switch {
	case n.Name == selectedNode:
		o.Selected = n
	case n.Name == readyNode:
		o.Ready = n
	case n.Name == otherNode:
		o.Other = n
	case strings.HasPrefix(n.Name, leftOutPrefix):
		o.LeftOut = append(o.LeftOut, n)
	default:
		return fmt.Errorf("unexpected name %q of a Node", n.Name)
	}
	return nil
}
