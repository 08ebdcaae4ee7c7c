// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/facts"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// judgeForeign judges what a write of a Node changes, and by which user (S2).
func (t *trial) judgeForeign(c *change) {
	switch {
	case !c.known:
		t.notJudged(RuleForeign, "revisions of Nodes without a request in the audit log")
	case c.own && c.before == nil:
		t.checked(RuleForeign, "writes of nodegate")
		t.violation(RuleForeign, c, "", "nodegate creates a Node", "it may create Nodes in dry runs only")
	case c.own:
		t.checked(RuleForeign, "writes of nodegate")
		t.judgeFields(c)
		t.judgeTaints(c)
		t.judgeConditions(c)
	case c.before == nil:
		t.checked(RuleForeign, "creations of Nodes")
		t.judgeForgery(c)
		if c.by.Sent != nil && c.by.Sent.Name == c.name {
			for _, what := range facts.LostAtCreation(c.by.Sent, c.after) {
				t.violation(RuleForeign, c, "", "the creation of a Node changes "+what, "neither the birth policy nor the webhook may change it")
			}
		}
	default:
		t.checked(RuleForeign, "writes of other users")
		t.judgeOthers(c)
	}
}

// judgeFields judges nodegate's changes of fields other than taints and conditions.
func (t *trial) judgeFields(c *change) {
	for _, path := range facts.Differences(c.before, c.after) {
		if !t.mayChange(c, path) {
			t.violation(RuleForeign, c, "", "nodegate changes "+strings.Join(path, "."), "nodegate does not own it")
		}
	}
}

// mayChange reports whether nodegate may change this field.
func (t *trial) mayChange(c *change, path []string) bool {
	switch {
	case slices.Equal(path[:min(2, len(path))], []string{"spec", "taints"}), // see judgeTaints
		slices.Equal(path, []string{"status", "conditions"}), // see judgeConditions
		slices.Equal(path, []string{"metadata", "resourceVersion"}),
		path[0] == "metadata" && len(path) > 1 && path[1] == "managedFields": // maintained by the API server
		return true
	case len(path) < 3 || path[0] != "metadata" || path[1] != "annotations":
		return false
	}
	key := path[2]
	value, remains := c.after.Annotations[key]
	switch {
	case strings.HasPrefix(key, v1alpha1.RecordAnnotationPrefix):
		return true
	case strings.HasPrefix(key, v1alpha1.OverrideAnnotationPrefix):
		_, inForce := facts.OverrideOf(c.before, strings.TrimPrefix(key, v1alpha1.OverrideAnnotationPrefix), t.Latest(c.revision).Add(time.Second))
		return !remains && !inForce // clocks differ
	}
	return remains && isDigits(value) && slices.ContainsFunc(t.window(c), func(m revisions.Moment) bool {
		return slices.ContainsFunc(m.Gates(), func(ng *v1alpha1.NodeGate) bool { return ng.Spec.OpenedAtAnnotation == key })
	})
}

func isDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// judgeTaints judges nodegate's changes of taints. Foreign taints must stay the same,
// in the same order. A gate's taint may be added only if a record shows that a gate is
// closed with it, and removed only if none does.
func (t *trial) judgeTaints(c *change) {
	window := t.window(c)
	own := func(taint corev1.Taint) bool { return t.owner(c, window, taint) != "" }
	before := slices.DeleteFunc(slices.Clone(c.before.Spec.Taints), own)
	after := slices.DeleteFunc(slices.Clone(c.after.Spec.Taints), own)
	if !slices.EqualFunc(before, after, func(a, b corev1.Taint) bool { return reflect.DeepEqual(a, b) }) {
		t.violation(RuleForeign, c, "", "nodegate changes foreign taints", "they were %s and are now %s", texts(before), texts(after))
	}
	for _, taint := range c.before.Spec.Taints {
		if gate := t.owner(c, window, taint); gate != "" && !carries(c.after, taint) {
			if holder := holderOf(c.after, taint); holder != "" {
				t.violation(RuleForeign, c, holder, "nodegate removes taint "+taint.ToString(), "according to the record, the gate is closed")
			}
		}
	}
	for _, taint := range c.after.Spec.Taints {
		if gate := t.owner(c, window, taint); gate != "" && !carries(c.before, taint) && holderOf(c.after, taint) == "" && !isFull(c.before) {
			t.violation(RuleForeign, c, gate, "nodegate adds taint "+taint.ToString(), "according to the records, no gate with this taint is closed")
		}
		if why := t.wrongTime(c, taint.TimeAdded); taint.Effect == corev1.TaintEffectNoExecute && why != "" && !carries(c.before, taint) {
			t.violation(RuleForeign, c, "", "nodegate adds taint "+taint.ToString(), "%s", why)
		}
	}
}

// wrongTime returns why the time of a NoExecute taint that nodegate adds is wrong, or "". From
// that time, pods tolerate the taint for tolerationSeconds.
func (t *trial) wrongTime(c *change, added *metav1.Time) string {
	switch {
	case added == nil:
		return "its timeAdded is missing"
	case !t.isTimeOf(c, added.Time):
		return fmt.Sprintf("its timeAdded, %s, is not the time of the write", added.UTC().Format(time.RFC3339))
	}
	return ""
}

// isFull reports whether a Node's annotations are so large that a record may not fit.
// A gate then closes with its taint alone.
func isFull(node *corev1.Node) bool {
	size := 0
	for key, value := range node.Annotations {
		size += len(key) + len(value)
	}
	return len(node.Annotations) > 1000 || size > 200<<10
}

// owner returns the gate that owns a taint: a gate whose record refers to it, or one
// that selects the node and has it in its spec. It returns "" for a foreign taint.
func (t *trial) owner(c *change, window []revisions.Moment, taint corev1.Taint) string {
	for _, node := range []*corev1.Node{c.before, c.after} {
		if gate := holderOf(node, taint); gate != "" {
			return gate
		}
	}
	for _, m := range window {
		for _, ng := range m.Gates() {
			if ng.Spec.Enforces() && owns(ng, taint) && facts.Selects(ng, m.Node(c.name)) {
				return ng.Name
			}
		}
	}
	return ""
}

// holderOf returns a gate that, according to its record on the node, is closed with
// the taint; "" if there is none.
func holderOf(node *corev1.Node, taint corev1.Taint) string {
	for _, name := range slices.Sorted(slices.Values(recordsOf(node))) {
		if r, _ := recordOf(node, name); r.closed() && r.taint().Key == taint.Key && r.taint().Effect == taint.Effect {
			return name
		}
	}
	return ""
}

func carries(node *corev1.Node, taint corev1.Taint) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
}

func texts(taints []corev1.Taint) string {
	all := make([]string, len(taints))
	for i := range taints {
		all[i] = taints[i].ToString()
	}
	return "[" + strings.Join(all, " ") + "]"
}

// judgeForgery judges the records that a Node is created with.
func (t *trial) judgeForgery(c *change) {
	if !t.Moment(c.revision-1).Exists(revisions.KindPolicy, birthPolicy) {
		return // a webhook may have written them
	}
	for _, name := range recordsOf(c.after) {
		r, _ := recordOf(c.after, name)
		if why := t.forged(c, name, r); why != "" {
			t.violation(RuleForeign, c, name, "node is created with a forged record", "the record has state %q and reason %q%s", r.State, r.Reason, why)
		}
	}
}

// forged returns why a gate did not close with this record on a Node that is created, or "" if it
// may have. The policy may still have an earlier spec of the gate, while nodegate does not run.
func (t *trial) forged(c *change, gate string, r record) string {
	closes := func(v revisions.Version) bool {
		ng, ok := v.Object.(*v1alpha1.NodeGate)
		return ok && v.Revision < c.revision && !ng.Spec.Follows() && ng.Spec.Taint == r.taint() && facts.Selects(ng, c.after)
	}
	switch {
	case r.State != v1alpha1.StateClosed || r.Reason != v1alpha1.ReasonBirth:
		return ", not those of a birth"
	case !slices.ContainsFunc(t.VersionsOf(revisions.ID{Kind: revisions.KindNodeGate, Name: gate}), closes):
		return ", and no version of the gate closes this node with taint " + r.Taint
	}
	return ""
}

// judgeOthers judges that no user other than nodegate and the operators writes
// records or overrides.
func (t *trial) judgeOthers(c *change) {
	if slices.Contains(t.Operators, c.by.User) {
		return
	}
	for _, key := range sets.List(sets.KeySet(c.before.Annotations).Union(sets.KeySet(c.after.Annotations))) {
		guarded := strings.HasPrefix(key, v1alpha1.RecordAnnotationPrefix) || strings.HasPrefix(key, v1alpha1.OverrideAnnotationPrefix)
		was, had := c.before.Annotations[key]
		is, has := c.after.Annotations[key]
		if guarded && (was != is || had != has) {
			t.violation(RuleForeign, c, strings.SplitN(key, "/", 2)[1], "annotation "+key+" is changed", "its writer is neither nodegate nor an operator")
		}
	}
}
