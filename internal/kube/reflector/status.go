// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"strings"
	"time"
)

// Status is the status of one feed.
type Status struct {
	// Name describes what is observed, for logs and messages. It begins with the
	// resource.
	Name string
	// Synced reports whether everything has been read once.
	Synced bool
	// Live reports whether what has been read is being kept up to date.
	Live bool
	// Err is why the feed is not live. It is nil while the feed is live or is being
	// listed.
	Err error
	// Received is the time at which the feed last received anything, rounded down by at most
	// BurstWindow. It is zero if the feed has received nothing.
	Received time.Time
}

// Resource returns the observed resource as it is named in URLs of the API.
func (s Status) Resource() string {
	resource, _, _ := strings.Cut(s.Name, " ")
	return resource
}
