// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Changes are the writes that make the parameters what they should be.
type Changes struct {
	// Create lists parameters that do not exist.
	Create []*corev1.PodTemplate
	// Update lists existing parameters, with what was wrong put right.
	Update []*corev1.PodTemplate
	// Delete lists parameters that no gate stands behind.
	Delete []*corev1.PodTemplate
}

// Empty tells whether there is nothing to do.
func (c Changes) Empty() bool {
	return len(c.Create)+len(c.Update)+len(c.Delete) == 0
}

// Plan compares the wanted parameters with all the PodTemplates that carry
// ParameterLabel, by name. Labels and annotations that others added stay: to
// fight for them would never end. The result is sorted by name.
func Plan(want []*corev1.PodTemplate, have []corev1.PodTemplate) Changes {
	existing := make(map[string]*corev1.PodTemplate, len(have))
	for i := range have {
		existing[have[i].Name] = &have[i]
	}
	var changes Changes
	for _, w := range want {
		h, exists := existing[w.Name]
		delete(existing, w.Name)
		switch {
		case !exists:
			changes.Create = append(changes.Create, w)
		case !contains(h.Labels, w.Labels) || !contains(h.Annotations, w.Annotations):
			changes.Update = append(changes.Update, corrected(h, w))
		}
	}
	changes.Delete = slices.AppendSeq(changes.Delete, maps.Values(existing))

	byName := func(a, b *corev1.PodTemplate) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(changes.Create, byName)
	slices.SortFunc(changes.Update, byName)
	slices.SortFunc(changes.Delete, byName)
	return changes
}

// contains tells whether all of part is in whole.
func contains(whole, part map[string]string) bool {
	for key, value := range part {
		if got, ok := whole[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// corrected is the existing parameter with the labels and annotations of the
// wanted one. It keeps the resource version, so that a stale plan fails.
func corrected(existing, wanted *corev1.PodTemplate) *corev1.PodTemplate {
	out := existing.DeepCopy()
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	maps.Copy(out.Labels, wanted.Labels)
	maps.Copy(out.Annotations, wanted.Annotations)
	return out
}
