// SPDX-License-Identifier: Apache-2.0

package jsonclient

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/transport"

	"github.com/nodegate/nodegate/internal/kube/connection/connectiontest"
)

// If the machine of the API server loses power, another connection is used within ten seconds, also
// for a request that was sent through the lost one.
func TestLostConnection(t *testing.T) {
	failing := connectiontest.TimeToRecover(t, func(dial connectiontest.Dial) func(context.Context) error {
		c, err := New("https://test", &transport.Config{TLS: transport.TLSConfig{Insecure: true}, DialHolder: &transport.DialHolder{Dial: dial}})
		if err != nil {
			t.Fatal(err)
		}
		return func(ctx context.Context) error { return c.Patch(ctx, "/things/a", types.MergePatchType, []byte("{}")) }
	})
	if failing == 0 || failing > 10*time.Second {
		t.Errorf("requests failed for %s, want up to ten seconds", failing)
	}
}
