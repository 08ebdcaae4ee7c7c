// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// rackGate returns a gate that opens on the nodes of a rack when four of them have the
// label "fit".
func rackGate(change ...func(*v1alpha1.NodeGateSpec)) *v1alpha1.NodeGate {
	return controllertest.Gate("gate", append([]func(*v1alpha1.NodeGateSpec){func(s *v1alpha1.NodeGateSpec) {
		s.OpenTogether = &v1alpha1.OpenTogether{LabelKey: "rack", AtLeast: intstr.FromInt32(4)}
		s.Budget.MaxReclosed = new(intstr.FromString("100%"))
	}}, change...)...)
}

func closingTogether(s *v1alpha1.NodeGateSpec) {
	s.CloseTogether = v1alpha1.CloseTogetherWhenIncomplete
	s.Timing.CloseAfterSeconds = new(int32(60))
}

// inRacks puts nodes in racks of four. The last node of each rack is not fit.
func inRacks(i int, n *gate.Node) {
	n.Labels = map[string]string{"rack": fmt.Sprintf("r%d", i/4), "fit": ""}
	if i%4 == 3 {
		delete(n.Labels, "fit")
	}
	isClosed(n, "gate", v1alpha1.ReasonBirth)
}

// openRacks is inRacks, with the gate open on all nodes, which are all fit.
func openRacks(i int, n *gate.Node) {
	n.Labels = map[string]string{"rack": fmt.Sprintf("r%d", i/4), "fit": ""}
	isOpen(n, "gate")
}

func becomeFit(n *gate.Node)   { n.Labels["fit"] = "" }
func becomeUnfit(n *gate.Node) { delete(n.Labels, "fit") }

// The node that completes a group opens all of its nodes, without a resync, and nothing
// else. Before that, the status names the nodes that the others wait for. A restart of the
// controller changes nothing.
func TestGroupOpensAtOnce(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, rackGate())
			w.add(8, inRacks)
			stop := w.start(logr.Discard(), interceptor.Funcs{})
			controllertest.Pass(time.Minute)
			if restarts {
				stop()
				stop = w.start(logr.Discard(), interceptor.Funcs{})
				controllertest.Pass(time.Minute)
			}
			defer func() { stop() }()
			status := w.stored("gate").Status
			if w.closed() != 8 || w.written() != 0 || status.Groups == nil || *status.Groups != (v1alpha1.GroupCounts{Incomplete: 2}) {
				t.Fatalf("%d nodes are closed after %d writes, groups %+v", w.closed(), w.written(), status.Groups)
			}
			messages := ""
			for _, waiting := range status.Waiting {
				messages += waiting.Node + " " + waiting.Reason + " " + waiting.Message + "\n"
			}
			for _, want := range []string{"n0000 GroupIncomplete ", "group r0 has 3 fit nodes and needs 4; not fit: n0003", "n0003 Missing", "not fit: n0007"} {
				if !strings.Contains(messages, want) {
					t.Errorf("the waiting nodes do not contain %q:\n%s", want, messages)
				}
			}
			w.edit("n0003", gate.Everything(), becomeFit)
			synctest.Wait()
			if open := 8 - w.closed(); open != 4 || w.written() != 4 {
				t.Errorf("%d nodes are open at once after %d writes: %v", open, w.written(), w.writesFrom(0))
			}
			controllertest.Pass(30 * time.Second)
			if groups := w.stored("gate").Status.Groups; *groups != (v1alpha1.GroupCounts{Complete: 1, Incomplete: 1}) {
				t.Errorf("groups %+v", groups)
			}
		})
	}
}

// The messages of waiting nodes follow the group although it stays incomplete.
func TestGroupMessagesAreUpdated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, rackGate())
		w.add(4, inRacks)
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		w.edit("n0002", gate.Everything(), becomeUnfit)
		controllertest.Pass(5 * time.Second)
		waiting := w.stored("gate").Status.Waiting
		if len(waiting) != 4 || waiting[0].Node != "n0000" || !strings.Contains(waiting[0].Message, "has 2 fit nodes and needs 4; not fit: n0002, n0003") {
			t.Errorf("waiting: %+v", waiting)
		}
	})
}

// A lost node closes the rest of its group only with closeTogether, under the budget, and
// with a reason of its own. It reports nodes for which there is no budget.
func TestGroupLosesANode(t *testing.T) {
	for name, c := range map[string]struct {
		change []func(*v1alpha1.NodeGateSpec)
		closed int
	}{
		"without closeTogether": {nil, 1},
		"with closeTogether":    {[]func(*v1alpha1.NodeGateSpec){closingTogether}, 4},
		"with little budget": {[]func(*v1alpha1.NodeGateSpec){closingTogether, func(s *v1alpha1.NodeGateSpec) {
			s.Budget.MaxReclosed = new(intstr.FromInt32(2))
		}}, 2},
		"with closeTogether, not on regressions": {[]func(*v1alpha1.NodeGateSpec){closingTogether, func(s *v1alpha1.NodeGateSpec) {
			s.ReclosePolicy = v1alpha1.RecloseOnReboot
		}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, rackGate(c.change...))
				w.add(8, openRacks)
				stop := w.start(logr.Discard(), interceptor.Funcs{})
				defer func() { stop() }()
				controllertest.Pass(10 * time.Minute)
				w.edit("n0002", gate.Everything(), becomeUnfit)
				controllertest.Pass(20 * time.Second)
				stop()
				stop = w.start(logr.Discard(), interceptor.Funcs{})
				controllertest.Pass(10 * time.Minute)
				if w.closed() != c.closed {
					t.Fatalf("%d nodes are closed, want %d; writes %v", w.closed(), c.closed, w.writesFrom(0))
				}
				incomplete := 0
				for _, n := range []string{"n0000", "n0001", "n0003"} {
					if r, _ := gate.ParseRecord(w.node(n).Records["gate"]); r.Reason == v1alpha1.ReasonGroupIncomplete {
						incomplete++
					}
				}
				if incomplete != max(c.closed-1, 0) {
					t.Errorf("%d nodes closed for their group, want %d", incomplete, c.closed-1)
				}
				if c.closed == 2 {
					w.wantCondition(t, v1alpha1.ConditionThrottled, v1alpha1.ReasonThrottled, "group r0 has 3 fit nodes and needs 4; not fit: n0002")
				}
				w.edit("n0002", gate.Everything(), becomeFit)
				controllertest.Pass(5 * time.Second)
				if w.closed() != 0 {
					t.Errorf("after the node is fit again, %d nodes are closed", w.closed())
				}
			})
		})
	}
}

// A node that is deleted or relabelled is lost to its group. A group that is complete when
// the controller starts is not closed, whatever the order of the first decisions.
func TestGroupsOfNodesThatLeave(t *testing.T) {
	for name, leave := range map[string]func(*world){
		"deleted":    func(w *world) { w.remove("n0001"); w.c.NodeChanged("n0001", gate.Everything()) },
		"relabelled": func(w *world) { w.edit("n0001", gate.Everything(), func(n *gate.Node) { n.Labels["rack"] = "r9" }) },
		"unlabelled": func(w *world) { w.edit("n0001", gate.Everything(), func(n *gate.Node) { delete(n.Labels, "rack") }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, rackGate(closingTogether))
				w.add(8, openRacks)
				defer w.start(logr.Discard(), interceptor.Funcs{})()
				controllertest.Pass(30 * time.Minute)
				if w.closed() != 0 {
					t.Fatalf("%d nodes of complete groups are closed", w.closed())
				}
				leave(w)
				controllertest.Pass(59 * time.Second)
				if w.closed() != 0 {
					t.Errorf("%d nodes are closed before closeAfterSeconds", w.closed())
				}
				controllertest.Pass(time.Minute)
				want := 3
				if name == "relabelled" {
					want = 4 // its new group is incomplete, too
				}
				if w.closed() != want {
					t.Errorf("%d nodes are closed, want %d", w.closed(), want)
				}
			})
		})
	}
}

// A deletion that the feed does not report is noticed by the next resync, even if the node
// was never written.
func TestGroupsForgetUnreportedDeletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, rackGate(closingTogether))
		w.add(4, openRacks)
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		w.remove("n0001")
		w.c.ledger.Forget("n0001") // as if its only write had failed because it was gone
		controllertest.Pass(refreshInterval + 2*time.Minute)
		if w.closed() != 3 {
			t.Errorf("%d nodes are closed, want 3", w.closed())
		}
	})
}

// What was fit by the former signals of a gate does not count for its new ones.
func TestGroupsOfChangedSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, rackGate())
		w.add(4, inRacks)
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		w.mu.Lock()
		ng := w.gates[0].DeepCopy()
		w.mu.Unlock()
		ng.Generation++
		ng.Spec.OpenWhen[0].Label.Key = "other"
		w.setGates(true, ng)
		w.edit("n0003", gate.Everything(), func(n *gate.Node) { n.Labels["other"] = "" })
		controllertest.Pass(time.Minute)
		if w.closed() != 4 {
			t.Errorf("%d nodes are closed, and one of them is fit", w.closed())
		}
	})
}

// A dry run shows the groups that would open, and changes nothing.
func TestGroupsInDryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, rackGate(inMode(v1alpha1.ModeDryRun), func(s *v1alpha1.NodeGateSpec) { s.ExistingNodes = v1alpha1.ExistingClose }))
		w.add(4, func(i int, n *gate.Node) {
			inRacks(i, n)
			n.Records, n.Taints = map[string]string{}, nil
			n.Created = time.Now()
		})
		var log controllertest.LogLines
		defer w.start(log.Logger(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		if n := w.stored("gate").Status.Nodes; n.Closed != 4 {
			t.Errorf("with an incomplete group: %+v", n)
		}
		w.edit("n0003", gate.Everything(), becomeFit)
		controllertest.Pass(10 * time.Second)
		if n := w.stored("gate").Status.Nodes; n.Closed != 0 || n.Open != 4 || w.written() != 0 || log.Count("gate would open") != 4 {
			t.Errorf("with a complete group: %+v, %d writes, log\n%s", n, w.written(), strings.Join(log.All(), "\n"))
		}
	})
}

// Partial reconciles, restarts and races between workers do not matter: groups end in the
// state that follows from their nodes.
func TestGroupsUnderRandomChanges(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			other := conditionGate("other", "Other", func(s *v1alpha1.NodeGateSpec) { s.ReclosePolicy = v1alpha1.RecloseNever })
			w := newWorld(t, rackGate(closingTogether), other)
			w.add(12, inRacks)
			w.writer = notifyingWriter{w}
			stop := w.start(logr.Discard(), interceptor.Funcs{})
			defer func() { stop() }()
			for range 30 {
				name := fmt.Sprintf("n%04d", random.IntN(12))
				switch random.IntN(8) {
				case 0:
					stop()
					stop = w.start(logr.Discard(), interceptor.Funcs{})
				case 1:
					w.edit(name, gate.Everything(), func(n *gate.Node) { n.Labels["rack"] = fmt.Sprintf("r%d", random.IntN(3)) })
				default:
					w.edit(name, gate.Everything(), func(n *gate.Node) {
						if _, fit := n.Labels["fit"]; fit {
							becomeUnfit(n)
						} else {
							becomeFit(n)
						}
					})
				}
				controllertest.Pass(time.Duration(random.IntN(90)) * time.Second)
			}
			controllertest.Pass(5 * time.Minute) // less than until the next resync
			w.wantGroups(t, seed)
		})
	}
}

// wantGroups checks that exactly the fit nodes of complete groups are open.
func (w *world) wantGroups(t *testing.T, seed uint64) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	fit := map[string]int{}
	for _, n := range w.nodes {
		if _, is := n.Labels["fit"]; is {
			fit[n.Labels["rack"]]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		n := w.nodes[name]
		r, _ := gate.ParseRecord(n.Records["gate"])
		_, isFit := n.Labels["fit"]
		if want := isFit && fit[n.Labels["rack"]] >= 4; (r.State == v1alpha1.StateOpen) != want {
			t.Errorf("seed %d: %s in %s is %s (%s), want open %v; fit nodes %v", seed, name, n.Labels["rack"], r.State, r.Reason, want, fit)
		}
	}
}
