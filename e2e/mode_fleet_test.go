// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/access"
	"github.com/nodegate/nodegate/internal/controller"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/testcluster/freeport"
)

// randomFleet is a random fleet with two gates that have the same spec. One is enforced, the
// other one is in dry run.
type randomFleet struct {
	*env
	*rand.Rand
	nodes   []*kubelet
	zones   map[string]string
	budget  *intstr.IntOrString // of both gates
	address string              // of the controller's metrics port, which serves the state of single nodes
	// ahead is the offset of the controller's clock. With an offset of an hour, all nodes are
	// existing nodes; without, all are new.
	ahead time.Duration
}

const (
	randomNodes  = 24
	randomRounds = 4
	randomFleets = 3
)

func (e *env) newRandomFleet(seed uint64) *randomFleet {
	e.Helper()
	e.Logf("the seed is %d", seed)
	f := &randomFleet{env: e, Rand: rand.New(rand.NewPCG(seed, 0)), zones: map[string]string{}}
	var err error
	f.address, err = freeport.Address()
	e.must(err)
	f.ahead = time.Duration(f.IntN(2)) * time.Hour
	return f
}

// addNodes registers random nodes: with or without the signal's label, a zone, and the taints.
func (f *randomFleet) addNodes(n int) {
	f.Helper()
	for range n {
		k := f.kubelet(fmt.Sprintf("n%03d", len(f.nodes)))
		zone := []string{"", "a", "b"}[f.IntN(3)]
		f.nodes, f.zones[k.name] = append(f.nodes, k), zone
		isFit, isTainted := f.IntN(2) == 0, f.IntN(6) == 0
		k.register(func(node *corev1.Node) {
			node.Labels["fleet"] = ""
			if zone != "" {
				node.Labels[corev1.LabelTopologyZone] = zone
			}
			if isFit {
				node.Labels["fit"] = ""
			}
			if isTainted {
				for _, key := range []string{keyA, keyB} {
					node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
				}
			}
		})
		k.report(corev1.ConditionTrue, "")
	}
}

// declareGates creates both gates with the same random spec.
func (f *randomFleet) declareGates() {
	f.Helper()
	spec := newGate("", "", byLabel("fit")).Spec
	spec.NodeSelector.MatchLabels = map[string]string{"fleet": ""}
	spec.ReclosePolicy = []v1alpha1.ReclosePolicy{v1alpha1.RecloseNever, v1alpha1.RecloseOnReboot, v1alpha1.RecloseOnRegression}[f.IntN(3)]
	spec.ExistingNodes = []v1alpha1.ExistingNodes{v1alpha1.ExistingIgnore, v1alpha1.ExistingAdopt, v1alpha1.ExistingClose}[f.IntN(3)]
	spec.Budget.MaxReclosed = new([]intstr.IntOrString{intstr.FromInt32(0), intstr.FromInt32(2), intstr.FromString("50%"), intstr.FromString("100%")}[f.IntN(4)])
	f.budget = spec.Budget.MaxReclosed
	spec.Timing.CloseAfterSeconds = new(int32(0))
	f.Logf("reclosePolicy %s, existingNodes %s, at most %s", spec.ReclosePolicy, spec.ExistingNodes, spec.Budget.MaxReclosed)
	enforced, dryRun := newGate("enforced", keyA, byLabel("fit")), newGate("dry-run", keyB, byLabel("fit"))
	enforced.Spec, dryRun.Spec = *spec.DeepCopy(), *spec.DeepCopy()
	enforced.Spec.Taint = v1alpha1.Taint{Key: keyA, Effect: corev1.TaintEffectNoSchedule}
	dryRun.Spec.Taint = v1alpha1.Taint{Key: keyB, Effect: corev1.TaintEffectNoSchedule}
	dryRun.Spec.Mode = v1alpha1.ModeDryRun
	f.declare(dryRun)
	f.declare(enforced)
}

// changeNodes changes some random nodes.
func (f *randomFleet) changeNodes() {
	f.Helper()
	for range randomNodes / 2 {
		k := f.nodes[f.IntN(len(f.nodes))]
		switch f.IntN(5) {
		case 0, 1:
			k.patch(`{"metadata":{"labels":{"fit":null}}}`)
		case 2, 3:
			k.label("fit")
		case 4:
			k.reboot()
		}
	}
	if f.ahead == 0 { // otherwise the API server would close the enforced gate on nodes that are not new to the dry run
		f.addNodes(2)
	}
}

// gateState is the state of a gate on a node according to the controller.
type gateState struct {
	Gate, State string
	Reason      v1alpha1.Reason
	Throttled   bool
}

// gateStates returns the controller's response about a node, by gate.
func (f *randomFleet) gateStates(node string) (map[string]gateState, error) {
	response, err := http.Get("http://" + f.address + "/nodes/" + node)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var body struct{ Gates []gateState }
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
		return nil, fmt.Errorf("%s: %w", response.Status, err)
	}
	out := map[string]gateState{}
	for _, s := range body.Gates {
		out[s.Gate] = s
	}
	return out, nil
}

// samePrediction compares the two gates. They must want to be closed on the same nodes, and have
// the same state on all others. Different nodes may have been granted budget, so each gate must
// only use its budget correctly. The numbers of closed nodes may differ: a closed node that
// reboots no longer counts against the budget.
func (f *randomFleet) samePrediction() error {
	nodes, enforcedUse, dryRunUse := map[string]int{}, map[string]budgetUse{}, map[string]budgetUse{}
	for _, k := range f.nodes {
		zone := f.zones[k.name]
		enforced, dryRun, err := f.bothStates(k)
		if err != nil {
			return err
		}
		if wantsClosed(enforced) != wantsClosed(dryRun) || !wantsClosed(enforced) && enforced.State != dryRun.State {
			return fmt.Errorf("node %s: the dry run's state is %+v, the enforced gate's %+v", k.name, dryRun, enforced)
		}
		nodes[zone]++
		enforcedUse[zone] = enforcedUse[zone].plus(enforced)
		dryRunUse[zone] = dryRunUse[zone].plus(dryRun)
	}
	for zone, n := range nodes {
		limit := gate.MaxReclosed(f.budget, n)
		if err := errors.Join(enforcedUse[zone].check(limit), dryRunUse[zone].check(limit)); err != nil {
			return fmt.Errorf("zone %q, enforced %+v, in the dry run %+v: %w", zone, enforcedUse[zone], dryRunUse[zone], err)
		}
	}
	return nil
}

// budgetUse counts the nodes of a zone that one gate has closed under its budget, and those that
// wait for budget.
type budgetUse struct{ closed, waiting int }

func (u budgetUse) plus(s gateState) budgetUse {
	switch {
	case s.Throttled:
		u.waiting++
	case s.State == isClosed && gate.IsBudgeted(s.Reason):
		u.closed++
	}
	return u
}

// check returns an error unless the budget is respected, and used up if a node waits for it.
func (u budgetUse) check(limit int) error {
	return errUnless(u.closed == min(limit, u.closed+u.waiting), fmt.Sprintf("%d nodes may be closed under the budget", limit))
}

// bothStates returns the states of the two gates on a node. It verifies that only the
// enforced gate has a record, which must agree with the response.
func (f *randomFleet) bothStates(k *kubelet) (enforced, dryRun gateState, err error) {
	annotations := k.node().Annotations
	states, err := f.gateStates(k.name)
	if err != nil {
		return enforced, dryRun, err
	}
	if _, has := annotations[v1alpha1.RecordAnnotationPrefix+"dry-run"]; has {
		return enforced, dryRun, fmt.Errorf("node %s has a record of the dry run", k.name)
	}
	var record gate.Record
	if raw := annotations[v1alpha1.RecordAnnotationPrefix+"enforced"]; raw != "" {
		if record, err = gate.ParseRecord(raw); err != nil {
			return enforced, dryRun, err
		}
	}
	enforced, dryRun = states["enforced"], states["dry-run"]
	if enforced.State != record.State {
		err = fmt.Errorf("node %s: the enforced gate's state is %+v, its record %+v", k.name, enforced, record)
	}
	return enforced, dryRun, err
}

// wantsClosed reports whether the gate is closed, or would be closed with unlimited budget.
func wantsClosed(s gateState) bool { return s.State == isClosed || s.Throttled }

// For any fleet and any changes, a gate in dry run has the same result as an enforced gate,
// except for the choice of the nodes that get budget.
func TestDryRunPredictsRandomFleets(t *testing.T) {
	seed := rand.Uint64()
	for i := range uint64(randomFleets) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			e := newEnv(t)
			f := e.newRandomFleet(seed + i)
			if f.ahead > 0 { // before the gates; otherwise, one of them may be created in the same second as the nodes, the other later
				f.addNodes(randomNodes)
			}
			e.runController(func(p *controller.Process) {
				p.Metrics = access.MetricsPort{Address: f.address, Open: true}
				p.Options.Clock = laterClock{ahead: f.ahead}
			})
			f.declareGates()
			if f.ahead == 0 {
				f.addNodes(randomNodes)
			}
			for round := range randomRounds {
				if round > 0 {
					f.changeNodes()
				}
				e.settled()
				e.eventually(fmt.Sprintf("round %d: both gates have the same result", round), f.samePrediction)
			}
		})
	}
}
