// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// missingPodStep returns what to do about a pod that the node does not have. On a node with a taint
// that a DaemonSet does not tolerate, its controller creates no pod, and no event.
func (f *Facts) missingPodStep(r *gate.Reading) string {
	taint := f.untolerated(r.Subject)
	if taint == nil {
		return nextSteps[r.Reason]
	}
	text, of := gate.TaintText(v1alpha1.TaintOf(*taint)), ""
	for i := range f.Decision.Verdicts {
		v := &f.Decision.Verdicts[i]
		if g, _ := f.Gates.Gate(v.Gate); v.TaintOn(&f.Node.Node, &f.Decision, g) == text {
			of = " of gate " + v.Gate
			break
		}
	}
	return fmt.Sprintf(untoleratedStep, text, of)
}

// untolerated returns the first taint of the node that a DaemonSet, in the form of readings, does not
// tolerate, or nil.
func (f *Facts) untolerated(daemon string) *corev1.Taint {
	if f.Node.DaemonSets == nil {
		return nil
	}
	all, taints := f.Node.DaemonSets.Items, f.Node.Node.Taints
	i := slices.IndexFunc(all, func(ds gate.DaemonSet) bool { return ds.String() == daemon })
	if i < 0 {
		return nil
	}
	j := slices.IndexFunc(taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !gate.Tolerates(all[i].Tolerations, t)
	})
	if j < 0 {
		return nil
	}
	return &taints[j]
}
