// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// readAnnotated is readPod for a pod that the gate's readyAnnotation makes ready.
func readAnnotated(p *gate.Pod, in gate.Input) gate.Reading {
	r := gate.Reading{State: gate.NotYet, Subject: p.Name}
	switch {
	case p.Terminating:
		r.Reason, r.Since = v1alpha1.ReadingPodTerminating, p.TerminatingSince
	case p.MarkedSince.IsZero():
		r.Reason = v1alpha1.ReadingPodNotAnnotated
	case !in.Trust.BelievesMark(p):
		r.Reason = v1alpha1.ReadingStaleAnnotation
	default:
		r.State, r.Reason, r.Since = gate.Holds, v1alpha1.ReadingReady, p.MarkedSince
	}
	return r
}
