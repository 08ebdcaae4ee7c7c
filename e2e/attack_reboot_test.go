// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// machine is a node with its agent, across boots.
type machine struct {
	*kubelet
	agent *corev1.Pod
	// container is the agent's present one.
	container string
	// since is when the node's Ready condition last changed.
	since time.Time
}

// step is one write that was observed while a real kubelet's machine rebooted.
type step struct {
	what string
	do   func(*machine)
}

// The steps of the two measured reboots. The quick one changes only the node's boot ID. In
// the slow one, the node becomes unreachable, and the first status of the new boot is
// Ready.
var (
	newBoot     = step{"the node tells its new boot", func(m *machine) { m.boot = string(uuid.NewUUID()); m.status("True") }}
	agentGone   = step{"the agent is known to have ended", func(m *machine) { m.setReady(m.agent, false, m.container) }}
	agentStarts = step{"the agent starts", func(m *machine) {
		m.container = "containerd://" + string(uuid.NewUUID())
		m.setReady(m.agent, false, m.container)
	}}
	agentReady     = step{"the agent is ready", func(m *machine) { m.setReady(m.agent, true, m.container) }}
	silent         = step{"the node falls silent", func(m *machine) { m.since = time.Now(); m.status("Unknown") }}
	unreachable    = step{"core taints it", func(m *machine) { m.taint(corev1.TaintNodeUnreachable) }}
	returns        = step{"the node returns in a new boot", func(m *machine) { m.since = time.Now(); newBoot.do(m) }}
	reachable      = step{"core lifts its taint", func(m *machine) { m.untaint(corev1.TaintNodeUnreachable) }}
	quickReboot    = []step{newBoot, agentGone, agentStarts, agentReady}
	quickPodsFirst = []step{agentGone, agentStarts, newBoot, agentReady}
	slowReboot     = []step{silent, agentGone, unreachable, returns, reachable, agentGone, agentStarts, agentReady}
	slowPodsFirst  = []step{silent, unreachable, agentGone, agentStarts, returns, reachable, agentReady}
	slowUnmarked   = []step{silent, unreachable, returns, reachable, agentGone, agentStarts, agentReady}
)

// status writes the node's status, as the kubelet or the node lifecycle controller.
func (m *machine) status(ready corev1.ConditionStatus) {
	m.Helper()
	patch := fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":%q},"conditions":[{"type":"Ready","status":%q,"lastHeartbeatTime":%q,"lastTransitionTime":%q}]}}`,
		m.boot, ready, time.Now().UTC().Format(time.RFC3339), m.since.UTC().Format(time.RFC3339))
	body := client.RawPatch(types.StrategicMergePatchType, []byte(patch))
	m.must(m.admin.Status().Patch(m.Context(), m.node(), body))
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

// The measured reboots, in both orders of the kubelet's two loops, with the
// controller killed before each step in turn and back before the last. Before
// the agent of the new boot is ready, the gate is closed; then it opens.
func TestRebootsWithTheControllerGoneInBetween(t *testing.T) {
	for name, steps := range map[string][]step{
		"quick": quickReboot, "quick, pods first": quickPodsFirst,
		"slow": slowReboot, "slow, pods first": slowPodsFirst, "slow, pods never marked": slowUnmarked,
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			stop := e.startController(0)
			ds := e.daemonSet("agent")
			ng := newGate("agent", keyA, byDaemonSet("agent"))
			ng.Spec.NodeSelector.MatchLabels = map[string]string{"fleet": ""}
			e.declare(ng)
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
	m := &machine{kubelet: e.kubelet(name), container: container, since: time.Now()}
	m.register(func(n *corev1.Node) { n.Labels["fleet"] = "" })
	return m
}

// reboots replays the steps. The controller is down from the cut to the last step.
func (m *machine) reboots(steps []step, cut int, stop *func()) {
	m.Helper()
	last := len(steps) - 1
	for i, s := range steps {
		if i == cut && i < last {
			(*stop)()
		}
		if i == last {
			if cut < last {
				*stop = m.startController(0)
			}
			m.becomes("agent", isClosed, keyA)
			m.eventually("the gate's record names the new boot and the pods of before", func() error {
				if r := m.record("agent"); r.Boot != m.boot || r.Digest == "*" {
					return fmt.Errorf("the record is %+v, want boot %s and a list of pods", r, m.boot)
				}
				return nil
			})
			m.settled()
			if err := m.is("agent", isClosed, keyA); err != nil {
				m.Fatalf("controller gone before %q: before the agent is ready: %v", steps[cut].what, err)
			}
		}
		s.do(m)
	}
	m.becomes("agent", isOpen, keyA)
}
