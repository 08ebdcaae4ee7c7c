// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/internal/kube/clients"
)

// markValue is the value of the annotation that marks a pod as ready.
const markValue = "true"

// markedSince returns the time of the last write of the annotation that marks a pod as
// ready, according to the managed fields: the latest write by a manager that owns the
// annotation. It returns the zero time if the pod is not marked, and the pod's creation
// time if no manager owns the annotation. A later write of another field by such a
// manager counts as a write of the annotation.
func markedSince(o *corev1.Pod, key string) time.Time {
	if o.Annotations[key] != markValue {
		return time.Time{}
	}
	since := clients.LastWrite(o.ManagedFields, func(raw []byte) bool { return ownsAnnotation(raw, key) })
	if since.IsZero() {
		return clients.Instant(o.CreationTimestamp)
	}
	return since
}

// ownsAnnotation reports whether a manager's fields, given as FieldsV1, include an
// annotation. They name it f:KEY.
func ownsAnnotation(raw []byte, key string) bool {
	field := "f:" + key
	if !strings.Contains(string(raw), field) {
		return false // almost always, and cheaper than decoding
	}
	var fields struct {
		Metadata struct {
			Annotations map[string]json.RawMessage `json:"f:annotations"`
		} `json:"f:metadata"`
	}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return false
	}
	_, owned := fields.Metadata.Annotations[field]
	return owned
}
