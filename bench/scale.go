// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/nodegate/nodegate/bench/figure"
	"github.com/nodegate/nodegate/bench/growth"
)

// set returns the figures from which -only chooses.
func (o *options) set() []figure.Figure {
	if o.scale {
		return growth.All
	}
	return figure.All
}
