// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utiljson "k8s.io/apimachinery/pkg/util/json" // field names are case-sensitive, as in the API server

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Limits of a Node, the same as those of the birth policy. If the records do not fit,
// only taints are added; a Node with more taints is not changed. Otherwise, the API
// server would reject the Node, or the confinement policy the controller's writes.
const (
	maxAnnotations      = 1024
	maxAnnotationsBytes = 256 << 10
	maxTaints           = 1024
)

// bootID matches the boot IDs that a record may contain.
var bootID = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// operation is an operation of a JSON Patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patch returns the operations that close the gates on a Node that is being created,
// which is given as JSON.
func patch(gates []gate.Gate, raw []byte) ([]operation, error) {
	var n node
	if err := utiljson.Unmarshal(raw, &n); err != nil {
		return nil, fmt.Errorf("reading the Node: %w", err)
	}
	if n.Metadata == nil {
		return nil, errors.New("reading the Node: it has no metadata")
	}
	facts, err := n.facts(gates)
	if err != nil {
		return nil, fmt.Errorf("reading the Node's labels: %w", err)
	}
	if n.Spec != nil && n.Spec.Taints.tooMany {
		gates = selectingNothing(gates)
	}
	d := gate.Birth(gates, facts)
	operations := recordOperations(n.Metadata.Annotations, d.Records)
	if n.Spec == nil && len(d.Taints) > 0 {
		operations = append(operations, operation{"add", "/spec", map[string]any{}})
	}
	return append(operations, taintOperations(facts.Taints, d.Taints)...), nil
}

// facts returns the facts that the gates' decision at birth reads.
func (n *node) facts(gates []gate.Gate) (gate.Node, error) {
	read, err := n.labels(gates)
	facts := gate.Node{Labels: read, HasAnnotations: len(n.Metadata.Annotations) > 0}
	if n.Spec != nil {
		facts.Taints = n.Spec.Taints.list
	}
	if id := n.Status.NodeInfo.BootID; bootID.MatchString(id) {
		facts.BootID = id
	}
	for key, value := range n.Metadata.Annotations {
		if name, ok := strings.CutPrefix(key, v1alpha1.RecordAnnotationPrefix); ok {
			if facts.Records == nil {
				facts.Records = make(map[string]string)
			}
			facts.Records[name] = value
		}
	}
	return facts, err
}

// selectingNothing returns gates that select no node, so that their records are removed
// and nothing else changes.
func selectingNothing(gates []gate.Gate) []gate.Gate {
	gates = slices.Clone(gates)
	for i := range gates {
		gates[i].Selector = labels.Nothing()
	}
	return gates
}

// recordOperations returns the operations that add all records or, if they do not fit
// next to the other annotations, none. Records in the request that are not overwritten
// are removed.
func recordOperations(present, records map[string]string) []operation {
	var operations []operation
	fit, empty := fits(present, records), len(present) == 0
	for _, name := range slices.Sorted(maps.Keys(records)) {
		key, raw := v1alpha1.RecordAnnotationPrefix+name, records[name]
		path := "/metadata/annotations/" + escape(key)
		if raw != "" && fit {
			if empty {
				empty = false
				operations = append(operations, operation{"add", "/metadata/annotations", map[string]any{}})
			}
			operations = append(operations, operation{"add", path, raw})
		} else if _, ok := present[key]; ok {
			operations = append(operations, operation{Op: "remove", Path: path})
		}
	}
	return operations
}

func fits(annotations, records map[string]string) bool {
	count, size := 0, 0
	add := func(key, value string) { count, size = count+1, size+len(key)+len(value) }
	for key, value := range annotations {
		name, isRecord := strings.CutPrefix(key, v1alpha1.RecordAnnotationPrefix)
		if _, replaced := records[name]; !isRecord || !replaced {
			add(key, value)
		}
	}
	for name, raw := range records {
		if raw != "" {
			add(v1alpha1.RecordAnnotationPrefix+name, raw)
		}
	}
	return count <= maxAnnotations && size <= maxAnnotationsBytes
}

// taintOperations returns the operations that append the taints after those before.
func taintOperations(before, after []corev1.Taint) []operation {
	var operations []operation
	for i, t := range after[len(before):] {
		if i == 0 && len(before) == 0 {
			operations = append(operations, operation{"add", "/spec/taints", []any{}})
		}
		operations = append(operations, operation{"add", "/spec/taints/-", t})
	}
	return operations
}

// escape returns a key as a part of a JSON pointer.
func escape(key string) string { return pointerEscapes.Replace(key) }

// pointerEscapes is shared, because building it takes longer than using it.
var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")
