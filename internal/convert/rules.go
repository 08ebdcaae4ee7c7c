// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd"
)

// maxRejected is the maximum number of invalid gates that are reported.
const maxRejected = 100

// maxShapes is the maximum size of the cache of accepted gates.
const maxShapes = 64

// checkRules adds errors for gates that the API server would reject. Validation takes a
// millisecond, so gates that differ in plain strings only are validated once.
func (c *converter) checkRules() {
	rejected := 0
	var accepted []*v1alpha1.NodeGate
	for i := range c.gates {
		g := &c.gates[i]
		simple := simplify(&g.NodeGate)
		if slices.ContainsFunc(accepted, func(a *v1alpha1.NodeGate) bool { return reflect.DeepEqual(a, simple) }) {
			continue
		}
		if crd.Validate(simple) == nil {
			if len(accepted) == maxShapes {
				accepted = accepted[:0]
			}
			accepted = append(accepted, simple)
			continue
		}
		if rejected++; rejected > maxRejected {
			c.errorf(g.Line, "the API server would reject this gate and others after it")
			return
		}
		c.reject(g, crd.Validate(&g.NodeGate))
	}
}

// reject adds the errors that the API server would return, with the lines of the input that
// determine the invalid fields.
func (c *converter) reject(g *Gate, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		c.errorf(g.Line, "the API server would reject gate %s: %s", g.NodeGate.Name, err)
		return
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == uncheckedField {
			continue
		}
		line := g.Line
		for path, at := range g.lines {
			if strings.HasPrefix(cause.Field, path) {
				line = at
			}
		}
		c.errorf(line, "the API server would reject gate %s: %s: %s", g.NodeGate.Name, cause.Field, cause.Message)
	}
}

// uncheckedField is the field of the API server's remark that it did not check some rules, because of
// the other errors.
const uncheckedField = "<nil>"

var (
	plainKey   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,30}[a-z0-9](?:\.[a-z][a-z0-9-]{0,30}[a-z0-9]){0,3}/[a-z][a-z0-9-]{0,60}[a-z0-9]$`)
	plainLabel = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,60}[a-z0-9])?$`)
	plainWord  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,60}$`)
)

// maxPlainPattern is the maximum length of a pattern that counts as plain.
const maxPlainPattern = 128

// simplify returns a gate that is valid if and only if the given gate is. Plain strings,
// which do not affect validity, are replaced by fixed ones. (The rules distinguish
// reserved taint keys from others, and check that RE2 can parse patterns.)
func simplify(g *v1alpha1.NodeGate) *v1alpha1.NodeGate {
	out := g.DeepCopy()
	out.Name = replacePlain(plainLabel, g.Name, "name")
	taint := &out.Spec.Taint
	if !strings.HasPrefix(taint.Key, v1alpha1.CoreTaintPrefix) && !v1alpha1.AffectsAllGates(taint.Key) {
		taint.Key = replacePlain(plainKey, taint.Key, "example.com/key")
	}
	taint.Value = replacePlain(plainWord, taint.Value, "value")
	for _, signals := range [][]v1alpha1.Signal{out.Spec.OpenWhen, out.Spec.CloseWhen} {
		other := map[string]string{} // the rules distinguish equal names from different ones
		for i := range signals {
			s := &signals[i]
			if _, again := other[s.Name]; !again {
				other[s.Name] = replacePlain(plainLabel, s.Name, fmt.Sprintf("signal-%d", i))
			}
			s.Name = other[s.Name]
			if s.Condition != nil {
				simplifyCondition(s.Condition)
			}
			if s.DaemonSet != nil {
				s.DaemonSet.Namespace = replacePlain(plainLabel, s.DaemonSet.Namespace, "namespace")
				s.DaemonSet.Name = replacePlain(plainLabel, s.DaemonSet.Name, "name")
			}
		}
	}
	return out
}

func simplifyCondition(c *v1alpha1.ConditionSignal) {
	c.Type, c.Status = replacePlain(plainWord, c.Type, "Type"), replacePlain(plainWord, c.Status, "Status")
	for _, p := range []*string{&c.TypePattern, &c.StatusPattern} {
		if *p == "" || len(*p) > maxPlainPattern || strings.Contains(*p, "{") { // repetitions have limits
			continue
		}
		if _, err := syntax.Parse(*p, syntax.Perl); err == nil {
			*p = "Pattern"
		}
	}
}

func replacePlain(what *regexp.Regexp, text, other string) string {
	if what.MatchString(text) {
		return other
	}
	return text
}
