// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// machine is a node with its agent, across boots.
type machine struct {
	*kubelet
	agent *corev1.Pod
	// container is the agent's current container.
	container string
	// since is when the node's Ready condition last changed.
	since time.Time
}

// step is one write that was observed while the machine of a real kubelet rebooted.
type step struct {
	what string
	do   func(*machine)
}

// The steps of the two recorded reboots. The quick one changes only the node's boot ID. In
// the slow one, the node becomes unreachable, and the first status of the new boot is Ready.
var (
	newBoot     = step{"the node reports its new boot", func(m *machine) { m.boot = string(uuid.NewUUID()); m.status(corev1.ConditionTrue) }}
	agentGone   = step{"the agent is not ready", func(m *machine) { m.setReady(m.agent, false, m.container) }}
	agentStarts = step{"the agent starts", func(m *machine) {
		m.container = newContainerID()
		m.setReady(m.agent, false, m.container)
	}}
	agentReady     = step{"the agent is ready", func(m *machine) { m.setReady(m.agent, true, m.container) }}
	silent         = step{"the node becomes unreachable", func(m *machine) { m.since = time.Now(); m.status(corev1.ConditionUnknown) }}
	unreachable    = step{"the node lifecycle controller adds its taint", func(m *machine) { m.taint(corev1.TaintNodeUnreachable) }}
	returns        = step{"the node reports again, in a new boot", func(m *machine) { m.since = time.Now(); newBoot.do(m) }}
	reachable      = step{"the node lifecycle controller removes its taint", func(m *machine) { m.untaint(corev1.TaintNodeUnreachable) }}
	quickReboot    = []step{newBoot, agentGone, agentStarts, agentReady}
	quickPodsFirst = []step{agentGone, agentStarts, newBoot, agentReady}
	slowReboot     = []step{silent, agentGone, unreachable, returns, reachable, agentGone, agentStarts, agentReady}
	slowPodsFirst  = []step{silent, unreachable, agentGone, agentStarts, returns, reachable, agentReady}
	slowUnmarked   = []step{silent, unreachable, returns, reachable, agentGone, agentStarts, agentReady}
)

// status writes the node's status, as the kubelet or the node lifecycle controller.
func (m *machine) status(ready corev1.ConditionStatus) {
	m.Helper()
	m.writeReady(m.admin, ready, "", m.since)
}

func (m *machine) taint(key string) {
	m.Helper()
	m.must(m.editTaints(m.Context(), m.name, "node-lifecycle", func(taints []corev1.Taint) []corev1.Taint {
		return append(without(taints, key), corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}))
}

func (m *machine) untaint(key string) {
	m.Helper()
	m.must(m.editTaints(m.Context(), m.name, "node-lifecycle", func(taints []corev1.Taint) []corev1.Taint { return without(taints, key) }))
}

// The recorded reboots are replayed, in both orders of the kubelet's two loops. The controller
// stops before each step in turn, and another one starts before the last step. Before the
// agent of the new boot is ready, the gate is closed. Then it opens.
func TestRebootsWhileTheControllerRestarts(t *testing.T) {
	for name, steps := range map[string][]step{
		"quick": quickReboot, "quick, pods first": quickPodsFirst,
		"slow": slowReboot, "slow, pods first": slowPodsFirst, "slow, pods never marked": slowUnmarked,
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			stop := e.startController(0)
			ds := e.daemonSet("agent")
			e.declare(on(newGate("agent", keyA, byDaemonSet("agent")), "fleet", ""))
			for cut := range len(steps) {
				m := e.newMachine(fmt.Sprintf("cut-%d", cut), "containerd://first")
				m.agent = m.daemonPod(ds)
				m.setReady(m.agent, true, m.container)
				m.becomes("agent", isOpen, keyA)
				m.reboots(steps, cut, &stop)
			}
		})
	}
}

func (e *env) newMachine(name, container string) *machine {
	e.Helper()
	k, _ := e.registerWith(name, "fleet", "")
	return &machine{kubelet: k, container: container, since: time.Now()}
}

// reboots replays the steps. The controller is down from the cut to the last step.
func (m *machine) reboots(steps []step, cut int, stop *func()) {
	m.Helper()
	last := len(steps) - 1
	for i, s := range steps[:last] {
		if i == cut {
			(*stop)()
		}
		s.do(m)
	}
	if cut < last {
		*stop = m.startController(0)
	}
	m.becomes("agent", isClosed, keyA)
	m.recordsBoot("agent")
	m.settled()
	if err := m.is("agent", isClosed, keyA); err != nil {
		m.Fatalf("the controller stopped before %q, and the agent is not ready yet: %v", steps[cut].what, err)
	}
	steps[last].do(m)
	m.becomes("agent", isOpen, keyA)
}
