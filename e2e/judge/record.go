// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// record is the value of the annotation gate.nodegate.dev/<gate>.
type record struct {
	State     string          `json:"state"`
	Since     time.Time       `json:"since"`
	Reason    v1alpha1.Reason `json:"reason"`
	Boot      string          `json:"boot"`
	Taint     string          `json:"taint"`
	Override  string          `json:"override"`
	Overdue   bool            `json:"overdue"`
	SilentFor int64           `json:"silentSeconds"`
}

// recordOf returns a gate's record on a node. For a record that cannot be decoded, it
// returns a record without a state.
func recordOf(node *corev1.Node, gate string) (r record, found bool) {
	if node == nil {
		return record{}, false
	}
	raw, found := node.Annotations[v1alpha1.RecordAnnotationPrefix+gate]
	if err := json.Unmarshal([]byte(raw), &r); err != nil {
		return record{}, found
	}
	return r, found
}

// recordsOf returns the names of the gates with a record on the node.
func recordsOf(node *corev1.Node) []string {
	var names []string
	if node == nil {
		return nil
	}
	for key := range node.Annotations {
		if name, ok := strings.CutPrefix(key, v1alpha1.RecordAnnotationPrefix); ok {
			names = append(names, name)
		}
	}
	return names
}

// recordTexts returns the undecoded records on the node, by annotation key.
func recordTexts(node *corev1.Node) map[string]string {
	texts := maps.Clone(node.Annotations)
	maps.DeleteFunc(texts, func(key, _ string) bool { return !strings.HasPrefix(key, v1alpha1.RecordAnnotationPrefix) })
	return texts
}

// effective returns the state of the gate on the node, including an override.
func (r record) effective() string {
	if r.Override != "" {
		return r.Override
	}
	return r.State
}

func (r record) closed() bool { return r.effective() == v1alpha1.StateClosed }

// own returns the record that the gate would have without an override. It is empty if the
// node has a record only because of an override, and is not a member.
func (r record) own() record {
	if r.State == v1alpha1.StateOpen && r.Reason == v1alpha1.ReasonOverridden {
		return record{}
	}
	r.Override = ""
	return r
}

// needsBudget reports whether the gate is closed for a reason that needs budget.
func (r record) needsBudget() bool { return r.State == v1alpha1.StateClosed && isBudgeted(r.Reason) }

// awaitsBoot reports whether the gate closed because the node was expected to reboot.
func (r record) awaitsBoot() bool {
	return r.Reason == v1alpha1.ReasonNodeSilent || r.Reason == v1alpha1.ReasonNodeShutdown
}

// returned reports whether such a gate is closed on a node that has not rebooted.
func (r record) returned(node *corev1.Node) bool {
	return r.awaitsBoot() && r.Boot == node.Status.NodeInfo.BootID
}

// isOf reports whether the record is not that of an earlier Node with the same name.
func (r record) isOf(node *corev1.Node) bool {
	return r.Since.IsZero() || !r.Since.Before(node.CreationTimestamp.Time)
}

// taint returns the record's taint, which is encoded as key=value:Effect.
func (r record) taint() v1alpha1.Taint {
	body, effect, _ := strings.Cut(r.Taint, ":")
	key, value, _ := strings.Cut(body, "=")
	return v1alpha1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
}

// judgeRecordedTime judges the time at which, according to its record, a gate closed (S4): it is
// the time of the write that closes it, and no other write changes it unless it was in the future.
func (t *trial) judgeRecordedTime(c *change, gate string, before, after record) {
	if after.State != v1alpha1.StateClosed || before.State == after.State && after.Since.Equal(before.Since) {
		return
	}
	t.checked(RuleClosing, "times of closings")
	same := before.Override == after.Override && before.State == after.State && before.Reason == after.Reason && before.Boot == after.Boot && before.Taint == after.Taint
	what := "nodegate records that the gate closed at " + after.Since.UTC().Format(time.RFC3339)
	switch {
	case !t.isTimeOf(c, after.Since) && !after.Since.Equal(c.before.CreationTimestamp.Time):
		t.violation(RuleClosing, c, gate, what, "this is not that of the write")
	case same && before.isOf(c.before) && !before.Since.After(t.Latest(c.revision)):
		t.violation(RuleClosing, c, gate, what, "the state is from before, and was from %s", before.Since.UTC().Format(time.RFC3339))
	}
}

// judgeRecordedBoot judges the boot that a record names. An openWhen gate that opens, and may close
// for a reboot, records the node's boot, and keeps a boot in its record (S2): otherwise it would not
// notice the next one.
func (t *trial) judgeRecordedBoot(c *change, gate string, before, after record) {
	boot := c.before.Status.NodeInfo.BootID
	recloses := func(ng *v1alpha1.NodeGate) bool {
		return ng != nil && !ng.Spec.Follows() && ng.Spec.ReclosePolicy != v1alpha1.RecloseNever
	}
	specs := t.specs(c, gate)
	keeps := before.own().State == v1alpha1.StateOpen && (before.Boot == "" || after.Boot != "")
	if boot == "" || after.own().State != v1alpha1.StateOpen || keeps ||
		slices.ContainsFunc(specs, func(ng *v1alpha1.NodeGate) bool { return !recloses(ng) }) {
		return
	}
	t.checked(RuleForeign, "boots of gates that open")
	if after.Boot != boot {
		t.violation(RuleForeign, c, gate, fmt.Sprintf("nodegate records boot %q", after.Boot), "the record does not name the node's boot, %s", boot)
	}
}
