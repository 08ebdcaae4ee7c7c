// SPDX-License-Identifier: Apache-2.0

// Package hold decides which pods of a node wait for a closed gate before their first
// container starts. The node agent writes what it reads from the API server into a file. The
// plugin of the container runtime decides with this file: it has no credentials, and runs
// before the agent does.
package hold

import (
	"slices"
	"time"
)

// State is what the agent knows about its node.
type State struct {
	// Boot is the ID of the boot in which the state was written, and Uptime how long after its
	// start. The agent writes it at least every Interval.
	Boot   string        `json:"boot"`
	Uptime time.Duration `json:"uptime"`
	// Began is the uptime at which the agent first wrote the state in this boot. The boot of a
	// node that is a container is younger than its kernel, so that uptimes do not begin at 0.
	Began time.Duration `json:"began,omitempty"`
	// Gates are the gates on the node that hold pods.
	Gates []Gate `json:"gates"`
	// Pods has the pods that are bound to the node, by UID.
	Pods map[string]BoundPod `json:"pods"`
}

// BoundPod is what the agent knows about a pod.
type BoundPod struct {
	// Gates has the names of the gates whose taints the pod does not tolerate.
	Gates []string `json:"gates,omitempty"`
	// Terminating is true if the pod is being deleted.
	Terminating bool `json:"terminating,omitempty"`
	// Restarts is true if the kubelet restarts each container of the pod that could not start, and
	// the number of restarts does not matter.
	Restarts bool `json:"restarts,omitempty"`
}

const (
	// Interval is the longest time between two writes of the state.
	Interval = time.Minute
	// expires is the age of a state of the current boot from which on it counts for nothing:
	// the agent has ended.
	expires = 3 * Interval
)

// Gate is a gate that holds pods.
type Gate struct {
	Name string `json:"name"`
	// Open is true if the gate is open in the boot State.Boot, or no longer counts as closed though it
	// was open in a former boot.
	Open bool `json:"open,omitempty"`
	// Seconds is how long the gate holds a pod at most.
	Seconds int32 `json:"seconds"`
}

// Pod is a pod whose first container is about to start.
type Pod struct {
	UID string
	// Static is true for a pod that the kubelet does not have from the API server.
	Static bool
	// HostNetwork is true for a pod in the node's network namespace.
	HostNetwork bool
}

// Answer is the decision about a pod.
type Answer struct {
	// Gate is a closed gate that the pod waits for, or empty.
	Gate string
	// Held is true if the pod must not start. It is false, though there is a Gate, if the pod
	// has waited for as long as the gate allows.
	Held bool
}

// Decide reports whether a pod must wait that began to wait some time ago, in the boot with the
// given ID and uptime.
//
// Static pods never wait. After a reboot, a gate counts as closed until the agent has written
// that it is open in the new boot. A pod that the agent does not know waits for all gates,
// except in the node's network namespace, where pods run that the agent may need to reach the
// API server.
func (s *State) Decide(p Pod, boot string, uptime, waited time.Duration) Answer {
	var answer Answer
	if s.Boot == boot && uptime-s.Uptime >= expires {
		return answer
	}
	for _, g := range s.Gates {
		if p.Static || g.Open && s.Boot == boot || !s.waits(p, g.Name) {
			continue
		}
		if waited < time.Duration(g.Seconds)*time.Second {
			return Answer{Gate: g.Name, Held: true}
		}
		answer.Gate = g.Name
	}
	return answer
}

// Expire removes the gates that no longer hold a pod that began to wait some time ago, and
// reports whether there are any.
func (s *State) Expire(waited time.Duration) bool {
	before := len(s.Gates)
	s.Gates = slices.DeleteFunc(s.Gates, func(g Gate) bool { return waited >= time.Duration(g.Seconds)*time.Second })
	return len(s.Gates) < before
}

// waits reports whether the pod waits for a gate while it is closed.
func (s *State) waits(p Pod, gate string) bool {
	bound, known := s.Pods[p.UID]
	if !known {
		return !p.HostNetwork
	}
	return slices.Contains(bound.Gates, gate)
}
