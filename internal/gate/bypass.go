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
// Only the main containers count. An init container may wait for what the gate waits for,
// which is what workloads should do that must not start without it.
//
// Start times come from the node's clock, in whole seconds. They are compared with times
// from the controller's clock or, for a birth, the API server's. Near the ends of the
// closed period, it is therefore only possible that a pod bypassed the gate:
//
//   - In the last bypassMargin before the opening, where most of the pods are legitimate.
//     Pods that were bound after that are excluded whatever their containers report,
//     because the binding time comes from the API server's clock.
//   - In the first bypassMargin after the closing, unless it was because of a reboot or the pod was
//     bound later: if the node's clock is ahead, the container started while the gate was open.
//   - After a reboot, in the last bypassBoot before the new boot was observed. A container
//     may have started in the new boot, or in the previous one, whose end the kubelet has
//     not reported yet. A container that is not running did not start in the new boot.

const (
	bypassMargin = 2 * time.Second
	bypassBoot   = time.Minute
)

// Closure is a period during which a gate was closed on a node.
type Closure struct {
	// Taint is the taint that was on the node.
	Taint v1alpha1.Taint
	// From is when the gate closed, and Until when it opened.
	From, Until time.Time
	// NewBoot is true if the gate closed because a new boot was observed.
	NewBoot bool
}

// closure returns the period during which the gate was closed according to the record,
// if it opens now.
func (d *decider) closure(s *slot, r *Record) *Closure {
	return &Closure{
		Taint: s.had, From: r.closedSince(&d.Node), Until: d.since(),
		// If it was overridden, it was open in this boot.
		NewBoot: r.Reason == v1alpha1.ReasonRebooted && r.OverrideSince.IsZero(),
	}
}

// Certainty is how certain it is that a gate was closed when a pod bypassed it, or was
// rejected.
type Certainty uint8

// From less to more certain.
const (
	Impossible Certainty = iota
	Possible
	Certain
)

// excludes reports whether the gate does not concern a pod: the pod tolerates the taint, or
// may do so, or it was created after the opening. Mirror pods do not count, because a kubelet runs them
// regardless of taints, and neither do pods that are being deleted. No pods count if the taint
// does not keep pods off the node (PreferNoSchedule).
func (c *Closure) excludes(p *BoundPod) bool {
	return c.Taint.Effect == corev1.TaintEffectPreferNoSchedule || p.Mirror || p.Terminating ||
		p.Created.After(c.Until.Add(-bypassMargin)) || p.ManyTolerations || p.Tolerates(c.Taint)
}

// Bypassed returns how certain it is that a pod started while the gate was closed and does
// not tolerate its taint. Pods that have finished do not count.
func (c *Closure) Bypassed(p *BoundPod) Certainty {
	if p.Finished || c.excludes(p) || p.Bound.After(c.Until.Add(-bypassMargin)) {
		return Impossible
	}
	most := Impossible
	margin := bypassMargin
	if c.NewBoot || !Latest(p.Created, p.Bound).Before(c.From) {
		margin = 0
	}
	for _, start := range p.Starts {
		most = max(most, c.startedIn(start, margin))
	}
	return most
}

// startedIn returns how certain it is that a container started in the period. Within the margin
// after the closing, it may have started before.
func (c *Closure) startedIn(s Start, margin time.Duration) Certainty {
	switch {
	case s.Init || s.At.After(c.Until):
		return Impossible
	case s.At.Before(c.From):
		if c.NewBoot && s.Running && !s.At.Before(c.From.Add(-bypassBoot)) {
			return Possible
		}
		return Impossible
	case s.At.After(c.Until.Add(-bypassMargin)), s.At.Before(c.From.Add(margin)):
		return Possible
	}
	return Certain
}

// Evictable reports whether a pod may be evicted for having bypassed a gate. The pod
// must have a controller that replaces it. It must not be a daemon, and it must need
// the pod network, which a daemon may have to set up.
func (p *BoundPod) Evictable() bool { return !p.Daemon && !p.Mirror && !p.HostNetwork && p.Owned }
