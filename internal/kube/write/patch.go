// SPDX-License-Identifier: Apache-2.0

package write

import (
	"cmp"
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

// Paths in a Node that a patch tests and writes.
const (
	uidPath         = "/metadata/uid"
	bootPath        = "/status/nodeInfo/bootID"
	taintsPath      = "/spec/taints"
	annotationsPath = "/metadata/annotations"
	conditionsPath  = "/status/conditions"
)

// operation is one operation of a JSON Patch (RFC 6902). internal/webhook/patch.go has copies of
// this type and of escape, because it must not depend on clients, as this package does.
type operation struct {
	Op   string `json:"op"`
	Path string `json:"path"`
	// Value is omitted if it is nil; JSON's null is represented by json.RawMessage.
	Value any `json:"value,omitempty"`
}

var null = json.RawMessage("null")

// Patch returns the JSON Patch that carries out a decision about a node, or nil if there
// is nothing to write.
//
// It can be applied only to the Node that was decided about. Everything that it removes
// or replaces is tested first, and what it creates is tested to be absent. If a gate opens
// because of its signals, or stays open in a new boot because of them, the boot ID is tested,
// too, and if gates share a taint, the facts about the other gates that the decision depends
// on. Other changes of the Node are preserved. If another writer has added the same taint in
// the meantime, the API server rejects the patch, because a node cannot have two taints with
// the same key and effect.
func Patch(n *gate.Node, d *gate.Decision) ([]byte, error) {
	ops := patchTaints(n.Taints, d)
	ops = append(ops, patchAnnotations(n, d)...)
	if len(ops) == 0 {
		return nil, nil
	}
	guard := []operation{test(uidPath, n.UID)}
	if d.Opens() {
		guard = append(guard, testBoot(n))
	}
	unreachable, err := testUnreachable(n, d.Taints)
	if err != nil {
		return nil, fmt.Errorf("composing the patch of node %s: %w", n.Name, err)
	}
	patch, err := json.Marshal(slices.Concat(guard, unreachable, ops))
	if err != nil {
		return nil, fmt.Errorf("encoding the patch of node %s: %w", n.Name, err)
	}
	return patch, nil
}

// testBoot tests the boot ID. In a Node whose kubelet has not reported it yet, it is "".
//
// A test compares encoded texts. The API server encodes the ID as it was reported, like this
// package: bytes that are not UTF-8 are escaped, and genuine replacement characters are not.
func testBoot(n *gate.Node) operation { return test(bootPath, cmp.Or(n.RawBootID, n.BootID)) }

func test(path string, value any) operation { return operation{Op: "test", Path: path, Value: value} }
func add(path string, value any) operation  { return operation{Op: "add", Path: path, Value: value} }
func remove(path string) operation          { return operation{Op: "remove", Path: path} }

// patchTaints returns the operations that turn the current taints into the desired ones.
// Operations on higher indexes come first, because they do not shift lower ones.
func patchTaints(have []corev1.Taint, d *gate.Decision) []operation {
	var ops []operation
	want := d.Taints
	present, wanted, carried := indexTaints(have), indexTaints(want), indexTaints(d.Carried)
	for i, t := range slices.Backward(have) {
		at := wanted.indexOf(t)
		stays := at >= 0 && want[at].Value == t.Value
		if stays && carried.indexOf(t) < 0 {
			continue
		}
		path := taintsPath + "/" + strconv.Itoa(i)
		ops = append(ops, testTaint(path, t)...)
		switch {
		case stays:
		case at < 0:
			ops = append(ops, remove(path))
		default:
			// "add" replaces a value, and also works if there is none.
			ops = append(ops, add(path+"/value", want[at].Value))
		}
	}
	var added []corev1.Taint
	for _, t := range want {
		if present.indexOf(t) < 0 {
			added = append(added, t)
		}
	}
	switch {
	case len(added) == 0:
	case len(have) == 0:
		// Without the test, "add" would replace a list that was created in the meantime.
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
		return append(ops, test(path+"/value", null)) // the API server omits an empty value
	}
	return append(ops, test(path+"/value", t.Value))
}

// taintIndex finds taints in a list. A kubelet may register with tens of thousands of taints: in a
// long list, byID has their indexes.
type taintIndex struct {
	taints []corev1.Taint
	byID   map[gate.TaintID]int
}

// fewTaints is the length up to which a list is searched.
const fewTaints = 64

func indexTaints(taints []corev1.Taint) taintIndex {
	x := taintIndex{taints: taints}
	if len(taints) > fewTaints {
		x.byID = make(map[gate.TaintID]int, len(taints))
		for i, t := range taints {
			x.byID[gate.TaintID{Key: t.Key, Effect: t.Effect}] = i
		}
	}
	return x
}

// indexOf returns the index of the taint with the same key and effect, or -1.
func indexOf(taints []corev1.Taint, t corev1.Taint) int {
	return slices.IndexFunc(taints, func(other corev1.Taint) bool {
		return other.Key == t.Key && other.Effect == t.Effect
	})
}

// indexOf returns the index in the list, as the function indexOf.
func (x taintIndex) indexOf(t corev1.Taint) int {
	if x.byID == nil {
		return indexOf(x.taints, t)
	}
	if i, found := x.byID[gate.TaintID{Key: t.Key, Effect: t.Effect}]; found {
		return i
	}
	return -1
}

// patchAnnotations writes and removes records, sorted by gate, then removes overrides,
// and then writes stamps, sorted by key. A gate's record depends on its override: the
// patch fails if a user has changed or removed that.
func patchAnnotations(n *gate.Node, d *gate.Decision) []operation {
	a := annotations{created: make(map[string]string), exist: n.HasAnnotations}
	for _, name := range slices.Sorted(maps.Keys(d.Records)) {
		before, exists := n.Records[name]
		if override, overridden := n.Overrides[name]; overridden {
			a.ops = append(a.ops, test(annotationsPath+"/"+escape(v1alpha1.OverrideAnnotationPrefix+name), override))
		}
		a.write(v1alpha1.RecordAnnotationPrefix+name, before, exists, d.Records[name])
	}
	for _, name := range d.DependsOn {
		before, exists := n.Records[name]
		a.test(v1alpha1.RecordAnnotationPrefix+name, before, exists)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Withdrawn)) {
		before, exists := n.Overrides[name]
		a.write(v1alpha1.OverrideAnnotationPrefix+name, before, exists, "")
	}
	for _, key := range slices.Sorted(maps.Keys(d.Stamps)) {
		before, exists := n.Annotations[key]
		a.write(key, before, exists, d.Stamps[key])
	}
	return a.operations()
}

// annotations collects the operations on a Node's annotations.
type annotations struct {
	ops []operation
	// exist reports whether the Node has annotations. If not, created has the annotations
	// to create.
	exist   bool
	created map[string]string
	// expectNone requires a test that the Node still has no annotations.
	expectNone bool
}

// test adds a test that an annotation has not changed.
func (a *annotations) test(key, before string, exists bool) {
	path := annotationsPath + "/" + escape(key)
	switch {
	case exists:
		a.ops = append(a.ops, test(path, before))
	case a.exist:
		a.ops = append(a.ops, test(path, null))
	default:
		a.expectNone = true
	}
}

// write adds the operations that write an annotation, or remove it if after is "".
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

// operations returns all operations, including those on the annotations as a whole.
func (a *annotations) operations() []operation {
	switch {
	case len(a.created) > 0:
		a.ops = append(a.ops, test(annotationsPath, null), add(annotationsPath, a.created))
	case a.expectNone:
		a.ops = append(a.ops, test(annotationsPath, null))
	}
	return a.ops
}

// pointerEscapes escapes keys in a JSON Pointer (RFC 6901). It is created once, because
// creating a Replacer costs more time and memory than the rest of a patch.
var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// escape escapes a key for a JSON Pointer.
func escape(key string) string { return pointerEscapes.Replace(key) }
