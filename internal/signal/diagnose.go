// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Diagnose returns a problem that a signal has on every node: a DaemonSet does not exist, is
// being deleted, or is deadlocked with the gate because it does not tolerate one of the
// gate's taints, even if that taint is not on any node yet. If there is no problem, the
// reading is Holds, with a reason if there is a warning. If something has not been
// observed, it is Unknown.
func Diagnose(s gate.Signal, taints []v1alpha1.Taint, sets *gate.DaemonSets) gate.Reading {
	result := gate.Reading{State: gate.Holds}
	switch s := s.(type) {
	case daemonSet:
		if sets == nil || !sets.Observed[s.namespace] {
			return gate.Reading{Reason: v1alpha1.ReadingNotObserved, Subject: "DaemonSet " + s.subject}
		}
		ds := s.find(sets)
		if ds == nil {
			return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingDaemonSetNotFound, Subject: s.subject}
		}
		if ds.Deleting {
			return gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingDaemonSetBeingDeleted, Subject: s.subject}
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
	return result
}

func (s daemonSets) diagnose(taints []v1alpha1.Taint, sets *gate.DaemonSets) gate.Reading {
	result := gate.Reading{State: gate.Holds, Reason: v1alpha1.ReadingNoDaemonSetSelected}
	for _, ds := range s.selected(sets) {
		r := diagnoseDaemon(ds, taints)
		if r.State != gate.Holds {
			return r
		}
		if result.Reason != v1alpha1.ReadingDaemonNotProbed { // the first one is reported
			result = r
		}
	}
	return result
}

func diagnoseDaemon(ds *gate.DaemonSet, taints []v1alpha1.Taint) gate.Reading {
	r := deadlocked(ds, taints...)
	if r.State == gate.Holds && ds.Unprobed {
		r.Reason, r.Subject = v1alpha1.ReadingDaemonNotProbed, ds.String()
	}
	return r
}
