// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Override is the value of the annotation override.nodegate.dev/<gate>.
type Override struct {
	State  string    `json:"state"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
	UID    types.UID `json:"uid"`
}

// OverrideOf returns the override of a gate on a node, and whether it is in force at
// a time.
func OverrideOf(node *corev1.Node, gate string, now time.Time) (o Override, inForce bool) {
	raw, found := node.Annotations[v1alpha1.OverrideAnnotationPrefix+gate]
	in := json.NewDecoder(strings.NewReader(raw))
	in.DisallowUnknownFields()
	if !found || in.Decode(&o) != nil {
		return Override{}, false
	}
	reason := utf8.RuneCountInString(o.Reason)
	valid := o.UID == node.UID && reason >= 1 && reason <= 256 && o.Until.Sub(now) <= overrideMax
	return o, valid && now.Before(o.Until)
}

// overrideMax is how far ahead an override may end: seven days, and five minutes for clocks that
// differ. nodegate ignores others.
const overrideMax = 7*24*time.Hour + 5*time.Minute
