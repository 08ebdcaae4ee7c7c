// SPDX-License-Identifier: Apache-2.0

package write

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// conditionPatch returns the JSON Patch of nodes/status that writes and removes the
// conditions of a decision, or nil if there are none.
//
// It can be applied only to the Node that was decided about, in the same boot, while the
// records of the gates are unchanged. New conditions are inserted before all others, and
// the type of the first one is tested: if another replica has inserted one in the
// meantime, the API server rejects the patch, so no type can occur twice.
func conditionPatch(n *gate.Node, d *gate.Decision) ([]byte, error) {
	names := slices.Sorted(maps.Keys(d.Conditions))
	if len(names) == 0 {
		return nil, nil
	}
	a := annotations{exist: n.HasAnnotations}
	for _, name := range names {
		before, exists := n.Records[name]
		a.test(v1alpha1.RecordAnnotationPrefix+name, before, exists)
	}
	guard := []operation{test(uidPath, n.UID), testBoot(n)}
	patch, err := json.Marshal(slices.Concat(guard, a.operations(), patchConditions(n, d, names)))
	if err != nil {
		return nil, fmt.Errorf("encoding the patch of the conditions of node %s: %w", n.Name, err)
	}
	return patch, nil
}

// patchConditions returns the operations on the list of conditions. Those that exist are
// removed first, from the end, because a removal does not shift lower indexes.
func patchConditions(n *gate.Node, d *gate.Decision, names []string) (ops []operation) {
	if len(n.Conditions) == 0 {
		// Without the test, "add" would replace a list that was created in the meantime.
		ops = append(ops, test(conditionsPath, null), add(conditionsPath, []any{}))
	} else {
		ops = append(ops, test(conditionsPath+"/0/type", n.Conditions[0].Type))
	}
	for i := range slices.Backward(n.Conditions) {
		for _, name := range names {
			if kind := n.Conditions[i].Type; kind == v1alpha1.DeadlineConditionPrefix+name {
				at := conditionsPath + "/" + strconv.Itoa(i)
				ops = append(ops, test(at+"/type", kind), remove(at))
			}
		}
	}
	for _, name := range names {
		if c := d.Conditions[name]; c != nil {
			ops = append(ops, add(conditionsPath+"/0", c))
		}
	}
	return ops
}
