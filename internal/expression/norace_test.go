// SPDX-License-Identifier: Apache-2.0

//go:build !race

package expression

const raceFactor = 1
