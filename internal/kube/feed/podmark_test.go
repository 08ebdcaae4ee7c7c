// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const readyKey = "startup.example/ready"

// owning returns an entry of the managed fields.
func owning(manager, fields string, at int64) metav1.ManagedFieldsEntry {
	when := metav1.Unix(at, 0)
	return metav1.ManagedFieldsEntry{Manager: manager, Time: &when, FieldsV1: metav1.NewFieldsV1(fields)}
}

func TestMarkedSince(t *testing.T) {
	const (
		annotation = `{"f:metadata":{"f:annotations":{".":{},"f:startup.example/ready":{}}}}`
		label      = `{"f:metadata":{"f:annotations":{"f:other":{}},"f:labels":{"f:startup.example/ready":{}}}}`
	)
	created := metav1.Unix(1000, 0)
	annotated := map[string]string{readyKey: "true"}
	for name, c := range map[string]struct {
		annotations map[string]string
		fields      []metav1.ManagedFieldsEntry
		want        int64 // zero if not marked
	}{
		"no annotation":     {nil, []metav1.ManagedFieldsEntry{owning("a", annotation, 2000)}, 0},
		"another value":     {map[string]string{readyKey: "True"}, []metav1.ManagedFieldsEntry{owning("a", annotation, 2000)}, 0},
		"one owner":         {annotated, []metav1.ManagedFieldsEntry{owning("a", annotation, 2000), owning("b", label, 3000)}, 2000},
		"two owners":        {annotated, []metav1.ManagedFieldsEntry{owning("a", annotation, 2000), owning("b", annotation, 3000), owning("c", annotation, 2500)}, 3000},
		"no owner":          {annotated, []metav1.ManagedFieldsEntry{owning("b", label, 3000), {Manager: "c"}}, 1000},
		"no managed fields": {annotated, nil, 1000},
		"invalid fields":    {annotated, []metav1.ManagedFieldsEntry{owning("a", `{"f:startup.example/ready"`, 2000)}, 1000},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations, ManagedFields: c.fields, CreationTimestamp: created}}
		got := markedSince(pod, readyKey)
		if c.want == 0 && !got.IsZero() || c.want != 0 && !got.Equal(time.Unix(c.want, 0)) {
			t.Errorf("%s: marked since %s, want %d", name, got, c.want)
		}
	}
}
