// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/status"
)

// The Lease determines whether a controller is running.
func TestLeader(t *testing.T) {
	lease := func(holder *string, age time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: holder, LeaseDurationSeconds: ptr.To(int32(15)), RenewTime: ptr.To(metav1.NewMicroTime(clitest.Now.Add(-age))),
		}}
	}
	for name, c := range map[string]struct {
		lease   *coordinationv1.Lease
		running string
		want    string
	}{
		"running":                {lease(ptr.To("a"), 2*time.Second), status.Yes, "a renewed its lease 2s ago"},
		"late, or clocks differ": {lease(ptr.To("a"), 29*time.Second), status.Yes, "29s ago"},
		"its clock is ahead":     {lease(ptr.To("a"), -time.Minute), status.Yes, "0s ago"},
		"gone":                   {lease(ptr.To("a"), 31*time.Second), status.No, "no controller is running: a last renewed"},
		"released":               {lease(ptr.To(""), time.Second), status.No, "released its lease 1s ago"},
		"without holder":         {lease(nil, time.Hour), status.No, "released its lease"},
		"never renewed":          {&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a")}}, status.No, "no controller is running"},
	} {
		if got := judge(c.lease, clitest.Now); got.Running != c.running || !strings.Contains(got.Message, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
