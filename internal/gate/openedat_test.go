// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"maps"
	"strconv"
	"testing"
	"time"
)

func stamping(key string) func(*Gate) { return func(g *Gate) { g.Stamp = key } }

func TestStamp(t *testing.T) {
	const key = "example.com/opened-at"
	now := map[string]string{key: strconv.FormatInt(epoch.Unix(), 10)}
	stamped := aGate("g", stamping(key))
	withStamp := func(s *sim, value string) *sim {
		s.facts.Node.Annotations = map[string]string{key: value}
		return s
	}
	other := aGate("h", stamping(key), tainting("g.example/not-ready:NoSchedule"))
	for name, c := range map[string]struct {
		node *sim
		want map[string]string
	}{
		"opens":                                             {aNode(stamped).closed("g").flag("g", "holds"), now},
		"opens again":                                       {withStamp(aNode(stamped).closed("g").flag("g", "holds"), "12"), now},
		"opens again in the same second":                    {withStamp(aNode(stamped).closed("g").flag("g", "holds"), now[key]), nil},
		"opens a node that carried the taint":               {aNode(stamped).taint("g.example/not-ready:NoSchedule").flag("g", "holds"), now},
		"a closeWhen gate opens":                            {aNode(follower("g", stamping(key))).closed("g").flag("g", "no"), now},
		"removes a taint that no gate accounts for":         {aNode(follower("g", stamping(key))).taint("g.example/not-ready:NoSchedule").flag("g", "no"), now},
		"becomes a member, open":                            {aNode(stamped).age(time.Minute).flag("g", "holds"), nil},
		"becomes a member, open, with another gate's taint": {aNode(stamped, aGate("x", tainting("g.example/not-ready:NoSchedule"))).age(time.Minute).closed("x").record("x", "Closed", func(r *Record) { r.Taint = "g.example/not-ready:NoSchedule" }).flag("g", "holds"), nil},
		"is adopted open":                                   {aNode(aGate("g", stamping(key), existing("Adopt"))).flag("g", "holds").granting("g"), nil},
		"stays open":                                        {withStamp(aNode(stamped).open("g").flag("g", "holds"), "12"), nil},
		"stays closed":                                      {withStamp(aNode(stamped).closed("g"), "12"), nil},
		"closes":                                            {withStamp(aNode(stamped).open("g").boot("b"), "12"), nil},
		"no longer selects the node":                        {aNode(aGate("g", stamping(key), selecting("pool=gpu"))).closed("g").flag("g", "holds"), nil},
		"is deleted":                                        {aNode().closed("g"), nil},
		"must not be changed": {func() *sim {
			s := aNode(stamped).closed("g").flag("g", "holds")
			s.facts.Allowed = allowed()
			return s
		}(), nil},
		"opens, and another does not":       {aNode(stamped, other).closed("g", "h").flag("g", "holds"), now},
		"opens, without a stamp":            {aNode(aGate("g")).closed("g").flag("g", "holds"), nil},
		"another is closed by the same key": {aNode(stamped, other).open("g").closed("h"), nil},
	} {
		if d := c.node.decide(); !maps.Equal(d.Stamps, c.want) || len(d.Stamps) > 0 && !d.Changes {
			t.Errorf("%s: stamps %v, want %v: %s", name, d.Stamps, c.want, show(d))
		}
	}
	if n := stamped.Needs(nil); len(n.Annotations) != 1 || n.Annotations[0] != key {
		t.Errorf("needs %+v do not include the stamp", n)
	}
}
