// SPDX-License-Identifier: Apache-2.0

// Package presets contains ready-made gates, one per file, which can be applied as they
// are or adjusted. Each file describes what its gate waits for, the settings that
// autoscalers need, the toleration that daemons need, and how to disable another writer
// of its taint key.
package presets

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

//go:embed *.yaml
var files embed.FS

const extension = ".yaml"

// Names returns the names of the presets, sorted. A preset's gate and its file have the
// same name.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // the files are embedded
	}
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = strings.TrimSuffix(entry.Name(), extension)
	}
	return names
}

// Read returns a preset's file: a NodeGate in YAML, with comments.
func Read(name string) ([]byte, error) {
	text, err := files.ReadFile(name + extension)
	if err != nil {
		return nil, fmt.Errorf("there is no preset %q: choose one of %s", name, strings.Join(Names(), ", "))
	}
	return text, nil
}

// TaintKeys returns the taint keys that gates may use by default, with the effect
// NoSchedule: those of all presets except out-of-service, sorted and without
// duplicates. The out-of-service taint causes Kubernetes to detach a node's volumes and
// to delete its pods, so the administrator must allow it explicitly.
func TaintKeys() []string {
	var keys []string
	for _, name := range Names() {
		keys = append(keys, taintKeys(name)...)
	}
	slices.Sort(keys)
	isDetaching := func(key string) bool { return key == v1alpha1.TaintOutOfService }
	return slices.DeleteFunc(slices.Compact(keys), isDetaching)
}

func taintKeys(name string) (keys []string) {
	text, err := Read(name)
	if err != nil {
		panic(err) // it is the name of an embedded file
	}
	var gate v1alpha1.NodeGate
	if err := yaml.Unmarshal(text, &gate); err != nil {
		panic(err) // the files are embedded
	}
	for _, t := range gate.Spec.Taints() {
		keys = append(keys, t.Key)
	}
	return keys
}
