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

	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/release"
)

// Whether something is so, where that may not be known.
const (
	answerYes     = "Yes"
	answerNo      = "No"
	answerUnknown = "Unknown"
)

// Controller tells whether a controller is at work.
type Controller struct {
	// Running is Yes, No or Unknown.
	Running string `json:"running"`
	// Message says how that is known, or why it is not.
	Message string `json:"message"`
	// Holder is who holds the Lease, and Renewed is when that was confirmed last.
	Holder  string    `json:"holder,omitempty"`
	Renewed time.Time `json:"renewed,omitzero"`
}

// leader tells whether a controller is at work in a namespace.
func leader(ctx context.Context, reader *cluster.Reader, namespace string) Controller {
	lease, err := reader.Lease(ctx, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return Controller{Running: answerNo, Message: fmt.Sprintf(
			"no controller has ever worked in namespace %s; --namespace says where nodegate is installed, if elsewhere", namespace)}
	case err != nil:
		return Controller{Running: answerUnknown, Message: "whether the controller runs is not known: " + err.Error()}
	}
	return judge(lease, time.Now())
}

// judge tells by a Lease whether its holder is at work.
func judge(lease *coordinationv1.Lease, now time.Time) Controller {
	c := Controller{Holder: ptr.Deref(lease.Spec.HolderIdentity, "")}
	if lease.Spec.RenewTime != nil {
		c.Renewed = lease.Spec.RenewTime.UTC()
	}
	age := duration.HumanDuration(max(now.Sub(c.Renewed), 0))
	switch {
	case c.Holder == "":
		c.Running, c.Message = answerNo, fmt.Sprintf("no controller runs: the last one ended in order, %s ago", age)
	case !release.Held(lease, now):
		c.Running, c.Message = answerNo, fmt.Sprintf("no controller runs: %s renewed its lease %s ago, by the clock of this machine", c.Holder, age)
	default:
		c.Running, c.Message = answerYes, fmt.Sprintf("the controller runs: %s renewed its lease %s ago", c.Holder, age)
	}
	return c
}
