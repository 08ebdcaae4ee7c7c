// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// The API server's birth policy writes no time, so a gate that it closed has been closed
// since the Node was created, also while the gate's state is kept. If an override sets the
// state, it has been so since the override began.
func TestHeldSince(t *testing.T) {
	atBirth := func(r *Record) { r.Since = time.Time{} }
	bornClosed := func(gates ...Gate) *sim {
		return aNode(gates...).record("cni", v1alpha1.StateClosed, atBirth).taint(cniTaint)
	}
	overridden := epoch.Add(-30 * time.Minute)
	for name, c := range map[string]struct {
		node *sim
		want time.Time
	}{
		"its key is not allowed":                    {bornClosed(aGate("cni")).keys("other.example/x"), epoch.Add(-24 * time.Hour)},
		"it no longer selects the node":             {bornClosed(aGate("cni", selecting("pool=gpu"))), epoch.Add(-24 * time.Hour)},
		"it is not listed":                          {bornClosed().invisible(), epoch.Add(-24 * time.Hour)},
		"it is paused":                              {bornClosed(aGate("cni", inPause)), epoch.Add(-24 * time.Hour)},
		"closed later":                              {aNode(aGate("cni")).closed("cni").keys("other.example/x"), epoch.Add(-time.Hour)},
		"overridden closed, its key is not allowed": {overriddenClosed(aGate("cni")).keys("other.example/x"), overridden},
		"overridden open, its key is not allowed":   {overriddenOpen(aGate("cni")).keys("other.example/x"), overridden},
	} {
		d := c.node.decide()
		if v := d.Verdict("cni"); v.Before != v.After || !v.Since.Equal(c.want) {
			t.Errorf("%s: %s since %s, want %s", name, v.After, v.Since, c.want)
		}
	}
}
