// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"slices"

	"github.com/nodegate/nodegate/internal/gate"
)

// insert inserts an item into a sorted list of limited length.
func insert[T any](sorted []T, one T, most int, compare func(a, b T) int) []T {
	i, _ := slices.BinarySearchFunc(sorted, one, compare)
	if i >= most {
		return sorted
	}
	sorted = slices.Insert(sorted, i, one)
	return sorted[:min(len(sorted), most)]
}

// NameList counts names and keeps the first few, so that messages about a fleet have a
// bounded size.
type NameList struct {
	Count int
	First []string
	// Most is the number of names that are kept. Defaults to FewMax.
	Most int
}

// FewMax is the default of NameList.Most.
const FewMax = 3

// AddIf adds a name if a condition is true.
func (f *NameList) AddIf(yes bool, name string) {
	if yes {
		f.Count++
		f.First = insert(f.First, name, cmp.Or(f.Most, FewMax), cmp.Compare)
	}
}

// NewNameList returns a NameList of names.
func NewNameList(names []string) NameList {
	var f NameList
	for _, name := range names {
		f.AddIf(true, name)
	}
	return f
}

// String returns the names, or the first ones and the number of the others.
func (f NameList) String() string { return gate.FirstNames(f.First, f.Count) }
