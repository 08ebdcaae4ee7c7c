// SPDX-License-Identifier: Apache-2.0

// Package report says of a whole fleet how its nodes came to be fit for work, and
// draws it: one HTML file that needs nothing else. It computes, and does nothing
// else.
package report
