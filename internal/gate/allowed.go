// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// TaintID identifies a taint on a node. The API server rejects a second taint with the
// same key and effect.
type TaintID struct {
	Key    string
	Effect corev1.TaintEffect
}

// IDOf returns the ID of a taint.
func IDOf(t v1alpha1.Taint) TaintID { return TaintID{t.Key, t.Effect} }

// String returns the ID in the form key:Effect.
func (id TaintID) String() string { return id.Key + ":" + string(id.Effect) }

// ParseTaintID parses the form key:Effect. If there is no effect, it defaults to
// NoSchedule, which does not evict pods.
func ParseTaintID(text string) (TaintID, error) {
	key, effect, found := strings.Cut(text, ":")
	id := TaintID{Key: key, Effect: corev1.TaintEffectNoSchedule}
	if found {
		id.Effect = corev1.TaintEffect(effect)
	}
	if msgs := validation.IsQualifiedName(key); msgs != nil {
		return TaintID{}, fmt.Errorf("key %q: %s", key, strings.Join(msgs, "; "))
	}
	if !slices.Contains(effects, id.Effect) {
		return TaintID{}, fmt.Errorf("effect %q: choose one of %v", effect, effects)
	}
	return id, nil
}

var effects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}

// AllowedTaints is the set of taints that the administrator allows nodegate to add,
// change and remove. Nil allows every taint.
type AllowedTaints map[TaintID]bool

// Allows reports whether gates may use the taint. Its value does not matter.
func (a AllowedTaints) Allows(t v1alpha1.Taint) bool { return a == nil || a[IDOf(t)] }

// String returns the allowed taints as a sorted list.
func (a AllowedTaints) String() string { return a.list("", len(a)) }

// list returns the first of the allowed taints: those with the key, then the others.
func (a AllowedTaints) list(key string, most int) string {
	var withKey, others []string
	for id, allowed := range a {
		switch {
		case !allowed:
		case id.Key == key:
			withKey = append(withKey, id.String())
		default:
			others = append(others, id.String())
		}
	}
	slices.Sort(withKey)
	slices.Sort(others)
	all := slices.Concat(withKey, others)
	if len(all) == 0 {
		return "none"
	}
	return FirstNames(all[:min(most, len(all))], len(all))
}

// ParseAllowedTaints parses taints in the form of ParseTaintID. The error names every
// text that is not valid; the result contains the others.
func ParseAllowedTaints(texts []string) (AllowedTaints, error) {
	a := make(AllowedTaints, len(texts))
	var errs []error
	for _, text := range texts {
		id, err := ParseTaintID(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("allowed taint %q: %w", text, err))
			continue
		}
		a[id] = true
	}
	return a, errors.Join(errs...)
}
