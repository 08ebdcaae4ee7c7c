// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/release"
	"github.com/nodegate/nodegate/internal/status"
)

// leader determines from the Lease whether a controller is running in a namespace.
func leader(ctx context.Context, reader *read.Reader, namespace string) status.Controller {
	lease, err := reader.Lease(ctx, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return status.Controller{Running: status.No, Message: fmt.Sprintf(
			"no controller has ever run in namespace %s; if nodegate is installed in another namespace, specify it with --namespace", namespace)}
	case err != nil:
		return status.Controller{Running: status.Unknown, Message: "it is unknown whether a controller is running: " + err.Error()}
	}
	return judge(lease, time.Now())
}

// judge determines from a Lease whether its holder is running.
func judge(lease *coordinationv1.Lease, now time.Time) status.Controller {
	c := status.Controller{Holder: ptr.Deref(lease.Spec.HolderIdentity, "")}
	if lease.Spec.RenewTime != nil {
		c.Renewed = lease.Spec.RenewTime.UTC()
	}
	age := duration.HumanDuration(max(now.Sub(c.Renewed), 0))
	switch {
	case c.Holder == "":
		c.Running, c.Message = status.No, fmt.Sprintf("no controller is running: the last one released its lease %s ago", age)
	case !release.Held(lease, now):
		c.Running, c.Message = status.No, fmt.Sprintf("no controller is running: %s last renewed its lease %s ago, by the clock of this machine", c.Holder, age)
	default:
		c.Running, c.Message = status.Yes, fmt.Sprintf("the controller is running: %s renewed its lease %s ago", c.Holder, age)
	}
	return c
}
