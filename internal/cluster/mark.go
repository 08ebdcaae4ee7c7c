// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// markValue is what the annotation says that marks a pod as ready.
const markValue = "true"

// markedSince is when the annotation that marks a pod as ready was last written,
// as the API server keeps account of it in the managed fields: the latest write
// by a manager that owns the annotation. It is zero if the pod is not marked, and
// the pod's creation if nobody is known to own the annotation. A manager that
// later writes something else of the pod counts as having written it again.
func markedSince(o *corev1.Pod, key string) time.Time {
	if o.Annotations[key] != markValue {
		return time.Time{}
	}
	var since time.Time
	for i := range o.ManagedFields {
		e := &o.ManagedFields[i]
		if e.Time == nil || e.FieldsV1 == nil || !ownsAnnotation(e.FieldsV1.GetRawBytes(), key) {
			continue
		}
		if at := instant(*e.Time); at.After(since) {
			since = at
		}
	}
	if since.IsZero() {
		return instant(o.CreationTimestamp)
	}
	return since
}

// ownsAnnotation tells whether an annotation is among the fields of a manager,
// which name it as f:KEY.
func ownsAnnotation(raw []byte, key string) bool {
	field := "f:" + key
	if !strings.Contains(string(raw), field) {
		return false // as with nearly all, and cheaper than reading them
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
