// SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"fmt"
	"strings"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/fleet"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/telemetry"
)

// namedMax is the maximum number of pods that a message names.
const namedMax = 10

// pods is a list of pods.
type pods []*gate.BoundPod

// found contains the pods that an opening concerns.
type found struct {
	// bypassed contains the pods that started while the gate was closed. rejected contains
	// those that the kubelet rejected.
	bypassed, rejected byCertainty
}

// byCertainty contains pods by how certain it is that the gate was closed.
type byCertainty struct{ certain, possible pods }

func (b *byCertainty) add(c gate.Certainty, p *gate.BoundPod) {
	switch c {
	case gate.Certain:
		b.certain = append(b.certain, p)
	case gate.Possible:
		b.possible = append(b.possible, p)
	}
}

func (b *byCertainty) any() bool { return len(b.certain)+len(b.possible) > 0 }

// find returns the pods that bypassed the gate, or were rejected, while it was closed.
func find(c *gate.Closure, all []gate.BoundPod) (f found) {
	for i := range all {
		f.bypassed.add(c.Bypassed(&all[i]), &all[i])
		f.rejected.add(c.Rejected(&all[i]), &all[i])
	}
	return f
}

func (f *found) any() bool { return f.bypassed.any() || f.rejected.any() }

// evictable returns the pods that may be evicted. A rejected pod has finished: its eviction would
// only delete what shows its owner that it was lost.
func (f *found) evictable() (evictable pods) {
	for _, p := range f.bypassed.certain {
		if p.Evictable() {
			evictable = append(evictable, p)
		}
	}
	return evictable
}

// report reports the pods that an opening concerns.
func (b *Handler) report(key key, n *gate.Node, policy v1alpha1.BypassedPods, f *found) {
	related := telemetry.GateReference(b.Gates().Object(key.gate))
	if some := &f.bypassed; some.any() {
		b.Metrics.Bypassed(key.gate, len(some.certain), len(some.possible))
		b.Log.Info("pods had started while the gate was closed", "gate", key.gate, "node", key.node,
			"pods", len(some.certain), "names", some.certain.names(), "possibly", len(some.possible), "possibleNames", some.possible.names())
		b.Events.Warning(n, related, v1alpha1.EventBypassedPods, string(policy), bypassedNote(key.gate, some))
	}
	if some := &f.rejected; some.any() {
		b.Metrics.Rejected(key.gate, telemetry.Certain, len(some.certain.owned(true)), len(some.certain.owned(false)))
		b.Metrics.Rejected(key.gate, telemetry.Possible, len(some.possible.owned(true)), len(some.possible.owned(false)))
		b.Log.Info("the kubelet had rejected pods while the gate was closed", "gate", key.gate, "node", key.node,
			"pods", len(some.certain), "names", some.certain.reasons(), "possibly", len(some.possible), "possibleNames", some.possible.reasons())
		b.Events.Warning(n, related, v1alpha1.EventRejectedPods, v1alpha1.EventActionReport, rejectedNote(key.gate, some))
	}
}

// bypassedNote describes the pods that certainly or possibly bypassed a gate.
func bypassedNote(gateName string, b *byCertainty) string {
	var parts []string
	if len(b.certain) > 0 {
		parts = append(parts, fmt.Sprintf("%s started while gate %s was closed, without tolerating its taint: %s", count(len(b.certain)), gateName, b.certain.names()))
	}
	if len(b.possible) > 0 {
		parts = append(parts, fmt.Sprintf("%s possibly started while gate %s was closed, without tolerating its taint, because it closed or opened at about that time: %s",
			count(len(b.possible)), gateName, b.possible.names()))
	}
	return strings.Join(parts, "; ")
}

// rejectedNote describes the pods that the kubelet rejected. Those that are lost come first,
// because long notes are truncated.
func rejectedNote(gateName string, b *byCertainty) string {
	var parts []string
	for _, lost := range []bool{true, false} {
		for _, certain := range []bool{true, false} {
			all, when := b.certain.owned(!lost), "while gate "+gateName+" was closed"
			if !certain {
				all, when = b.possible.owned(!lost), "at about the time at which gate "+gateName+" closed or opened"
			}
			if len(all) > 0 {
				parts = append(parts, fmt.Sprintf("the kubelet rejected %s %s, %s: %s", count(len(all)), when, all.fate(lost), all.reasons()))
			}
		}
	}
	return strings.Join(parts, "; ")
}

// fate describes what becomes of rejected pods.
func (all pods) fate(lost bool) string {
	switch one := len(all) == 1; {
	case lost && one:
		return "and no controller replaces it"
	case lost:
		return "and no controller replaces them"
	case one:
		return "and its controller may replace it"
	}
	return "and their controllers may replace them"
}

func count(pods int) string {
	if pods == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", pods)
}

// owned returns the pods that have a controller, or those that have none.
func (all pods) owned(owned bool) (some pods) {
	for _, p := range all {
		if p.Owned == owned {
			some = append(some, p)
		}
	}
	return some
}

// names returns the names of pods, or of some if there are many.
func (all pods) names() string { return all.list(func(*gate.BoundPod) string { return "" }) }

// reasons returns the names of rejected pods, with the reasons of their rejections.
func (all pods) reasons() string {
	return all.list(func(p *gate.BoundPod) string { return " (" + p.Rejection.Reason + ")" })
}

func (all pods) list(more func(*gate.BoundPod) string) string {
	names := fleet.NameList{Most: namedMax}
	for _, p := range all {
		names.AddIf(true, p.Namespace+"/"+p.Name+more(p))
	}
	return names.String()
}
