// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Differences returns the JSON paths of all fields in which two objects differ. A
// list counts as one field.
func Differences(a, b any) [][]string {
	return diff(nil, plain(a), plain(b))
}

func plain(object any) any {
	raw, err := json.Marshal(object)
	if err != nil {
		panic(fmt.Sprintf("facts: encoding an object that was decoded: %v", err))
	}
	var out any
	if err := json.Unmarshal(raw, &out); err != nil {
		panic(fmt.Sprintf("facts: decoding an object that was encoded: %v", err))
	}
	return out
}

func diff(path []string, a, b any) [][]string {
	x, isMap := a.(map[string]any)
	y, isMapToo := b.(map[string]any)
	if !isMap && a != nil || !isMapToo && b != nil || a == nil && b == nil {
		if reflect.DeepEqual(a, b) {
			return nil
		}
		return [][]string{path}
	}
	keys := make(map[string]bool)
	for _, m := range []map[string]any{x, y} {
		for key := range m {
			keys[key] = true
		}
	}
	var paths [][]string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		paths = append(paths, diff(append(slices.Clone(path), key), x[key], y[key])...)
	}
	return paths
}
