// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/nodegate/nodegate/internal/kube/jsonclient"
)

// The types of the API and of internal/gate would need more memory on each node than the rest
// of the agent. Therefore the agent has its own, with the fields that it reads. Tests compare
// them with those.

// node contains those fields of the Node that the agent reads.
type node struct {
	nodeMetadata `json:"metadata"`
	Status       struct {
		Conditions []condition `json:"conditions"`
		NodeInfo   struct {
			BootID string `json:"bootID"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

type nodeMetadata struct {
	jsonclient.Metadata
	Annotations map[string]string `json:"annotations"`
}

// condition is a condition of a Node or of a NodeGate.
type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Message string `json:"message"`
}

// pod contains those fields of a Pod that the agent reads.
type pod struct {
	jsonclient.Metadata `json:"metadata"`
	Spec                struct {
		Tolerations    tolerations `json:"tolerations"`
		RestartPolicy  string      `json:"restartPolicy"`
		InitContainers ownPolicies `json:"initContainers"`
		Containers     ownPolicies `json:"containers"`
		// EphemeralContainers is decoded only to count them.
		EphemeralContainers []struct{} `json:"ephemeralContainers"`
	} `json:"spec"`
}

// ownPolicies is decoded from a list of containers. It is true if one of them has a restart
// policy of its own with which the kubelet might not start it again.
type ownPolicies bool

// UnmarshalJSON implements json.Unmarshaler.
func (o *ownPolicies) UnmarshalJSON(raw []byte) error {
	type container struct {
		RestartPolicy      string     `json:"restartPolicy"`
		RestartPolicyRules []struct{} `json:"restartPolicyRules"` // only their number matters
	}
	var containers []container
	if err := json.Unmarshal(raw, &containers); err != nil {
		return err
	}
	*o = ownPolicies(slices.ContainsFunc(containers, func(c container) bool {
		return c.RestartPolicy != "" && c.RestartPolicy != restartPolicyAlways || len(c.RestartPolicyRules) > 0
	}))
	return nil
}

// Limits of a pod's tolerations. Authors of pods choose the node, and the agent has little memory:
// there may be many pods, and a pod may have more than a hundred thousand tolerations, each of
// which needs several times the memory of its JSON.
const (
	maxTolerations     = 64
	maxTolerationBytes = 8 << 10
)

// tolerations are the tolerations of a pod. If there are too many, none is kept: the pod waits, but
// not longer than gates allow.
type tolerations []toleration

// UnmarshalJSON implements json.Unmarshaler. It counts before it decodes: each toleration is an
// object without further objects, and the API server accepts no braces in its texts.
func (l *tolerations) UnmarshalJSON(raw []byte) error {
	*l = nil
	if len(raw) > maxTolerationBytes || bytes.Count(raw, []byte("{")) > maxTolerations {
		return nil
	}
	return json.Unmarshal(raw, (*[]toleration)(l))
}

// toleration is a toleration of a pod. Its tolerationSeconds do not matter.
type toleration struct {
	Key      string `json:"key"`
	Operator string `json:"operator"`
	Value    string `json:"value"`
	Effect   string `json:"effect"`
}

// tolerates reports whether the toleration tolerates a taint.
func (t *toleration) tolerates(of *taint) bool {
	if t.Effect != "" && t.Effect != of.Effect || t.Key != "" && t.Key != of.Key {
		return false
	}
	switch t.Operator {
	case "", operatorEqual:
		return t.Value == of.Value
	case operatorExists:
		return true
	}
	return false // Lt and Gt are alpha
}

// nodeGate contains those fields of a NodeGate that the agent reads.
type nodeGate struct {
	jsonclient.Metadata
	Spec       nodeGateSpec
	Conditions []condition
	// unreadable is true if the gate has been stored by another version, and this one cannot
	// read it.
	unreadable bool
}

type nodeGateSpec struct {
	Mode          string `json:"mode"`
	ReclosePolicy string `json:"reclosePolicy"`
	BypassedPods  string `json:"bypassedPods"`
	HoldSeconds   *int32 `json:"holdSeconds"`
	Taint         taint  `json:"taint"`
	RecloseTaint  *taint `json:"recloseTaint"`
}

type taint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

// UnmarshalJSON decodes as much of a NodeGate as possible. It fails only if raw is not a
// Kubernetes object.
func (g *nodeGate) UnmarshalJSON(raw []byte) error {
	var object struct {
		jsonclient.Metadata `json:"metadata"`
		Spec                json.RawMessage `json:"spec"`
		Status              json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return err
	}
	*g = nodeGate{Metadata: object.Metadata}
	g.unreadable = len(object.Spec) > 0 && json.Unmarshal(object.Spec, &g.Spec) != nil
	var status struct {
		Conditions []condition `json:"conditions"`
	}
	if len(object.Status) > 0 && json.Unmarshal(object.Status, &status) == nil { // else the controller will overwrite it
		g.Conditions = status.Conditions
	}
	return nil
}

// taints returns all taints that the gate may add to a node.
func (g *nodeGate) taints() []*taint {
	if g.Spec.RecloseTaint == nil {
		return []*taint{&g.Spec.Taint}
	}
	return []*taint{&g.Spec.Taint, g.Spec.RecloseTaint}
}

// staysOpen reports whether no shutdown closes the gate.
func (g *nodeGate) staysOpen() bool {
	return !g.unreadable && (g.Spec.ReclosePolicy == recloseNever || g.Spec.Mode == modePaused)
}

// record contains those fields of a gate's record on the Node that the agent reads.
type record struct {
	State    string `json:"state"`
	Boot     string `json:"boot"`
	Override string `json:"override"`
}

// parseRecord parses a record. It checks only what it returns.
func parseRecord(raw string) (r record, err error) {
	if err := json.Unmarshal([]byte(raw), &r); err != nil {
		return record{}, fmt.Errorf("parsing record: %w", err)
	}
	states := []string{stateOpen, stateClosed}
	if !slices.Contains(states, r.State) || r.Override != "" && (!slices.Contains(states, r.Override) || r.Override == r.State) {
		return record{}, fmt.Errorf("parsing record: the state is %q, and the override %q", r.State, r.Override)
	}
	return r, nil
}

// openIn reports whether the gate is open in the boot with the given ID.
func (r *record) openIn(boot string) bool {
	state := r.State
	if r.Override != "" {
		state = r.Override
	}
	return state == stateOpen && r.Boot == boot
}
