// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller"
	"github.com/nodegate/nodegate/internal/gate"
)

// randomFleet is a random fleet with two gates that have the same signals. One is enforced,
// the other one is in dry run.
type randomFleet struct {
	*env
	*rand.Rand
	nodes   []*kubelet
	zones   map[string]string
	address string // where the controller tells of single nodes
	// ahead is how far the controller's clock is: by an hour, no node of the fleet is
	// new to it; where it is not, all are.
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
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	e.must(err)
	f.address = listener.Addr().String()
	e.must(listener.Close())
	f.ahead = time.Duration(f.IntN(2)) * time.Hour
	return f
}

// registers adds nodes of all kinds: fit or not, in zones or none, tainted already
// or not.
func (f *randomFleet) registers(n int) {
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

// declares gives both gates the same spec.
func (f *randomFleet) declares() {
	f.Helper()
	spec := newGate("", "", byLabel("fit")).Spec
	spec.NodeSelector.MatchLabels = map[string]string{"fleet": ""}
	spec.ReclosePolicy = []v1alpha1.ReclosePolicy{v1alpha1.RecloseNever, v1alpha1.RecloseOnReboot, v1alpha1.RecloseOnRegression}[f.IntN(3)]
	spec.ExistingNodes = []v1alpha1.ExistingNodes{v1alpha1.ExistingIgnore, v1alpha1.ExistingAdopt, v1alpha1.ExistingClose}[f.IntN(3)]
	spec.Budget.MaxReclosed = ptr.To([]intstr.IntOrString{intstr.FromInt32(0), intstr.FromInt32(2), intstr.FromString("50%"), intstr.FromString("100%")}[f.IntN(4)])
	spec.Timing.CloseAfterSeconds = ptr.To[int32](0)
	f.Logf("reclosePolicy %s, existingNodes %s, at most %s", spec.ReclosePolicy, spec.ExistingNodes, spec.Budget.MaxReclosed)
	real, tried := newGate("real", keyA, byLabel("fit")), newGate("tried", keyB, byLabel("fit"))
	real.Spec, tried.Spec = *spec.DeepCopy(), *spec.DeepCopy()
	real.Spec.Taint = v1alpha1.Taint{Key: keyA, Effect: corev1.TaintEffectNoSchedule}
	tried.Spec.Taint = v1alpha1.Taint{Key: keyB, Effect: corev1.TaintEffectNoSchedule}
	tried.Spec.Mode = v1alpha1.ModeDryRun
	f.declare(tried)
	f.declare(real)
}

// something changes some random nodes.
func (f *randomFleet) something() {
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
	if f.ahead == 0 { // or births would be closed of nodes that are not new to a dry run
		f.registers(2)
	}
}

// told is the state of a gate on a node according to the controller.
type told struct {
	Gate, State string
	Throttled   bool
}

func (f *randomFleet) asks(node string) (map[string]told, error) {
	response, err := http.Get("http://" + f.address + "/nodes/" + node)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var body struct{ Gates []told }
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
		return nil, fmt.Errorf("%s: %w", response.Status, err)
	}
	out := map[string]told{}
	for _, one := range body.Gates {
		out[one.Gate] = one
	}
	return out, nil
}

// foretells compares what is tried out with what has been done: on every node, but
// for which of those that are to be closed were granted it; and how many of these
// in each zone.
func (f *randomFleet) foretells() error {
	real, tried := map[string]int{}, map[string]int{}
	for _, k := range f.nodes {
		node, zone := k.node(), f.zones[k.name]
		all, err := f.asks(k.name)
		if err != nil {
			return err
		}
		r, err := gate.ParseRecord(node.Annotations[v1alpha1.RecordAnnotationPrefix+"real"])
		if raw := node.Annotations[v1alpha1.RecordAnnotationPrefix+"real"]; raw == "" {
			r = gate.Record{}
		} else if err != nil {
			return err
		}
		if _, has := node.Annotations[v1alpha1.RecordAnnotationPrefix+"tried"]; has {
			return fmt.Errorf("the dry run has written to %s", k.name)
		}
		done, said := all["real"], all["tried"]
		if done.State != r.State {
			return fmt.Errorf("node %s: told of the real gate is %+v, its record is %+v", k.name, done, r)
		}
		if wants(done) != wants(said) || !wants(done) && done.State != said.State {
			return fmt.Errorf("node %s: foretold is %+v, done %+v", k.name, said, done)
		}
		if done.State == isClosed {
			real[zone]++
		}
		if said.State == isClosed {
			tried[zone]++
		}
	}
	if !maps.Equal(real, tried) {
		return fmt.Errorf("closed are, by zone, %v, and would be %v", real, tried)
	}
	return nil
}

// wants reports whether the gate is closed, or would be closed with unlimited budget.
func wants(one told) bool { return one.State == isClosed || one.Throttled }

// For any fleet and any changes, a gate in dry run comes to the same result as an enforced
// gate, except for the choice of the nodes that get budget.
func TestDryRunForetellsRandomFleets(t *testing.T) {
	seed := rand.Uint64()
	for i := range uint64(randomFleets) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			e := newEnv(t)
			f := e.newRandomFleet(seed + i)
			if f.ahead > 0 { // or one of the gates may be as old as the nodes to the second, and the other younger
				f.registers(randomNodes)
			}
			e.runController(func(p *controller.Process) {
				p.Metrics = controller.MetricsPort{Address: f.address, Open: true}
				p.Options.Clock = laterClock{ahead: f.ahead}
			})
			f.declares()
			if f.ahead == 0 {
				f.registers(randomNodes)
			}
			for round := range randomRounds {
				if round > 0 {
					f.something()
				}
				e.settled()
				e.eventually(fmt.Sprintf("in round %d the dry run foretells", round), f.foretells)
			}
		})
	}
}
