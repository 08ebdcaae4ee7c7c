// SPDX-License-Identifier: Apache-2.0

package boundpods

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/clients"
)

// rejection returns how a kubelet rejected a pod, or nil. Whether the reason is that of a
// rejection is for the core to decide.
func rejection(o *corev1.Pod) *gate.Rejection {
	if o.Status.Phase != corev1.PodFailed || o.Status.Reason == "" || len(o.Status.Reason) > maxReason {
		return nil
	}
	r := &gate.Rejection{Reason: o.Status.Reason, Reported: clients.LastWrite(o.ManagedFields, ownsReason)}
	for i := range o.Status.Conditions {
		if c := &o.Status.Conditions[i]; c.Type == corev1.PodReady && !c.LastTransitionTime.IsZero() && c.LastTransitionTime.Time.Before(r.Reported) {
			r.Reported = clients.Instant(c.LastTransitionTime)
		}
	}
	if o.Status.StartTime != nil {
		r.Start = clients.Instant(*o.Status.StartTime)
	}
	for i := range o.Status.ContainerStatuses {
		if ended := o.Status.ContainerStatuses[i].State.Terminated; ended != nil && ended.FinishedAt.After(r.Ended) {
			r.Ended = clients.Instant(ended.FinishedAt)
		}
	}
	return r
}

// ownsReason reports whether a manager's fields, given as FieldsV1, include the reason of a
// pod's phase.
func ownsReason(raw []byte) bool {
	var fields struct {
		Status struct {
			Reason json.RawMessage `json:"f:reason"`
		} `json:"f:status"`
	}
	return json.Unmarshal(raw, &fields) == nil && fields.Status.Reason != nil
}
