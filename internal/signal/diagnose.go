// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Diagnose says what is wrong with a signal on every node alike: a DaemonSet
// that does not exist, or that waits for the gate as the gate waits for it, be it
// only because of a taint that the gate does not have there yet.
// Nothing wrong reads Holds, with a reason where there is something to tell all
// the same; what is not observed reads Unknown.
func Diagnose(s gate.Signal, taints []v1alpha1.Taint, sets *gate.DaemonSets) gate.Reading {
	well := gate.Reading{State: gate.Holds}
	switch s := s.(type) {
	case daemonSet:
		if sets == nil || !sets.Observed[s.namespace] {
			return gate.Reading{Reason: v1alpha1.ReadingNotObserved, Subject: "DaemonSet " + s.subject}
		}
		ds := s.find(sets)
		if ds == nil {
			return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingDaemonSetNotFound, Subject: s.subject}
		}
		return diagnoseDaemon(ds, taints)
	case daemonSets:
		if ns, missing := s.unobserved(sets); missing {
			return gate.Reading{Reason: v1alpha1.ReadingNotObserved, Subject: "namespace " + ns}
		}
		return s.diagnose(taints, sets)
	case anyOf:
		return s.diagnose(taints, sets)
	}
	return well
}

func (s daemonSets) diagnose(taints []v1alpha1.Taint, sets *gate.DaemonSets) gate.Reading {
	well := gate.Reading{State: gate.Holds, Reason: v1alpha1.ReadingNoDaemonSetSelected}
	for _, ds := range s.selected(sets) {
		r := diagnoseDaemon(ds, taints)
		if r.State != gate.Holds {
			return r
		}
		if well.Reason != v1alpha1.ReadingDaemonNotProbed { // of several the first is told
			well = r
		}
	}
	return well
}

func diagnoseDaemon(ds *gate.DaemonSet, taints []v1alpha1.Taint) gate.Reading {
	r := deadlocked(ds, taints...)
	if r.State == gate.Holds && ds.Unprobed {
		r.Reason, r.Subject = v1alpha1.ReadingDaemonNotProbed, ds.String()
	}
	return r
}
