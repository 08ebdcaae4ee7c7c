// SPDX-License-Identifier: Apache-2.0

package figure

// All are the figures, in the order in which they are measured: the fleet grows
// from one to the next.
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
