// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LastWrite returns the time of the latest write by a manager that owns certain fields, or the
// zero time if no manager owns them. The time is from the API server's clock. A later write of
// another field by such a manager counts as well. owns receives a manager's fields as FieldsV1.
func LastWrite(entries []metav1.ManagedFieldsEntry, owns func(raw []byte) bool) (last time.Time) {
	for i := range entries {
		e := &entries[i]
		if e.Time == nil || e.FieldsV1 == nil || !owns(e.FieldsV1.GetRawBytes()) {
			continue
		}
		if at := Instant(*e.Time); at.After(last) {
			last = at
		}
	}
	return last
}
