// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package meter

// Instructions cannot be counted on this operating system.
type Instructions struct{}

// CountInstructions reports false.
func CountInstructions(...int) (*Instructions, bool) { return nil, false }

// Count returns 0.
func (*Instructions) Count() (float64, error) { return 0, nil }

// Close does nothing.
func (*Instructions) Close() error { return nil }
