// SPDX-License-Identifier: Apache-2.0

// Package presets holds ready-made gates, one file each, to be applied as they
// are or adjusted. Each file says what it waits for, what autoscalers must be
// told, which toleration daemons need, and how to silence another writer of its
// taint key.
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

// Names returns the presets' names, sorted. A preset's gate and file have its
// name.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // the files are part of the program
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

// TaintKeys returns the taint keys that gates may use, with the effect NoSchedule,
// where the administrator does not say otherwise: those of all presets, sorted and
// each once, but for out-of-service. That one has core detach the volumes of a node and delete its
// pods without asking back, so that whoever lets nodegate set it says so.
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
		panic(err) // its name is one of the files'
	}
	var gate v1alpha1.NodeGate
	if err := yaml.Unmarshal(text, &gate); err != nil {
		panic(err) // the files are part of the program
	}
	for _, t := range gate.Spec.Taints() {
		keys = append(keys, t.Key)
	}
	return keys
}
