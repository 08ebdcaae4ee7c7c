// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Bypassed pods.
//
// A taint prevents the scheduler from placing pods on a node. It does not prevent a
// kubelet from starting pods that are already bound to the node, for example after a
// reboot, and it has no effect on pods that are created with a node name. When a gate
// opens, the pods that started while it was closed are determined from the start times
// of their current containers.
//
// These start times come from the node's clock, in whole seconds. They are compared
// with times from the controller's clock or, for a birth, the API server's. At the end
// of the closed period, where most of the pods are legitimate, bypassMargin tolerates a
// node's clock that is one second slow. In addition, pods that were bound after that
// margin are excluded whatever their containers report, because the binding time comes
// from the API server's clock. At the beginning, a slow clock causes pods to be missed
// rather than wrongly reported.
//
// After a reboot, the relevant pods start before the new boot is observed. A reboot
// ends all containers, so every running container was started in the current boot. A
// container that is no longer running may be from before the reboot. It counts if it
// was started less than bypassBoot before the new boot was observed.

const (
	bypassMargin = 2 * time.Second
	bypassBoot   = 5 * time.Minute
)

// Closure is a period during which a gate was closed on a node.
type Closure struct {
	// Taint is the taint that was on the node.
	Taint v1alpha1.Taint
	// From is the earliest start time of a container that started in this period. Until
	// is the time at which the gate opened.
	From, Until time.Time
	// NewBoot is true if the node rebooted, so that every running container was started
	// in this period or later.
	NewBoot bool
}

// closure returns the period during which the gate was closed according to the record,
// if it opens now.
func (d *decider) closure(s *slot, r *Record) *Closure {
	c := &Closure{Taint: s.had, From: r.closedSince(&d.Node), Until: d.since()}
	if r.Reason == v1alpha1.ReasonRebooted && r.OverrideSince.IsZero() { // otherwise it was open in this boot
		c.From, c.NewBoot = c.From.Add(-bypassBoot), true
	}
	return c
}

// Bypassed reports whether a pod started while the gate was closed and does not
// tolerate its taint. Mirror pods do not count, because a kubelet runs them regardless
// of taints. No pods count if the taint does not keep pods off the node
// (PreferNoSchedule).
func (c *Closure) Bypassed(p *BoundPod) bool {
	end := c.Until.Add(-bypassMargin)
	if c.Taint.Effect == corev1.TaintEffectPreferNoSchedule || p.Mirror || p.Finished || p.Terminating || p.Created.After(end) || p.Bound.After(end) || p.Tolerates(c.Taint) {
		return false
	}
	for _, start := range p.Starts {
		since := !start.At.Before(c.From) || c.NewBoot && start.Running
		if since && !start.At.After(end) {
			return true
		}
	}
	return false
}

// Evictable reports whether a pod may be evicted for having bypassed a gate. The pod
// must have a controller that replaces it. It must not be a daemon, and it must need
// the pod network, which a daemon may have to set up.
func (p *BoundPod) Evictable() bool { return !p.Daemon && !p.Mirror && !p.HostNetwork && p.Owned }
