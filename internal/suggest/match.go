// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// match is a preset that waits for DaemonSets of the cluster.
type match struct {
	preset  *Preset
	daemons []*daemon
	why     []Evidence
	// specific is how exactly the preset's signals identify the DaemonSets. Less is more
	// exact.
	specific int
	// moved maps the namespace and name of a DaemonSet in the preset to that of the cluster.
	moved map[string]*daemon
	// selected is the number of nodes that the preset selects.
	selected int
}

// How exactly signals identify a DaemonSet.
const (
	byName = iota
	bySelector
	byDevice
)

// matches returns the presets to suggest. Each waits for a DaemonSet that no existing gate
// and no other preset of the result waits for.
func (f *finder) matches() []match {
	var all []match
	for i := range f.Presets {
		if m, found := f.match(&f.Presets[i]); found {
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b match) int {
		return cmp.Or(
			cmp.Compare(a.fitsNoNode(f), b.fitsNoNode(f)),
			cmp.Compare(a.specific, b.specific),
			cmp.Compare(len(a.moved), len(b.moved)),
			-cmp.Compare(len(a.daemons), len(b.daemons)),
			-cmp.Compare(a.selected, b.selected),
			cmp.Compare(a.preset.Name, b.preset.Name))
	})
	taken := make(map[*daemon]bool)
	return slices.DeleteFunc(all, func(m match) bool {
		isNew := slices.ContainsFunc(m.daemons, func(d *daemon) bool { return !taken[d] && len(d.covered) == 0 })
		for _, d := range m.daemons {
			taken[d] = taken[d] || isNew
		}
		return !isNew
	})
}

// fitsNoNode returns 1 if there are nodes and the preset selects none of them. It is then
// probably for another environment.
func (m *match) fitsNoNode(f *finder) int {
	if len(f.Nodes) > 0 && m.selected == 0 {
		return 1
	}
	return 0
}

// isKnown reports whether a preset waits for the DaemonSet.
func (f *finder) isKnown(d *daemon) bool {
	return slices.ContainsFunc(f.Presets, func(p Preset) bool {
		m, found := f.match(&p)
		return found && slices.Contains(m.daemons, d)
	})
}

// match returns the DaemonSets of the cluster for which a preset waits. found is false if
// there are none, or if the preset waits for one that does not exist.
func (f *finder) match(p *Preset) (m match, found bool) {
	m = match{preset: p, moved: make(map[string]*daemon)}
	missing := false
	for names, s := range v1alpha1.Sources(p.Gate.Spec.OpenWhen) {
		if s.CSIDriver != nil { // other signals identify its DaemonSet, unless it was renamed
			continue
		}
		inAnyOf := len(names) > 1 // another signal may hold instead
		if matched, identifies := f.matchSource(&m, s); identifies && !matched && !inAnyOf {
			missing = true
		}
	}
	if missing || len(m.daemons) == 0 {
		return m, false
	}
	if selector, err := p.Gate.Spec.NodeSelector.AsSelector(); err == nil {
		for _, n := range f.Nodes {
			if selector.Matches(n.Labels) {
				m.selected++
			}
		}
	}
	return m, true
}

// matchSource adds the DaemonSets that a signal of a preset waits for. matched is true if
// there is one. identifies is false if the signal does not identify DaemonSets.
func (f *finder) matchSource(m *match, s *v1alpha1.SignalSource) (matched, identifies bool) {
	for i := range f.daemons {
		d, text := &f.daemons[i], ""
		switch {
		case s.DaemonSet != nil:
			identifies = true
		case s.DaemonSets != nil:
			identifies = true
			if selects(s.DaemonSets, d) {
				text = "it has the labels that preset " + m.preset.Name + " selects"
				m.specific = max(m.specific, bySelector)
			}
		case s.Pods != nil:
			identifies = true
			if selectsPods(s.Pods, d) {
				text = "it has pods with the labels that preset " + m.preset.Name + " selects"
				m.specific = max(m.specific, bySelector)
			}
		case s.Resource != nil && !m.preset.namesDaemons() && d.provides(s.Resource.Name):
			text = fmt.Sprintf("it is a device plugin whose name or image matches the resource %s, for which preset %s waits", s.Resource.Name, m.preset.Name)
			m.specific = max(m.specific, byDevice)
		}
		if text != "" {
			matched = true
			m.add(d, text)
		}
	}
	if s.DaemonSet != nil {
		if d, text := f.find(m.preset, s.DaemonSet); d != nil {
			matched = true
			m.add(d, text)
			if key := s.DaemonSet.Namespace + "/" + s.DaemonSet.Name; key != d.String() {
				m.moved[key] = d
			}
		}
	}
	return matched, identifies
}

// namesDaemons reports whether a preset has a signal that identifies DaemonSets. Its other
// signals are then about the same ones.
func (p *Preset) namesDaemons() bool {
	for _, s := range v1alpha1.Sources(p.Gate.Spec.OpenWhen) {
		if s.DaemonSet != nil || s.DaemonSets != nil || s.Pods != nil {
			return true
		}
	}
	return false
}

func (m *match) add(d *daemon, text string) {
	if !slices.Contains(m.daemons, d) {
		m.daemons = append(m.daemons, d)
		m.why = append(m.why, Evidence{Kind: KnownByPreset, Text: text})
	}
}

// find returns the DaemonSet that a preset's signal names: the one of this namespace and
// name, or else one of the same name in another namespace, or else one that registers the
// CSI driver for which the preset waits.
func (f *finder) find(p *Preset, s *v1alpha1.DaemonSetSignal) (*daemon, string) {
	var renamed, elsewhere *daemon
	for i := range f.daemons {
		d := &f.daemons[i]
		switch {
		case d.Name == s.Name && d.Namespace == s.Namespace:
			return d, "it is the one for which preset " + p.Name + " waits"
		case d.Name == s.Name && elsewhere == nil:
			elsewhere = d
		case renamed == nil && f.registers(p, d):
			renamed = d
		}
	}
	if elsewhere != nil {
		return elsewhere, fmt.Sprintf("it has the name of the one for which preset %s waits, in another namespace", p.Name)
	}
	return renamed, "it registers the CSI driver for which preset " + p.Name + " waits"
}

// registers reports whether the DaemonSet registers a CSI driver for which a preset waits.
func (f *finder) registers(p *Preset, d *daemon) bool {
	for _, s := range v1alpha1.Sources(p.Gate.Spec.OpenWhen) {
		if s.CSIDriver != nil && slices.Contains(d.drivers, s.CSIDriver.Name) {
			return true
		}
	}
	return false
}

func selects(s *v1alpha1.DaemonSetsSignal, d *daemon) bool {
	selector, err := s.Selector.AsSelector()
	return err == nil && slices.Contains(s.Namespaces, d.Namespace) && selector.Matches(labels.Set(d.Labels))
}

func selectsPods(s *v1alpha1.PodsSignal, d *daemon) bool {
	selector, err := s.Selector.AsSelector()
	return err == nil && s.Namespace == d.Namespace && selector.Matches(labels.Set(d.Spec.Template.Labels))
}

// coverage returns the existing gates that wait for a DaemonSet, or for what it provides, on
// nodes on which it runs. A gate that selects no existing node counts, unless its nodeSelector
// contradicts the DaemonSet's: its node pool may be empty.
func (f *finder) coverage(d *daemon) (all []Coverage) {
	for i := range f.Gates {
		ng, waits := &f.Gates[i], false
		for _, s := range v1alpha1.Sources(ng.Spec.OpenWhen) {
			waits = waits || waitsFor(s, d)
		}
		if !waits {
			continue
		}
		o := f.overlap(ng, d)
		if !o.some() && (o.contradicts || o.selects) {
			continue
		}
		c := Coverage{DaemonSet: d.String(), Gate: ng.Name, InForce: f.set.Accepted(ng.Name) && ng.Spec.Enforces(), MissedNodes: o.missed}
		switch {
		case !f.set.Accepted(ng.Name):
			c.Message = f.set.Acceptance[ng.Name].Message
		case !ng.Spec.Enforces():
			c.Message = "its mode is " + string(ng.Spec.Mode)
		}
		all = append(all, c)
	}
	return all
}

// waitsFor reports whether a signal waits for a DaemonSet, or for what it provides.
func waitsFor(s *v1alpha1.SignalSource, d *daemon) bool {
	switch {
	case s.DaemonSet != nil:
		return s.DaemonSet.Namespace == d.Namespace && s.DaemonSet.Name == d.Name
	case s.DaemonSets != nil:
		return selects(s.DaemonSets, d)
	case s.Pods != nil:
		return selectsPods(s.Pods, d)
	case s.CSIDriver != nil:
		return slices.Contains(d.drivers, s.CSIDriver.Name)
	case s.Resource != nil:
		return d.provides(s.Resource.Name)
	}
	return false
}
