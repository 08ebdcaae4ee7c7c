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

// maxRefused is how many refused gates are told of; more would tell nothing new.
const maxRefused = 100

// maxShapes is how many kinds of gates are remembered to be accepted.
const maxShapes = 64

// checkRules refuses gates that the API server would refuse. To apply the rules
// takes a millisecond, so of gates that differ only in plain words, one stands
// for all.
func (c *converter) checkRules() {
	refused := 0
	var accepted []*v1alpha1.NodeGate
	for i := range c.gates {
		g := &c.gates[i]
		stand := standIn(&g.NodeGate)
		if slices.ContainsFunc(accepted, func(a *v1alpha1.NodeGate) bool { return reflect.DeepEqual(a, stand) }) {
			continue
		}
		if crd.Validate(stand) == nil {
			if len(accepted) == maxShapes {
				accepted = accepted[:0]
			}
			accepted = append(accepted, stand)
			continue
		}
		if refused++; refused > maxRefused {
			c.lose(g.Line, "this and further gates would be refused too")
			return
		}
		c.refuse(g, crd.Validate(&g.NodeGate))
	}
}

// refuse tells what the API server would say, where the input asks for it.
func (c *converter) refuse(g *Gate, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		c.lose(g.Line, "the gate %s would be refused: %s", g.NodeGate.Name, err)
		return
	}
	for _, cause := range status.Status().Details.Causes {
		line := g.Line
		for path, at := range g.lines {
			if strings.HasPrefix(cause.Field, path) {
				line = at
			}
		}
		c.lose(line, "the gate %s would be refused: %s: %s", g.NodeGate.Name, cause.Field, cause.Message)
	}
}

var (
	plainKey   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,30}[a-z0-9](?:\.[a-z][a-z0-9-]{0,30}[a-z0-9]){0,3}/[a-z][a-z0-9-]{0,60}[a-z0-9]$`)
	plainLabel = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,60}[a-z0-9])?$`)
	plainWord  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,60}$`)
)

// maxPlainPattern is how long a pattern may be to be taken for a plain one.
const maxPlainPattern = 128

// standIn returns a gate of which the API's rules think the same as of this
// one: it has other words in the places where the rules know nothing but that
// they are plain. (The rules tell core's keys from others, and patterns that RE2
// can read.)
func standIn(g *v1alpha1.NodeGate) *v1alpha1.NodeGate {
	out := g.DeepCopy()
	out.Name = plainly(plainLabel, g.Name, "name")
	taint := &out.Spec.Taint
	if !strings.HasPrefix(taint.Key, v1alpha1.CoreTaintPrefix) {
		taint.Key = plainly(plainKey, taint.Key, "example.com/key")
	}
	taint.Value = plainly(plainWord, taint.Value, "value")
	for _, signals := range [][]v1alpha1.Signal{out.Spec.OpenWhen, out.Spec.CloseWhen} {
		other := map[string]string{} // the rules tell the same from another
		for i := range signals {
			s := &signals[i]
			if _, again := other[s.Name]; !again {
				other[s.Name] = plainly(plainLabel, s.Name, fmt.Sprintf("signal-%d", i))
			}
			s.Name = other[s.Name]
			if s.Condition != nil {
				standInCondition(s.Condition)
			}
			if s.DaemonSet != nil {
				s.DaemonSet.Namespace = plainly(plainLabel, s.DaemonSet.Namespace, "namespace")
				s.DaemonSet.Name = plainly(plainLabel, s.DaemonSet.Name, "name")
			}
		}
	}
	return out
}

func standInCondition(c *v1alpha1.ConditionSignal) {
	c.Type, c.Status = plainly(plainWord, c.Type, "Type"), plainly(plainWord, c.Status, "Status")
	for _, p := range []*string{&c.TypePattern, &c.StatusPattern} {
		if *p == "" || len(*p) > maxPlainPattern || strings.Contains(*p, "{") { // repetitions have limits
			continue
		}
		if _, err := syntax.Parse(*p, syntax.Perl); err == nil {
			*p = "Pattern"
		}
	}
}

func plainly(what *regexp.Regexp, text, other string) string {
	if what.MatchString(text) {
		return other
	}
	return text
}
