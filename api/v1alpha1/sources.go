// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "iter"

// Sources returns an iterator over the signals of lists, including those in anyOf. A signal in
// anyOf has two names: that of the signal, and its own. The others have one.
func Sources(lists ...[]Signal) iter.Seq2[[]string, *SignalSource] {
	return func(yield func([]string, *SignalSource) bool) {
		for _, list := range lists {
			for i := range list {
				signal := &list[i]
				if !yield([]string{signal.Name}, &signal.SignalSource) {
					return
				}
				for j := range signal.AnyOf {
					if !yield([]string{signal.Name, signal.AnyOf[j].Name}, &signal.AnyOf[j].SignalSource) {
						return
					}
				}
			}
		}
	}
}
