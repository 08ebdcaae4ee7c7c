// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/printer"
	"github.com/nodegate/nodegate/internal/release"
	"github.com/nodegate/nodegate/internal/status"
)

// leadership is the Lease of a namespace, or the error of reading it.
type leadership struct {
	namespace string
	lease     *coordinationv1.Lease
	err       error
	// here is true if nodegate is installed in the namespace, and elsewhere is the error that it is
	// installed in another one. Both are zero if it is not installed, or if that is unknown, because most
	// users may not read ClusterRoleBindings.
	here      bool
	elsewhere error
}

func readLeadership(ctx context.Context, reader *read.Reader, namespace string) leadership {
	l := leadership{namespace: namespace}
	if l.lease, l.err = reader.Lease(ctx, namespace); apierrors.IsNotFound(l.err) {
		if installed, err := release.CheckNamespace(ctx, reader.Core(), namespace); installed {
			l.here, l.elsewhere = err == nil, err
		}
	}
	return l
}

// isUnknown precedes the reason in the message of a status.Controller.
const isUnknown = "it is unknown whether a controller is running: "

// controller determines whether a controller is running in the namespace. Without a Lease, one may
// run without leader election. The status of the gates shows whether any has run.
func (l *leadership) controller(gates []v1alpha1.NodeGate, now time.Time) status.Controller {
	switch {
	case l.elsewhere != nil:
		return status.Controller{Running: status.Unknown, Message: isUnknown + l.elsewhere.Error()}
	case apierrors.IsNotFound(l.err):
		missing := fmt.Sprintf("there is no Lease %s in namespace %s", v1alpha1.LeaseName, l.namespace)
		elsewhere := "; if nodegate is installed in another namespace, specify it with --namespace"
		if l.here {
			elsewhere = ""
		}
		if slices.ContainsFunc(gates, func(ng v1alpha1.NodeGate) bool { return ng.Status.ObservedGeneration > 0 }) {
			return status.Controller{Running: status.Unknown, Message: isUnknown + missing + ", and one with --leader-elect=false has none" + elsewhere}
		}
		return status.Controller{Running: status.No, Message: missing + ": no controller has run there, or it runs with --leader-elect=false" + elsewhere}
	case l.err != nil:
		return status.Controller{Running: status.Unknown, Message: isUnknown + printer.OneLine(l.err)}
	}
	return judge(l.lease, now)
}

// judge determines from a Lease whether its holder is running.
func judge(lease *coordinationv1.Lease, now time.Time) status.Controller {
	c := status.Controller{Holder: ptr.Deref(lease.Spec.HolderIdentity, "")}
	if lease.Spec.RenewTime != nil {
		c.Renewed = lease.Spec.RenewTime.UTC()
	}
	holder, age := gate.Printable(c.Holder), duration.HumanDuration(max(now.Sub(c.Renewed), 0))
	switch {
	case c.Holder == "" && c.Renewed.IsZero():
		c.Running, c.Message = status.No, "no controller is running: its lease has never had a holder"
	case c.Renewed.IsZero():
		c.Running, c.Message = status.No, fmt.Sprintf("no controller is running: %s has never renewed its lease", holder)
	case c.Holder == "":
		c.Running, c.Message = status.No, fmt.Sprintf("no controller is running: the last one released its lease %s ago", age)
	case !release.Held(lease, now):
		c.Running, c.Message = status.No, fmt.Sprintf("no controller is running: %s last renewed its lease %s ago, by the API server's clock", holder, age)
	default:
		c.Running, c.Message = status.Yes, fmt.Sprintf("the controller is running: %s renewed its lease %s ago", holder, age)
	}
	return c
}
