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
// server would reject the Node, or the confinement policy the controller's writes. A Node
// with more annotations than maxAnnotationsKept is created without them, because the policy
// cannot look for records among so many.
const (
	maxAnnotations      = 1024
	maxAnnotationsBytes = 256 << 10
	maxAnnotationsKept  = 4096
	maxTaints           = 1024
)

// maxRecordChanges is the largest number of annotations that are added and removed one by
// one. If more change, such as many forged records, all annotations are replaced at once:
// the size of the patch then depends on those that are kept, and not on those removed.
const maxRecordChanges = 512

// bootID matches the boot IDs that a record may contain.
var bootID = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// annotationsPath is the JSON pointer of a Node's annotations.
const annotationsPath = "/metadata/annotations"

// operation is an operation of a JSON Patch. This type and escape are copies of those in
// internal/kube/write/patch.go, because this package must not depend on clients.
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
	present := n.Metadata.Annotations
	operations := present.change(recordChanges(present.all, facts.Records, d.Records))
	if n.Spec == nil && len(d.Taints) > 0 {
		operations = append(operations, operation{"add", "/spec", map[string]any{}})
	}
	return append(operations, taintOperations(facts.Taints, d.Taints)...), nil
}

// facts returns the facts that the gates' decision at birth reads.
func (n *node) facts(gates []gate.Gate) (gate.Node, error) {
	read, err := n.labels(gates)
	facts := gate.Node{Labels: read, HasAnnotations: len(n.Metadata.Annotations.all) > 0}
	if n.Spec != nil {
		facts.Taints = n.Spec.Taints.list
	}
	if id := n.Status.NodeInfo.BootID; bootID.MatchString(id) {
		facts.BootID = id
	}
	for i := range gates {
		name := gates[i].Name
		if raw, ok := n.Metadata.Annotations.all[v1alpha1.RecordAnnotationPrefix+name]; ok {
			if facts.Records == nil {
				facts.Records = make(map[string]string)
			}
			facts.Records[name] = raw
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

// recordChanges returns the annotations that change, and their new values. An empty one
// means that the annotation is removed. All records are added or, if they do not fit next
// to the other annotations, none, as by the policy. Of the records in the request, sent
// contains those of the given gates, of which those that are not in records remain if
// all fit. Records of other gates are removed, because a gate with the same taint would
// take them over.
func recordChanges(present, sent, records map[string]string) map[string]string {
	changes, fit := make(map[string]string), fits(present, sent, records)
	for key := range present {
		if name, isRecord := strings.CutPrefix(key, v1alpha1.RecordAnnotationPrefix); isRecord && (!fit || !remains(name, sent, records)) {
			changes[key] = ""
		}
	}
	if fit {
		for name, raw := range records {
			if raw != "" {
				changes[v1alpha1.RecordAnnotationPrefix+name] = raw
			}
		}
	}
	return changes
}

// remains reports whether a record in the request does not change.
func remains(name string, sent, records map[string]string) bool {
	_, known := sent[name]
	_, changes := records[name]
	return known && !changes
}

// change returns the operations that change the annotations.
func (a *nodeAnnotations) change(changes map[string]string) []operation {
	if a.tooMany || len(changes) > maxRecordChanges {
		return []operation{{"add", annotationsPath, changed(a.all, changes)}}
	}
	var operations []operation
	if len(a.all) == 0 && len(changes) > 0 {
		operations = append(operations, operation{"add", annotationsPath, map[string]any{}})
	}
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		path := annotationsPath + "/" + escape(key)
		if raw := changes[key]; raw != "" {
			operations = append(operations, operation{"add", path, raw})
		} else {
			operations = append(operations, operation{Op: "remove", Path: path})
		}
	}
	return operations
}

// changed returns the annotations after the changes.
func changed(present, changes map[string]string) map[string]string {
	after := make(map[string]string)
	maps.Copy(after, present)
	for key, raw := range changes {
		if after[key] = raw; raw == "" {
			delete(after, key)
		}
	}
	return after
}

// fits reports whether the records fit next to the annotations that remain.
func fits(present, sent, records map[string]string) bool {
	count, size := 0, 0
	add := func(key, value string) { count, size = count+1, size+len(key)+len(value) }
	for key, value := range present {
		if name, isRecord := strings.CutPrefix(key, v1alpha1.RecordAnnotationPrefix); !isRecord || remains(name, sent, records) {
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
