// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/boundpods"
)

// closeReasons are the reasons for closing a gate.
var closeReasons = []v1alpha1.Reason{
	v1alpha1.ReasonBirth, v1alpha1.ReasonAdopted, v1alpha1.ReasonExisting, v1alpha1.ReasonExistingIdle,
	v1alpha1.ReasonRebooted, v1alpha1.ReasonRebootedUnobserved, v1alpha1.ReasonNodeSilent, v1alpha1.ReasonNodeShutdown,
	v1alpha1.ReasonRegression, v1alpha1.ReasonGroupIncomplete, v1alpha1.ReasonSignalsHold,
	v1alpha1.ReasonOverridden, v1alpha1.ReasonOverrideEnded,
}

// openReasons are the reasons for opening a gate, except ReasonGateDeleted: the series of a
// gate are removed with it.
var openReasons = []v1alpha1.Reason{
	v1alpha1.ReasonSignalsHold, v1alpha1.ReasonSignalsCleared, v1alpha1.ReasonAdopted, v1alpha1.ReasonDeadlinePassed,
	v1alpha1.ReasonNodeReturned, v1alpha1.ReasonOpenedByHand, v1alpha1.ReasonNotSelected, v1alpha1.ReasonDryRun,
	v1alpha1.ReasonOptedOut, v1alpha1.ReasonNotIdle, v1alpha1.ReasonOverridden, v1alpha1.ReasonOverrideEnded,
}

// initialize initializes counters to zero. Prometheus would not detect the first increase of
// a series that starts at one.
func (m *Metrics) initialize() {
	for _, outcome := range []string{patchOK, patchConflict, patchGone, patchDenied, patchError} {
		m.Patches.WithLabelValues(outcome)
	}
	for _, outcome := range []string{eventWritten, EventFailed, EventDropped} {
		m.Events.WithLabelValues(outcome)
	}
}

// initializeGate initializes the counters of a gate, for the same reason.
func (m *Metrics) initializeGate(name string) {
	for _, certainty := range []string{Certain, Possible} {
		m.Bypasses.WithLabelValues(name, certainty)
		m.Rejections.WithLabelValues(name, certainty, OwnedByController)
		m.Rejections.WithLabelValues(name, certainty, OwnedByNone)
	}
	for _, reason := range closeReasons {
		m.Closes.WithLabelValues(name, string(reason))
	}
	for _, reason := range openReasons {
		m.Opens.WithLabelValues(name, string(reason))
	}
	for _, outcome := range []boundpods.Eviction{boundpods.Evicted, boundpods.EvictionBlocked, boundpods.EvictionOutdated, boundpods.EvictionDenied, boundpods.EvictionFailed} {
		m.Evictions.WithLabelValues(name, string(outcome))
	}
}
