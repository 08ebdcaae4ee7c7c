// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"testing"
	"time"
)

// By default, cert-manager renews a certificate when a third of its lifetime remains, so the alert
// fires when less than a quarter, and less than 14 days, remain.
func TestCertificatesOfAnyLifetime(t *testing.T) {
	const day = 24 * time.Hour
	rule := alertNamed(t, "NodegateCertificateExpiring")
	for name, s := range map[string]struct {
		lifetime, remains time.Duration
		fires             bool
	}{
		"a day, before the renewal":      {day, 9 * time.Hour, false},
		"a day, at the renewal":          {day, 8 * time.Hour, false},
		"a day, not renewed":             {day, 6 * time.Hour, true},
		"30 days, before the renewal":    {30 * day, 12 * day, false},
		"30 days, at the renewal":        {30 * day, 10 * day, false},
		"30 days, not renewed":           {30 * day, 7 * day, true},
		"90 days, a month remains":       {90 * day, 30 * day, false},
		"90 days, two weeks remain":      {90 * day, 15 * day, false},
		"90 days, less than two weeks":   {90 * day, 13 * day, true},
		"ten years, a year remains":      {3650 * day, 365 * day, false},
		"ten years, less than two weeks": {3650 * day, 13 * day, true},
		"expired":                        {30 * day, -day, true},
		"unknown, less than two weeks":   {0, 13 * day, true}, // no series
		"unknown, more than two weeks":   {0, 15 * day, false},
	} {
		series := fmt.Sprintf("nodegate_webhook_certificate_expiry_timestamp_seconds %dx60", int(s.remains.Seconds()))
		if s.lifetime > 0 {
			series += fmt.Sprintf("\nnodegate_webhook_certificate_not_before_timestamp_seconds %dx60", int((s.remains - s.lifetime).Seconds()))
		}
		if got := firing(t, rule, series, 20*time.Minute); (len(got) == 1) != s.fires {
			t.Errorf("%s: these alerts fire: %q, want one: %t", name, got, s.fires)
		}
	}
}
