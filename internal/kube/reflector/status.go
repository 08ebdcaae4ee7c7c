// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"strings"
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
}

// Resource returns the observed resource as it is named in URLs of the API.
func (s Status) Resource() string {
	resource, _, _ := strings.Cut(s.Name, " ")
	return resource
}
