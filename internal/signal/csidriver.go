// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// csiDriver holds when the node's kubelet has registered a CSI driver. It cannot
// determine the boot in which that happened, because a CSINode survives reboots.
type csiDriver struct {
	levelSignal
	name string
	// limit also requires the driver's volume limit.
	limit bool
	// subject is the subject of readings.
	subject string
}

func newCSIDriver(spec *v1alpha1.CSIDriverSignal) gate.Signal {
	return csiDriver{name: spec.Name, limit: spec.Allocatable, subject: "CSI driver " + spec.Name}
}

// Read implements gate.Signal.
func (s csiDriver) Read(in gate.Input) gate.Reading {
	limited, registered := in.CSINode.Drivers[s.name]
	switch {
	case !in.CSINode.Observed:
		return gate.Reading{Reason: v1alpha1.ReadingNotObserved, Subject: s.subject}
	case registered && in.CSINode.Owner != in.Node.UID:
		if in.CSINode.Owner == "" {
			return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingNotOwned, Subject: "the CSINode with " + s.subject}
		}
		return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingFormerNode, Subject: s.subject}
	case !registered:
		return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingMissing, Subject: s.subject}
	case s.limit && !limited:
		return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingMissing, Subject: "volume limit of " + s.subject}
	}
	return gate.Reading{State: gate.Holds, Reason: v1alpha1.ReadingMatches, Subject: s.subject}
}

// Needs implements gate.Signal.
func (csiDriver) Needs(*gate.DaemonSets) gate.Needs { return gate.Needs{CSINodes: true} }
