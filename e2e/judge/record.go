// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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

// override is the value of the annotation override.nodegate.dev/<gate>.
type override struct {
	State  string    `json:"state"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
	UID    types.UID `json:"uid"`
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

// taint returns the record's taint, which is encoded as key=value:Effect.
func (r record) taint() v1alpha1.Taint {
	body, effect, _ := strings.Cut(r.Taint, ":")
	key, value, _ := strings.Cut(body, "=")
	return v1alpha1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
}

// overrideOf returns the override of a gate on a node, and whether it is in force at
// a time.
func overrideOf(node *corev1.Node, gate string, now time.Time) (o override, inForce bool) {
	raw, found := node.Annotations[v1alpha1.OverrideAnnotationPrefix+gate]
	in := json.NewDecoder(strings.NewReader(raw))
	in.DisallowUnknownFields()
	if !found || in.Decode(&o) != nil {
		return override{}, false
	}
	reason := utf8.RuneCountInString(o.Reason)
	valid := o.UID == node.UID && reason >= 1 && reason <= 256 && o.Until.Sub(now) <= overrideMax
	return o, valid && now.Before(o.Until)
}

// overrideMax is how far ahead an override may end: seven days, and five minutes for clocks that
// differ. nodegate ignores others.
const overrideMax = 7*24*time.Hour + 5*time.Minute
