// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// userStorm is a storm with two gates and users who change gates and nodes at random.
type userStorm struct {
	*storm
	rng *rand.Rand
}

// closedFor returns the number of nodes that a gate keeps closed under its budget, by zone.
func (c *userStorm) closedFor(gateName string) map[string]int {
	closed := map[string]int{}
	for _, n := range c.nodes {
		if r, err := gate.ParseRecord(n.Records[gateName]); err == nil && r.State == v1alpha1.StateClosed && gate.IsBudgeted(r.Reason) {
			closed[n.Zone()]++
		}
	}
	return closed
}

// checkBudget checks the budgets after every write.
func (c *userStorm) checkBudget() {
	for _, ng := range c.gates {
		for zone, n := range c.closedFor(ng.Name) {
			if most := ng.Spec.Budget.MaxReclosed.IntValue(); n > most && c.excess == "" {
				c.excess = fmt.Sprintf("at %s, gate %s has %d closed nodes in zone %q, and the budget is %d", time.Now(), ng.Name, n, zone, most)
			}
		}
	}
}

// edit changes one of the gates.
func (c *userStorm) edit(i int, change func(*v1alpha1.NodeGateSpec)) {
	c.mu.Lock()
	gates := slices.Clone(c.gates)
	c.mu.Unlock()
	ng := gates[i].DeepCopy()
	ng.Generation++
	change(&ng.Spec)
	gates[i] = ng
	c.setGates(true, gates...)
}

// act performs one random action of a user.
func (c *userStorm) act() {
	node := c.lost[c.rng.IntN(len(c.lost))]
	switch c.rng.IntN(10) {
	case 0:
		c.edit(c.rng.IntN(2), inMode([]v1alpha1.Mode{"", v1alpha1.ModePaused, v1alpha1.ModeDryRun}[c.rng.IntN(3)]))
	case 1, 2:
		name, state := []string{"gate", "other"}[c.rng.IntN(2)], []string{v1alpha1.StateOpen, v1alpha1.StateClosed}[c.rng.IntN(2)]
		c.change(node, overrideFor(time.Duration(c.rng.IntN(60))*time.Second, name, state))
	case 3, 4, 5:
		c.change(node, func(n *gate.Node) { n.Labels[v1alpha1.OptOutLabel] = []string{"true", "false"}[c.rng.IntN(2)] })
	default:
		c.change(node, func(n *gate.Node) {
			if _, fit := n.Labels["fit"]; fit {
				delete(n.Labels, "fit")
			} else {
				n.Labels["fit"] = ""
			}
		})
	}
}

// Whatever users do during a storm, and with an unreliable API server, no gate exceeds its
// budget. In the end it uses the whole budget, and nothing is reserved.
func TestStormWithUserActions(t *testing.T) {
	for seed := range seeds(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				again := func(s *v1alpha1.NodeGateSpec) { s.ExistingNodes = v1alpha1.ExistingClose }
				one, other := controllertest.Gate("gate", budget("5"), again), controllertest.Gate("other", withKey(otherKey), budget("3"), again)
				c := &userStorm{newStorm(t, one, other), rand.New(rand.NewPCG(seed, 1))}
				c.after, c.stale = c.checkBudget, map[string]gate.Node{}
				u := &unreliable{world: c.world, rng: rand.New(rand.NewPCG(seed, 2))}
				defer c.startWith(u)()
				controllertest.Pass(5 * time.Second)
				c.loseSignals()
				for range 25 {
					controllertest.Pass(time.Duration(c.rng.IntN(5000)) * time.Millisecond)
					for range c.rng.IntN(10) {
						c.act()
					}
				}
				for i := range 2 {
					c.edit(i, inMode(""))
				}
				for _, name := range c.lost {
					c.change(name, func(n *gate.Node) { n.Labels = map[string]string{corev1.LabelTopologyZone: n.Zone()} })
				}
				controllertest.Pass(10 * time.Minute)
				c.checkFinalState()
			})
		})
	}
}

func (c *userStorm) checkFinalState() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	lost := map[string]int{}
	for _, name := range c.lost {
		n := c.nodes[name]
		lost[n.Zone()]++
	}
	for _, ng := range c.gates {
		closed := c.closedFor(ng.Name)
		for zone, n := range lost {
			if want := min(n, ng.Spec.Budget.MaxReclosed.IntValue()); closed[zone] != want {
				c.t.Errorf("gate %s has %d closed nodes in zone %q, want %d", ng.Name, closed[zone], zone, want)
			}
		}
	}
	if c.excess != "" {
		c.t.Error(c.excess)
	}
	if nodes := c.c.ledger.Reserving(); len(nodes) > 0 {
		c.t.Errorf("budget is reserved for %v", nodes)
	}
}

// seeds returns the number of random sequences that a test tries: n, or 1 with -short.
func seeds(n uint64) uint64 {
	if testing.Short() {
		return 1
	}
	return n
}
