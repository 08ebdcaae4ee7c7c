// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Where a Node has what is tested and written.
const (
	uidPath         = "/metadata/uid"
	bootPath        = "/status/nodeInfo/bootID"
	taintsPath      = "/spec/taints"
	annotationsPath = "/metadata/annotations"
)

// operation is one operation of a JSON Patch (RFC 6902).
type operation struct {
	Op   string `json:"op"`
	Path string `json:"path"`
	// Value is left out where it is nil; null is json.RawMessage.
	Value any `json:"value,omitempty"`
}

var null = json.RawMessage("null")

// Patch returns the JSON Patch that makes a decision true on a node, or nil if
// there is nothing to write.
//
// It applies only to the Node that was decided about: everything that it
// removes or replaces is tested first, what it creates is tested to be absent,
// and a gate that opens on the word of its signals does so in one boot only.
// Whatever else has changed on the Node meanwhile stays as it is. A taint that
// another writer has just added too is refused by the API server, which lets
// no node have two taints of the same key and effect.
func Patch(n *gate.Node, d *gate.Decision) ([]byte, error) {
	ops := patchTaints(n.Taints, d.Taints)
	ops = append(ops, patchAnnotations(n, d)...)
	if len(ops) == 0 {
		return nil, nil
	}
	guard := []operation{test(uidPath, n.UID)}
	if d.Opens() {
		// A kubelet that has not told its boot yet stands as "" in the Node.
		guard = append(guard, test(bootPath, n.BootID))
	}
	silence, err := testSilence(n, d.Taints)
	if err != nil {
		return nil, fmt.Errorf("composing the patch of node %s: %w", n.Name, err)
	}
	patch, err := json.Marshal(slices.Concat(guard, silence, ops))
	if err != nil {
		return nil, fmt.Errorf("encoding the patch of node %s: %w", n.Name, err)
	}
	return patch, nil
}

func test(path string, value any) operation { return operation{Op: "test", Path: path, Value: value} }
func add(path string, value any) operation  { return operation{Op: "add", Path: path, Value: value} }
func remove(path string) operation          { return operation{Op: "remove", Path: path} }

// patchTaints takes the taints from what they are to what they should be. The
// highest index comes first, so that the lower ones stay what they were.
func patchTaints(have, want []corev1.Taint) []operation {
	var ops []operation
	for i, t := range slices.Backward(have) {
		path := taintsPath + "/" + strconv.Itoa(i)
		at := index(want, t)
		if at >= 0 && want[at].Value == t.Value {
			continue
		}
		ops = append(ops, testTaint(path, t)...)
		if at < 0 {
			ops = append(ops, remove(path))
		} else {
			// "add" also replaces, and works where there was no value.
			ops = append(ops, add(path+"/value", want[at].Value))
		}
	}
	var added []corev1.Taint
	for _, t := range want {
		if index(have, t) < 0 {
			added = append(added, t)
		}
	}
	switch {
	case len(added) == 0:
	case len(have) == 0:
		// Adding a list that has come into being meanwhile would erase it.
		ops = append(ops, test(taintsPath, null), add(taintsPath, added))
	default:
		for _, t := range added {
			ops = append(ops, add(taintsPath+"/-", t))
		}
	}
	return ops
}

func testTaint(path string, t corev1.Taint) []operation {
	ops := []operation{test(path+"/key", t.Key), test(path+"/effect", t.Effect)}
	if t.Value == "" {
		return append(ops, test(path+"/value", null)) // the API server leaves out an empty value
	}
	return append(ops, test(path+"/value", t.Value))
}

// index returns where a taint of the same key and effect is, or -1.
func index(taints []corev1.Taint, t corev1.Taint) int {
	return slices.IndexFunc(taints, func(other corev1.Taint) bool {
		return other.Key == t.Key && other.Effect == t.Effect
	})
}

// patchAnnotations writes and removes records, in the order of their gates'
// names, then removes overrides, and then writes stamps, in the order of their
// keys. A gate's record rests on the override that there is: the patch fails if
// somebody has changed or withdrawn it.
func patchAnnotations(n *gate.Node, d *gate.Decision) []operation {
	a := annotations{created: make(map[string]string), exist: n.HasAnnotations}
	for _, name := range slices.Sorted(maps.Keys(d.Records)) {
		before, exists := n.Records[name]
		if override, overridden := n.Overrides[name]; overridden {
			a.ops = append(a.ops, test(annotationsPath+"/"+escape(v1alpha1.OverrideAnnotationPrefix+name), override))
		}
		a.write(v1alpha1.RecordAnnotationPrefix+name, before, exists, d.Records[name])
	}
	for _, name := range slices.Sorted(maps.Keys(d.Withdrawn)) {
		before, exists := n.Overrides[name]
		a.write(v1alpha1.OverrideAnnotationPrefix+name, before, exists, "")
	}
	for _, key := range slices.Sorted(maps.Keys(d.Stamps)) {
		before, exists := n.Annotations[key]
		a.write(key, before, exists, d.Stamps[key])
	}
	if len(a.created) > 0 {
		a.ops = append(a.ops, test(annotationsPath, null), add(annotationsPath, a.created))
	}
	return a.ops
}

// annotations collects what becomes of a Node's annotations.
type annotations struct {
	ops []operation
	// exist tells whether the Node has any; if not, created are those that it
	// gets.
	exist   bool
	created map[string]string
}

// write has an annotation written, or removed if there is to be none.
func (a *annotations) write(key, before string, exists bool, after string) {
	path := annotationsPath + "/" + escape(key)
	switch {
	case exists && after == "":
		a.ops = append(a.ops, test(path, before), remove(path))
	case exists && after != before:
		a.ops = append(a.ops, test(path, before), operation{Op: "replace", Path: path, Value: after})
	case exists, after == "":
	case a.exist:
		a.ops = append(a.ops, test(path, null), add(path, after))
	default:
		a.created[key] = after
	}
}

// pointerEscapes are what a JSON Pointer (RFC 6901) writes otherwise. To build a
// Replacer takes longer, and more memory, than all the rest of a patch.
var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// escape makes a key part of a JSON Pointer.
func escape(key string) string { return pointerEscapes.Replace(key) }
