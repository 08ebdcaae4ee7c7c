// SPDX-License-Identifier: Apache-2.0

// Package awaittest is package await for tests.
package awaittest

import (
	"context"
	"testing"

	"github.com/nodegate/nodegate/testcluster/await"
)

// Until calls check until it returns nil, and fails the test if await.Until
// gives up. The context that check gets ends with the test.
func Until(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	if err := await.Until(t.Context(), what, check); err != nil {
		t.Fatal(err)
	}
}
