// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utiljson "k8s.io/apimachinery/pkg/util/json" // as Kubernetes has it: names are case-sensitive

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Bounds of what is written, the same as those of the birth policy. Beyond the
// sizes of a Node's annotations and taints that the API server allows, or that
// the confinement policy lets the controller work with, less is written, so that
// no Node is refused for what we add.
const (
	maxAnnotations      = 1024
	maxAnnotationsBytes = 256 << 10
	maxTaints           = 1024
)

// bootID is what may stand in a record as a boot ID.
var bootID = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// node is what matters of a Node that is being created.
type node struct {
	Metadata *struct {
		Labels      labels.Set        `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec *struct {
		Taints []corev1.Taint `json:"taints"`
	} `json:"spec"`
	Status struct {
		NodeInfo struct {
			BootID string `json:"bootID"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

// operation is one of a JSON Patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patch returns what is to be done to a Node that is being created, given as
// JSON, so that the gates are closed on it; nothing if they are.
func patch(gates []gate.Gate, raw []byte) ([]operation, error) {
	var n node
	if err := utiljson.Unmarshal(raw, &n); err != nil {
		return nil, fmt.Errorf("reading the Node: %w", err)
	}
	if n.Metadata == nil {
		return nil, errors.New("reading the Node: it has no metadata")
	}
	facts := n.facts()
	if len(facts.Taints) > maxTaints {
		gates = selectingNothing(gates)
	}
	d := gate.Birth(gates, facts)
	operations := recordOperations(n.Metadata.Annotations, d.Records)
	if n.Spec == nil && len(d.Taints) > 0 {
		operations = append(operations, operation{"add", "/spec", map[string]any{}})
	}
	return append(operations, taintOperations(facts.Taints, d.Taints)...), nil
}

// facts are what a decision at birth rests on.
func (n *node) facts() gate.Node {
	facts := gate.Node{Labels: n.Metadata.Labels, HasAnnotations: len(n.Metadata.Annotations) > 0}
	if n.Spec != nil {
		facts.Taints = n.Spec.Taints
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
	return facts
}

// selectingNothing has the gates erase records that came along, and no more.
func selectingNothing(gates []gate.Gate) []gate.Gate {
	gates = slices.Clone(gates)
	for i := range gates {
		gates[i].Selector = labels.Nothing()
	}
	return gates
}

// recordOperations write the records, each as far as it fits beside the other
// annotations: where it does not, the taint goes alone.
func recordOperations(there, records map[string]string) []operation {
	var operations []operation
	annotations := maps.Clone(there)
	for _, name := range slices.Sorted(maps.Keys(records)) {
		key, raw := v1alpha1.RecordAnnotationPrefix+name, records[name]
		path := "/metadata/annotations/" + escape(key)
		if raw != "" && fits(annotations, key, raw) {
			if len(annotations) == 0 {
				annotations = make(map[string]string)
				operations = append(operations, operation{"add", "/metadata/annotations", map[string]any{}})
			}
			annotations[key] = raw
			operations = append(operations, operation{"add", path, raw})
		} else if _, came := annotations[key]; came {
			delete(annotations, key)
			operations = append(operations, operation{Op: "remove", Path: path})
		}
	}
	return operations
}

func fits(annotations map[string]string, key, value string) bool {
	others, size := 0, len(key)+len(value)
	for k, v := range annotations {
		if k != key {
			others++
			size += len(k) + len(v)
		}
	}
	return others <= maxAnnotations && size <= maxAnnotationsBytes
}

// taintOperations change values of the first taints, and append the others.
func taintOperations(before, after []corev1.Taint) []operation {
	var operations []operation
	for i, t := range after {
		switch {
		case i >= len(before):
			if i == 0 {
				operations = append(operations, operation{"add", "/spec/taints", []any{}})
			}
			operations = append(operations, operation{"add", "/spec/taints/-", t})
		case t.Value != before[i].Value:
			operations = append(operations, operation{"add", "/spec/taints/" + strconv.Itoa(i) + "/value", t.Value})
		}
	}
	return operations
}

// escape writes a key as a part of a JSON pointer.
func escape(key string) string { return pointerEscapes.Replace(key) }

// pointerEscapes is built once: that takes longer than to use it.
var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")
