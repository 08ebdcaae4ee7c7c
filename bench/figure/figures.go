// SPDX-License-Identifier: Apache-2.0

package figure

// All contains the figures in the order of their measurement, in which the fleet
// only grows.
var All = []Figure{
	opening,
	regression,
	requests,
	binding,
	bursting,
	servers,
	ownWork,
	coldStart,
	idle,
	busy,
	memory,
	birth,
	flipping,
}
