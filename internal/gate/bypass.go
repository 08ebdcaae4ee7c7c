// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Bypassed pods.
//
// A taint keeps the scheduler off a node. It does not keep a kubelet from
// starting pods that are bound to the node already, as after a reboot, nor
// anybody from naming the node in a pod. Which pods started while a gate was
// closed is found out when it opens, from the times at which their present
// containers were started.
//
// Those are times of the node's clock, in whole seconds, and are compared with
// times of the controller's (of a birth: the API server's). At the end of the
// time in which the gate was closed, where innocent pods are most numerous,
// bypassMargin lets a node's clock be a second behind; pods that were bound
// later than that are left out whatever their containers say, for that is told
// by the API server's clock. At the beginning a node's clock that is behind has
// pods missed, rather than accused.
//
// After a reboot the pods that matter start before anybody hears of the new
// boot. What runs then has been started in this boot, whenever that was, for a
// reboot ends all containers. What does not run any more may be from before, and
// counts if it was started within bypassBoot before the new boot was seen.

const (
	bypassMargin = 2 * time.Second
	bypassBoot   = 5 * time.Minute
)

// Closure is a time in which a gate was closed on a node.
type Closure struct {
	// Taint is what was on the node.
	Taint v1alpha1.Taint
	// From is when a container must have been started, at the earliest, to have
	// been started in this time; Until is when the gate opened.
	From, Until time.Time
	// NewBoot is true if the node rebooted, so that what runs was started in this
	// time, or later.
	NewBoot bool
}

// closure is the time in which the gate was closed by a record, if it opens now.
func (d *decider) closure(s *slot, r *Record) *Closure {
	c := &Closure{Taint: s.had, From: r.closedSince(&d.Node), Until: d.since()}
	if r.Reason == v1alpha1.ReasonRebooted && r.OverrideSince.IsZero() { // or else it was open in this boot
		c.From, c.NewBoot = c.From.Add(-bypassBoot), true
	}
	return c
}

// Bypassed tells whether a pod started while the gate was closed, and does not
// tolerate it. Mirror pods do not count: a kubelet runs them whatever the taints
// say. Nor does any pod where the taint lets all of them in.
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

// Evictable tells whether a pod may be evicted for having bypassed a gate: it
// is not a daemon, needs the network that a daemon may have to set up, and is
// replaced by its controller.
func (p *BoundPod) Evictable() bool { return !p.Daemon && !p.Mirror && !p.HostNetwork && p.Owned }
