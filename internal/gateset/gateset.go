// SPDX-License-Identifier: Apache-2.0

// Package gateset compiles NodeGates, determines which of them are in force, and returns
// what their signals need. New is for a controller, which keeps compiling changed gates.
// Of is for gates that are read once.
package gateset

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
)

// Snapshot is the input of New: the state of the source of gates at one time.
type Snapshot struct {
	// Source is the source of the gates, as named in records.
	Source string
	Gates  []*v1alpha1.NodeGate
	// Complete reports whether the list of the source's gates is known to be complete.
	Complete bool
	// Deleted contains the names of gates that are known to have been deleted even if the
	// list is not complete.
	Deleted map[string]bool
	// At is the present time.
	At time.Time
	// Compile compiles a gate. It returns ErrCompiling if the gate is not compiled yet.
	// Defaults to signal.Compile.
	Compile func(*v1alpha1.NodeGate, string) (gate.Gate, error)
}

// Set is a snapshot of all gates, compiled. It is immutable.
type Set struct {
	// Source is the source of the gates, as named in records.
	Source string
	// Gates is sorted by name.
	Gates []gate.Gate
	// Declared contains the NodeGates by name.
	Declared map[string]*v1alpha1.NodeGate
	// Acceptance contains, by name, whether each gate is in force.
	Acceptance map[string]gate.Acceptance
	// AtBirth contains the gates that close at birth, sorted by name, except those that would make the
	// API server reject Nodes. Gates of which that is not known at present are in it as they were when it
	// was last known (see Unneeded).
	AtBirth []gate.Gate
	// Keys contains the taint keys of all gates, except of those that are in dry run or may
	// not use their key.
	Keys map[string]bool
	// PlainOptOut is the field of that name in the key policy.
	PlainOptOut bool
	// Complete reports whether the list of the source's gates is known to be complete.
	Complete bool
	// Deleted contains the names of gates that are known to have been deleted even if the
	// list is not complete.
	Deleted map[string]bool
	// Seq numbers the sets of this process, starting with 1. The empty set that is used
	// until the gates are known has the number zero.
	Seq uint64
	// Since contains, by name, the number of the set in which each gate last changed.
	Since map[string]uint64
	// SignalsSince contains, by name, the number of the set in which the signals of each
	// gate last changed. Those of a gate that was created again are new.
	SignalsSince map[string]uint64
	// broken contains the errors of gates that cannot be compiled, by name.
	broken map[string]error
	// refusedObjects contains the sources of objects that are not observed because of
	// ObjectSourcesMax.
	refusedObjects map[gate.ObjectSource]bool
	// Sources contains the complete sources of gates, as in gate.Facts.CompleteSources.
	Sources map[string]bool
	// Parts divides the gates into parts that can be evaluated separately. Nil if they
	// have not been divided.
	Parts *gate.Parts
	// Part is the part of another set that this set consists of (see Only). Nil for a set
	// of all gates.
	Part *gate.Part
}

// untilCorrected describes the state of a gate that cannot be compiled. While it is unknown which nodes
// the gate selects, its deadline does not pass.
func untilCorrected(g *gate.Gate) string {
	unless := ", unless deadline.action is Open and the deadline passes"
	if g.Broken {
		unless = ""
	}
	return ". Until this is corrected, the gate does not close on any more nodes, and nodes on which it is closed stay closed" + unless +
		"; to open it, correct or delete the gate"
}

// untilReadable describes the state of a gate that cannot be read.
const untilReadable = ". Until this is corrected, the gate neither opens nor closes on existing nodes; new nodes are still closed at creation if they were before. " +
	"If the CustomResourceDefinition is of another version, apply that of this version; then apply the gate again in the form of this version, " +
	"or delete it, which opens it"

// untilCompiled describes the state of a gate that is being compiled.
const untilCompiled = "; until then, it neither opens nor closes on existing nodes, and new nodes are still closed at creation if they were before"

// New compiles the gates of a snapshot and determines which are in force. before is the
// previous set. See Of for gates that are read only once.
func New(before *Set, now Snapshot, policy gate.KeyPolicy) *Set {
	set := newSet(now)
	set.Seq = before.Seq + 1
	compile := now.Compile
	if compile == nil {
		compile = signal.Compile
	}
	for _, ng := range now.Gates {
		set.add(ng, before, compile)
	}
	set.NoteEdits(before, now.At)
	set.accept(policy)
	for name := range set.broken {
		a := set.Acceptance[name]
		g, _ := set.Gate(name)
		switch {
		case set.Compiling(name):
			a.Reason, a.Message = v1alpha1.ReasonCompiling, a.Message+untilCompiled
		case set.Declared[name].ReadError != "":
			a.Message += untilReadable
		default:
			a.Message += untilCorrected(g)
		}
		set.Acceptance[name] = a
	}
	set.apply(policy)
	set.closeAtBirth(before)
	return set
}

// closeAtBirth sets AtBirth.
func (s *Set) closeAtBirth(before *Set) {
	for i := range s.Gates {
		if g := &s.Gates[i]; s.ClosesAtBirth(g.Name) && gate.Writable(g.Name, g.Taint) == nil {
			s.AtBirth = append(s.AtBirth, *g)
		}
	}
	for i := range before.AtBirth {
		if name := before.AtBirth[i].Name; !s.ClosesAtBirth(name) && !s.Unneeded(name) {
			s.AtBirth = append(s.AtBirth, before.AtBirth[i])
		}
	}
	slices.SortFunc(s.AtBirth, byName)
}

func byName(a, b gate.Gate) int { return cmp.Compare(a.Name, b.Name) }

func newSet(now Snapshot) *Set {
	return &Set{
		Source:       now.Source,
		Since:        make(map[string]uint64, len(now.Gates)),
		SignalsSince: make(map[string]uint64, len(now.Gates)),
		Declared:     make(map[string]*v1alpha1.NodeGate, len(now.Gates)),
		Keys:         make(map[string]bool, len(now.Gates)),
		Complete:     now.Complete,
		Deleted:      now.Deleted,
		broken:       make(map[string]error),
		Sources:      map[string]bool{now.Source: now.Complete},
	}
}

// accept sorts the gates, and determines which are in force.
func (s *Set) accept(policy gate.KeyPolicy) {
	slices.SortFunc(s.Gates, byName)
	s.Acceptance = gate.Accept(s.Gates, policy)
	for name, err := range s.broken {
		s.Acceptance[name] = gate.Acceptance{Reason: v1alpha1.ReasonInvalidSpec, Message: err.Error()}
	}
}

// apply sets the fields of the set and its gates that depend on their acceptance and on the policy, and
// determines which objects are observed.
func (s *Set) apply(policy gate.KeyPolicy) {
	s.PlainOptOut = policy.PlainOptOut
	for i := range s.Gates {
		g := &s.Gates[i]
		s.addKeys(g.Name, policy)
		g.Accepted, g.PlainOptOut = s.Acceptance[g.Name].Accepted, policy.PlainOptOut
		if !policy.AllowsStamp(g.Stamp) {
			g.Stamp = "" // the whole patch that opens the gate would be denied
		}
	}
	s.limitObjects()
}

// add adds a gate. It is compiled only if it has changed, because sets are created
// whenever a DaemonSet changes, and compiling an expression takes a while.
func (s *Set) add(ng *v1alpha1.NodeGate, before *Set, compile func(*v1alpha1.NodeGate, string) (gate.Gate, error)) {
	g, known := before.Gate(ng.Name)
	if known && ng.IsDeclaredAs(before.Declared[ng.Name]) && before.Source == s.Source && !before.Compiling(ng.Name) {
		again := *g
		again.Stamp = ng.Spec.OpenedAtAnnotation
		s.Gates, s.Since[ng.Name] = append(s.Gates, again), before.Since[ng.Name]
		if err := before.broken[ng.Name]; err != nil {
			s.broken[ng.Name] = err
		}
	} else {
		compiled, err := compile(ng, s.Source)
		if err != nil {
			s.broken[ng.Name] = err
		}
		s.Gates, s.Since[ng.Name] = append(s.Gates, compiled), s.Seq
	}
	s.Declared[ng.Name], s.SignalsSince[ng.Name] = ng, s.Seq
	if known && sameSignals(before.Declared[ng.Name], ng) {
		s.SignalsSince[ng.Name], s.Gates[len(s.Gates)-1].Edited = before.SignalsSince[ng.Name], g.Edited
	}
}

// sameSignals reports whether two gates with the same name are one gate with the same signals.
func sameSignals(a, b *v1alpha1.NodeGate) bool {
	return a.UID == b.UID && a.ReadError == b.ReadError &&
		equality.Semantic.DeepEqual(a.Spec.OpenWhen, b.Spec.OpenWhen) && equality.Semantic.DeepEqual(a.Spec.CloseWhen, b.Spec.CloseWhen)
}

// addKeys adds the taint keys of a gate. Nodes may have its taints even if it is not in force,
// for example because it has become invalid. But a gate that may not use a key does not make
// other gates ignore the taints of that key, which belong to other programs. Taints that gates
// have added before are recognized by their records (see gate.Facts.Lasting).
func (s *Set) addKeys(name string, policy gate.KeyPolicy) {
	spec := &s.Declared[name].Spec
	switch {
	case spec.Taint.Key == "": // it cannot be read
	case spec.Mode == v1alpha1.ModeDryRun: // it adds no taints
	case s.Acceptance[name].Reason == v1alpha1.ReasonTaintKeyNotAllowed:
	default:
		for _, t := range spec.Taints() {
			if policy.Allowed.Allows(t) { // also if the gate is invalid as well
				s.Keys[t.Key] = true
			}
		}
	}
}

// Object returns the NodeGate with a name if it is an object of the API server, or nil.
func (s *Set) Object(name string) *v1alpha1.NodeGate {
	if s.Source != v1alpha1.SourceCRD {
		return nil
	}
	return s.Declared[name]
}

// Objects returns the names of the gates that are readable objects of the API server.
func (s *Set) Objects() []string {
	if s.Source != v1alpha1.SourceCRD {
		return nil
	}
	var names []string
	for name, ng := range s.Declared {
		if ng.ReadError == "" {
			names = append(names, name)
		}
	}
	return names
}

// Compiling reports whether a gate is still being compiled.
func (s *Set) Compiling(name string) bool { return errors.Is(s.broken[name], ErrCompiling) }

// Only returns a set that consists of a part of the gates.
func (s *Set) Only(part gate.Part) *Set {
	some := *s
	some.Gates, some.Part = part.Gates, &part
	return &some
}

// Scope returns a function that reports which gates a decision with this set covers, or
// nil if it covers all.
func (s *Set) Scope() func(gate string) bool {
	if s.Part == nil {
		return nil
	}
	return s.Covers
}

// Covers reports whether a decision with this set covers a gate, which may be unlisted.
func (s *Set) Covers(name string) bool {
	if s.Part == nil {
		return true
	}
	_, ok := s.Gate(name)
	return ok
}

// Rejection returns why a gate is not in force. It is empty for a gate that is in force or
// not listed.
func (s *Set) Rejection(name string) string {
	if a := s.Acceptance[name]; !a.Accepted {
		return a.Message
	}
	return ""
}

// Accepted reports whether a gate is in force.
func (s *Set) Accepted(name string) bool { return s.Acceptance[name].Accepted }

// ClosesAtBirth reports whether a gate is in force and must be closed on nodes at their
// creation.
func (s *Set) ClosesAtBirth(name string) bool {
	if !s.Accepted(name) {
		return false
	}
	spec := &s.Declared[name].Spec
	return spec.Enforces() && !spec.Follows()
}

// Queues reports whether a verdict that wants budget for closing is queued for it. A node that is
// older than the gate and closes only if it is idle is not queued: it would have to be
// checked again when it is due, which would delay nodes that are known to be unfit. It gets
// budget only while no node is queued.
func (s *Set) Queues(v *gate.Verdict) bool {
	g, known := s.Gate(v.Gate)
	return known && v.Wants == gate.WantBudget && (v.Before != "" || g.Existing != v1alpha1.ExistingCloseIfIdle)
}

// HandlesBypassed reports whether pods that bypass a gate are reported or evicted.
func (s *Set) HandlesBypassed(name string) bool {
	ng, known := s.Declared[name]
	return known && ng.Spec.Enforces() && ng.Spec.BypassedPods.Searched()
}

// Gate returns a gate by name, and whether it is listed.
func (s *Set) Gate(name string) (*gate.Gate, bool) {
	i, ok := sort.Find(len(s.Gates), func(i int) int { return cmp.Compare(name, s.Gates[i].Name) })
	if !ok {
		return nil, false
	}
	return &s.Gates[i], true
}

// Together returns the openTogether of a gate, or nil if the gate has none or is not
// listed.
func (s *Set) Together(name string) *gate.Together {
	if g, listed := s.Gate(name); listed {
		return g.Together
	}
	return nil
}

// Names returns the names of the gates, sorted.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(s.Declared)) }

// Signals returns the names of signals by gate.
func (s *Set) Signals() map[string][]string {
	all := make(map[string][]string, len(s.Declared))
	for name, ng := range s.Declared {
		all[name] = make([]string, 0, len(ng.Spec.OpenWhen)+len(ng.Spec.CloseWhen))
		for _, signal := range slices.Concat(ng.Spec.OpenWhen, ng.Spec.CloseWhen) {
			all[name] = append(all[name], signal.Name)
		}
	}
	return all
}

// List returns the NodeGates, unsorted.
func (s *Set) List() []*v1alpha1.NodeGate { return slices.Collect(maps.Values(s.Declared)) }

// Unneeded reports whether an entry of the birth parameter, or of AtBirth, is known to have no
// gate that closes at birth. While the list of gates is not complete, entries of unlisted gates are
// kept, and so are those of gates that cannot be read or are being compiled.
func (s *Set) Unneeded(name string) bool { return s.isWithout(name, s.ClosesAtBirth) }

// isWithout reports whether a gate is known not to exist, or not to have a property.
func (s *Set) isWithout(name string, property func(string) bool) bool {
	if ng, known := s.Declared[name]; known {
		return ng.ReadError == "" && !s.Compiling(name) && !property(name)
	}
	return s.Complete || s.Deleted[name]
}

// Tolerates reports whether a gate is in force, and tolerations of its taints must be
// added to the DaemonSets that it waits for.
func (s *Set) Tolerates(name string) bool {
	return s.Accepted(name) && MayTolerate(&s.Declared[name].Spec)
}

// MayTolerate reports whether tolerations of the gate's taints are added to DaemonSets if
// the gate is accepted. They are not in dry run, when no node has its taints.
func MayTolerate(spec *v1alpha1.NodeGateSpec) bool {
	return spec.Tolerate && spec.Mode != v1alpha1.ModeDryRun && !spec.Follows()
}

// NotTolerating reports whether an entry of the parameter of the tolerations policy is
// known to have no gate that needs it (see Unneeded).
func (s *Set) NotTolerating(name string) bool { return s.isWithout(name, s.Tolerates) }
