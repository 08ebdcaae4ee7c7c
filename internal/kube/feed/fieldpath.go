// SPDX-License-Identifier: Apache-2.0

package feed

import "strings"

// fieldPath splits a path such as spec.nodeName or metadata.labels['example.com/node'].
func fieldPath(path string) (names []string) {
	for path != "" {
		var name string
		if quoted, found := strings.CutPrefix(path, "['"); found {
			name, path, _ = strings.Cut(quoted, "']")
		} else {
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			name, path = path[:end], path[end:]
		}
		names = append(names, name)
		path = strings.TrimPrefix(path, ".")
	}
	return names
}
