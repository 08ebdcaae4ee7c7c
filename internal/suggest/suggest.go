// SPDX-License-Identifier: Apache-2.0

// Package suggest finds the DaemonSets of a cluster that other pods need, and suggests a
// gate for each: a preset, a label that adds the DaemonSet to an existing gate, or a new
// NodeGate. It gets objects, returns suggestions, and does no I/O.
package suggest

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/preview"
)

// World is the known state of a cluster. It is not modified.
type World struct {
	Now time.Time
	// Presets are all presets. What they wait for is what is known about DaemonSets by
	// name.
	Presets []Preset
	// Gates are the existing NodeGates.
	Gates []v1alpha1.NodeGate
	// Policy contains the taint keys that gates may use. Nil parts are unknown.
	Policy gate.KeyPolicy
	// DaemonSets are all DaemonSets. Those that are being deleted need no gate, and are not in the
	// report.
	DaemonSets []appsv1.DaemonSet
	// CSIDrivers are the names of all CSIDriver objects. Nil if they were not read.
	CSIDrivers map[string]bool
	// Nodes are all nodes. Only their names, labels and creation times are needed.
	Nodes []*gate.Node
	// Pods are the pods of the nodes for which IsRecent returns true.
	Pods []Pod
	// TolerationsPolicy reports whether the API server adds tolerations to the DaemonSets of
	// gates with tolerate, when they are created or updated.
	TolerationsPolicy bool
	// Unread contains read errors. What could not be read must not be treated as empty.
	Unread []Gap
}

// Preset is a ready-made gate.
type Preset struct {
	Name string
	// Text is the preset's file: YAML with comments.
	Text string
	// Gate is the gate in the file, with defaults.
	Gate v1alpha1.NodeGate
}

// Gap is something that could not be read.
type Gap struct {
	// What could not be read, and Hides what may be missing because of it.
	What  string `json:"what"`
	Error string `json:"error"`
	Hides string `json:"hides"`
	// HidesSuggestions is true if suggestions may be missing because of it, and not only parts of them.
	HidesSuggestions bool `json:"hidesSuggestions,omitempty"`
}

// Report is the result. Fields may be added, but are neither renamed nor changed in
// meaning.
type Report struct {
	// Suggestions are sorted by certainty, most certain first.
	Suggestions []Suggestion `json:"suggestions"`
	// Covered are the DaemonSets that a gate already waits for.
	Covered []Coverage `json:"covered"`
	// Others are the DaemonSets for which there is no evidence that pods need them.
	Others []string `json:"others"`
	// ComparedNodes is the number of nodes on which the order of starts was compared.
	ComparedNodes int `json:"comparedNodes"`
	// Unread lists the read errors.
	Unread []Gap `json:"unread,omitempty"`

	// named are the DaemonSets to which the report is limited.
	named []string
}

// Certainty is how certain it is that pods need a DaemonSet.
type Certainty string

const (
	// Certain means that a preset waits for the DaemonSet.
	Certain Certainty = "Certain"
	// Likely means that the DaemonSet is set up like one that pods need, or that pods
	// waited for it on several nodes.
	Likely Certainty = "Likely"
	// Possible means that the evidence has other common causes.
	Possible Certainty = "Possible"
)

// certainties are all values, most certain first.
var certainties = []Certainty{Certain, Likely, Possible}

// Use is what to use for a DaemonSet.
type Use string

const (
	// UsePreset means to apply a preset, possibly adjusted.
	UsePreset Use = "Preset"
	// UseLabel means to add a label to the DaemonSet, for which an existing gate waits.
	UseLabel Use = "Label"
	// UseNodeGate means to apply a new gate.
	UseNodeGate Use = "NodeGate"
)

// Suggestion is a gate for one or more DaemonSets.
type Suggestion struct {
	// DaemonSets are the DaemonSets that the gate waits for, as namespace/name.
	DaemonSets []string  `json:"daemonSets"`
	Certainty  Certainty `json:"certainty"`
	// Why is the evidence that pods need the DaemonSets.
	Why []Evidence `json:"why"`
	Use Use        `json:"use"`
	// Preset is the name of the preset to use.
	Preset string `json:"preset,omitempty"`
	// Gate is the name of the gate to apply, or, with UseLabel, of the existing gate.
	Gate string `json:"gate"`
	// Label is the label to add to the DaemonSet itself, as key=value.
	Label string `json:"label,omitempty"`
	// Notes lists how the manifest differs from the preset, and what else to check.
	Notes []string `json:"notes,omitempty"`
	// Manifest is the gate to apply, in YAML. Empty with UseLabel.
	Manifest string `json:"manifest,omitempty"`
	// Taints are the taints of the gate.
	Taints []string `json:"taints"`
	// AllowKeys are the taints to add to --allowed-taint-keys.
	AllowKeys []string `json:"allowKeys,omitempty"`
	// Tolerations are the tolerations that DaemonSets lack.
	Tolerations []Toleration `json:"tolerations,omitempty"`
	// Writers are other programs that write the gate's taints.
	Writers []Writer `json:"writers,omitempty"`
	// Preview is the effect of the gate if all suggestions were followed. Nil if it
	// could not be determined.
	Preview *preview.Gate `json:"preview,omitempty"`

	daemons []*daemon
	taints  []v1alpha1.Taint
	labels  map[string]string
	// nodes selects the gate's nodes.
	nodes labels.Selector
	// spec is that of the preset or of the existing gate. moved maps the DaemonSets that it
	// names to those of the cluster, where they differ.
	spec  *v1alpha1.NodeGateSpec
	moved map[string]*daemon
	// tolerates is true if the API server adds tolerations of the gate's taints to the
	// DaemonSets that the gate waits for, when they are created or updated.
	tolerates bool
}

// Toleration is a toleration that a DaemonSet lacks.
type Toleration struct {
	DaemonSet string            `json:"daemonSet"`
	Taint     string            `json:"taint"`
	Add       corev1.Toleration `json:"add"`
	// Deadlock is true if the gate cannot open on a new node without the toleration.
	Deadlock bool `json:"deadlock"`
	// Why describes the consequence.
	Why string `json:"why"`
	// Command adds the toleration after the gate has been applied. Empty if it must be added
	// otherwise: before, if Deadlock is true.
	Command string `json:"command,omitempty"`

	// named is true if the gate names or selects the DaemonSet, so that 'kubectl gate tolerate'
	// adds the toleration after the gate or the label has been applied.
	named bool
}

// Writer is another program that writes a taint.
type Writer struct {
	Key     string `json:"key"`
	Program string `json:"program"`
	How     string `json:"how"`
}

// Coverage is a gate that already waits for a DaemonSet.
type Coverage struct {
	DaemonSet string `json:"daemonSet"`
	Gate      string `json:"gate"`
	// InForce is true if the gate is accepted and its mode is Enforce. Message is the
	// reason why it is not.
	InForce bool   `json:"inForce"`
	Message string `json:"message,omitempty"`
	// MissedNodes is the number of existing nodes on which the DaemonSet can run, and which
	// the gate does not select. Control plane nodes are not counted.
	MissedNodes int `json:"missedNodes,omitempty"`
}

// Of returns the suggestions for a world.
func Of(w *World) *Report {
	f := newFinder(w)
	r := &Report{Suggestions: []Suggestion{}, Covered: []Coverage{}, Others: []string{}, ComparedNodes: f.compared, Unread: w.Unread}
	matches := f.matches()
	for i := range f.daemons {
		r.Covered = append(r.Covered, f.daemons[i].covered...)
	}
	taken := make(map[*daemon]bool)
	for _, m := range matches {
		for _, d := range m.daemons {
			taken[d] = true
		}
		r.Suggestions = append(r.Suggestions, f.byPreset(m))
	}
	for i := range f.daemons {
		switch d := &f.daemons[i]; {
		case taken[d] || len(d.covered) > 0:
		case len(d.evidence) > 0:
			r.Suggestions = append(r.Suggestions, f.byEvidence(d))
		default:
			r.Others = append(r.Others, d.String())
		}
	}
	f.complete(r.Suggestions)
	slices.SortStableFunc(r.Suggestions, func(a, b Suggestion) int {
		return cmp.Or(
			cmp.Compare(slices.Index(certainties, a.Certainty), slices.Index(certainties, b.Certainty)),
			-cmp.Compare(len(a.Why), len(b.Why)),
			cmp.Compare(a.DaemonSets[0], b.DaemonSets[0]))
	})
	return r
}

// AddGap adds what could not be read. What the same error hides is listed once.
func (r *Report) AddGap(g Gap) {
	if i := slices.IndexFunc(r.Unread, func(known Gap) bool { return known.Error == g.Error }); i >= 0 {
		known := &r.Unread[i]
		known.Hides += "; " + g.Hides
		known.HidesSuggestions = known.HidesSuggestions || g.HidesSuggestions
		return
	}
	r.Unread = append(r.Unread, g)
}

// Hidden returns what could not be read, so that suggestions may be missing.
func (r *Report) Hidden() (what []string) {
	for _, gap := range r.Unread {
		if gap.HidesSuggestions {
			what = append(what, gap.What)
		}
	}
	return what
}

// Select limits the report to these DaemonSets, as namespace/name, unless there are none. It
// returns the first one that the report does not contain, or "".
func (r *Report) Select(names []string) (unknown string) {
	if len(names) == 0 {
		return ""
	}
	known := slices.Clone(r.Others)
	for i := range r.Covered {
		known = append(known, r.Covered[i].DaemonSet)
	}
	for i := range r.Suggestions {
		known = append(known, r.Suggestions[i].DaemonSets...)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return name
		}
	}
	other := func(name string) bool { return !slices.Contains(names, name) }
	r.Suggestions = slices.DeleteFunc(r.Suggestions, func(s Suggestion) bool {
		return !slices.ContainsFunc(s.DaemonSets, func(n string) bool { return !other(n) })
	})
	r.Covered = slices.DeleteFunc(r.Covered, func(c Coverage) bool { return other(c.DaemonSet) })
	r.Others = slices.DeleteFunc(r.Others, other)
	r.named = names
	return ""
}

// finder is a world with what was found out about its DaemonSets.
type finder struct {
	*World
	set     *gateset.Set
	daemons []daemon
	// compared is the number of nodes on which the order of starts was compared.
	compared int
	// names are the names of existing and suggested gates.
	names map[string]bool
}

func newFinder(w *World) *finder {
	f := &finder{World: w, set: gateset.Of(w.Gates, w.Policy, gateset.StatusForUnknownPolicy), names: make(map[string]bool)}
	for i := range w.Gates {
		f.names[w.Gates[i].Name] = true
	}
	for i := range w.DaemonSets {
		if ds := &w.DaemonSets[i]; !isOwn(ds) && ds.DeletionTimestamp == nil {
			f.daemons = append(f.daemons, newDaemon(ds, w.CSIDrivers))
		}
	}
	slices.SortFunc(f.daemons, func(a, b daemon) int { return cmp.Compare(a.String(), b.String()) })
	for i := range f.daemons {
		f.daemons[i].covered = f.coverage(&f.daemons[i])
	}
	f.compareStarts()
	return f
}

// isOwn reports whether the DaemonSet is nodegate's own agent, which no pod needs.
func isOwn(ds *appsv1.DaemonSet) bool { return ds.Labels[v1alpha1.AppLabel] == v1alpha1.AppAgent }

// daemon is a DaemonSet with what was found out about it.
type daemon struct {
	*appsv1.DaemonSet
	// evidence is the evidence that pods need the DaemonSet, without what presets know.
	evidence []Evidence
	// drivers are the names of the CSI drivers that it registers, as far as known.
	// verified are those that have a CSIDriver object.
	drivers, verified []string
	devicePlugin      bool
	covered           []Coverage
}

// String returns the DaemonSet as namespace/name.
func (d *daemon) String() string { return d.Namespace + "/" + d.Name }

// tolerates reports whether the DaemonSet's pods tolerate a taint.
func (d *daemon) tolerates(t v1alpha1.Taint) bool {
	return t.Effect == corev1.TaintEffectPreferNoSchedule ||
		gate.Tolerates(d.Spec.Template.Spec.Tolerations, t.Core())
}
