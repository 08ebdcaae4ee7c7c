// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/nodegate/nodegate/bench/figure"

// set returns the figures from which -only chooses.
func (o *options) set() []figure.Figure {
	if o.scale {
		return figure.Scale
	}
	return figure.All
}
