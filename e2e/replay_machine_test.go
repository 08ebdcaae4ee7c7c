// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/testcluster/await"
)

// replayed is a machine for which a recording is replayed.
type replayed struct {
	*kubelet
	*recording
	// gate is the name of the gate that selects the machine, or empty.
	gate string
	// core has the credentials of the node lifecycle controller.
	core     client.Client
	pods     map[string]client.ObjectKey
	workload *workload
	// start is the time at which the replay began, plus all delays. late is the longest delay
	// between two writes.
	start time.Time
	late  time.Duration
	// written contains the resource version that resulted from each row's write.
	written map[row]int64
	// cut is the row after which the replay waits until resume is closed.
	cut    row
	resume chan struct{}
	// until contains conditions that must hold before rows are written: on a busy machine,
	// nodegate and the scheduler may need more time than was recorded.
	until map[row]func() bool
	// steps is the number of completed steps.
	steps atomic.Int64
	// atCut is closed at the cut, and done after the last write.
	atCut, done chan struct{}
}

// nodeController is the name of the node lifecycle controller.
const nodeController = "system:serviceaccount:kube-system:node-controller"

// machine registers a machine with the state at the beginning of the recording. The gate
// selects it, unless the gate's name is empty.
func (w *replayEnv) machine(name string, r *recording, gate string) *replayed {
	w.Helper()
	core, err := client.New(w.cluster.User(nodeController), client.Options{Scheme: w.admin.Scheme()})
	w.must(err)
	m := &replayed{
		kubelet: w.kubelet(name), recording: r, gate: gate, core: core, pods: make(map[string]client.ObjectKey), written: make(map[row]int64), until: make(map[row]func() bool),
		atCut: make(chan struct{}), done: make(chan struct{}), resume: make(chan struct{}), start: time.Now(),
	}
	m.boot = r.oldBoot()
	m.register(func(n *corev1.Node) {
		n.Labels["machine"] = name
		n.Labels["gate"] = gate
		n.Status = corev1.NodeStatus{NodeInfo: n.Status.NodeInfo, Allocatable: corev1.ResourceList{
			corev1.ResourcePods: resource.MustParse("1000"), corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("8Gi"),
		}}
		n.Status.Capacity = n.Status.Allocatable
	})
	_, err = m.writeTaints(w.Context(), nil) // core removes its taint, which the API server adds to new nodes
	w.must(err)
	for _, row := range r.rows {
		if row.author != found {
			continue
		}
		if row.object != "node" {
			m.pods[row.object] = client.ObjectKeyFromObject(w.podOn(name, row.object))
		}
		w.eventually("the initial state is written", func() error { return m.write(w.Context(), row) })
	}
	return m
}

// podOn creates a pod that is bound to the machine: the agent's pod, or another one.
func (w *replayEnv) podOn(machine, object string) *corev1.Pod {
	w.Helper()
	pod := newDaemonPod(w.agentSet, machine)
	if object != "agent" {
		pod.Name, pod.Labels, pod.OwnerReferences = machine+"-"+object, nil, nil
	}
	w.must(w.admin.Create(w.Context(), pod))
	return pod
}

// key returns the gate's taint key.
func (m *replayed) key() string {
	if m.gate == "strict" {
		return keyB
	}
	return keyA
}

// replay replays the recording, in its order and at its times. It may run in a separate
// goroutine.
func (m *replayed) replay(ctx context.Context, start time.Time) {
	defer close(m.done)
	m.start = start
	for _, row := range m.rows {
		if err := m.pause(ctx, row); err != nil {
			if ctx.Err() == nil { // the test has not ended
				m.Errorf("%s: %v", m.name, err)
			}
			return
		}
		send, err := m.prepare(ctx, row)
		if err != nil {
			m.Errorf("%s: preparing %s %s: %v", m.name, row.object, row.state, err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(m.due(row))):
		}
		// A delay moves all later writes.
		late := time.Since(m.due(row))
		m.start = m.start.Add(late)
		if row.author != found {
			m.late = max(m.late, late)
		}
		if m.written[row], err = send(ctx); err != nil {
			m.Errorf("%s: writing %s %s: %v", m.name, row.object, row.state, err)
			return
		}
		m.steps.Add(1)
		m.workload.written <- struct{}{}
		if row == m.cut && !m.waitAtCut(ctx) {
			return
		}
	}
}

// waitAtCut stops the replay's time until resume is closed. It returns false if the context
// ends first.
func (m *replayed) waitAtCut(ctx context.Context) bool {
	close(m.atCut)
	began := time.Now()
	select {
	case <-ctx.Done():
		return false
	case <-m.resume:
	}
	m.start = m.start.Add(time.Since(began))
	return true
}

// pause stops the replay's time, when a row is due, until the row's condition holds, if it
// has one.
func (m *replayed) pause(ctx context.Context, row row) error {
	until := m.until[row]
	if until == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Until(m.due(row))):
	}
	m.steps.Add(1)
	what := fmt.Sprintf("the condition for %s %s", row.object, row.state)
	err := await.Until(ctx, what, func(context.Context) error { return unless(until()) })
	m.start = m.start.Add(time.Since(m.due(row)))
	return err
}

// pauseForOthers stops the replay of a machine with a gate where nodegate and the scheduler
// may need more time than was recorded. Before the first write of a quick reboot, the
// scheduler has bound a pod. Before the agent of the new boot is ready, and before the new
// boot of a machine that was closed earlier, the scheduler has observed the taint. If
// nodegate itself restarts only after the new boot, it cannot close earlier.
func (w *replayEnv) pauseForOthers(m *replayed) {
	inEffect := func() bool { return w.inEffectFrom(m) < forever }
	m.until[m.proof()] = inEffect
	if m.unreachable().at == 0 {
		m.until[m.firstSign()] = func() bool { return w.boundAfter(m, 0) }
	}
	if m.firstSign().at < m.newBoot().at && m.cut != m.newBoot() {
		m.until[m.newBoot()] = inEffect
	}
}

// boundAfter reports whether a pod of the workload was bound after a resource version.
func (w *replayEnv) boundAfter(m *replayed, after int64) bool {
	bindings, _ := w.history.workloadOf(m.name, 0)
	return slices.ContainsFunc(bindings, func(b binding) bool { return b.at > after })
}

// due returns the time at which a row must be written.
func (m *replayed) due(row row) time.Time { return m.start.Add(m.when(row.at)) }

// prepared sends a prepared write, and returns the resulting resource version.
type prepared func(context.Context) (int64, error)

// write writes a row immediately, with the credentials of its author.
func (m *replayed) write(ctx context.Context, row row) error {
	send, err := m.prepare(ctx, row)
	if err == nil {
		_, err = send(ctx)
	}
	return err
}

// prepare prepares the write of a row, with the credentials of its author.
func (m *replayed) prepare(ctx context.Context, row row) (prepared, error) {
	api := m.api
	if row.author == byCore {
		api = m.core
	}
	if row.object != "node" {
		return m.preparePod(ctx, api, row)
	}
	s, err := m.readNode(row)
	if err != nil {
		return nil, err
	}
	var node corev1.Node
	if err := api.Get(ctx, client.ObjectKey{Name: m.name}, &node); err != nil {
		return nil, err
	}
	if row.author == byCore && !slices.Equal(s.taints, coreTaints(&node)) {
		return func(ctx context.Context) (int64, error) { return m.writeTaints(ctx, s.taints) }, nil
	}
	return m.prepareNode(api, &node, s), nil
}

// stamp converts a recorded time to a time of the replay.
func (m *replayed) stamp(recorded time.Duration) metav1.Time {
	return metav1.NewTime(m.start.Add(m.when(recorded)).Truncate(time.Second))
}

// prepareNode prepares a patch of the Node's status like a kubelet's.
func (m *replayed) prepareNode(api client.Client, node *corev1.Node, s nodeState) prepared {
	before := node.DeepCopy()
	node.Status.NodeInfo.BootID = s.boot
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: s.ready, Reason: s.reason,
		LastHeartbeatTime: m.stamp(s.heartbeat), LastTransitionTime: m.stamp(s.change),
	}}
	return func(ctx context.Context) (int64, error) {
		err := api.Status().Patch(ctx, node, client.StrategicMergeFrom(before))
		return version(node), err
	}
}

// coreTaints returns the node's unreachable taints, without the time.
func coreTaints(node *corev1.Node) (taints []corev1.Taint) {
	for _, t := range node.Spec.Taints {
		if t.Key == corev1.TaintNodeUnreachable {
			taints = append(taints, corev1.Taint{Key: t.Key, Effect: t.Effect})
		}
	}
	return taints
}

// writeTaints replaces core's taints, like core: with a patch of the whole list that specifies
// the resource version, and again after a conflict.
func (m *replayed) writeTaints(ctx context.Context, taints []corev1.Taint) (int64, error) {
	var node corev1.Node
	err := retry.RetryOnConflict(persistently, func() error {
		if err := m.core.Get(ctx, client.ObjectKey{Name: m.name}, &node); err != nil {
			return err
		}
		before := node.DeepCopy()
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == corev1.TaintNodeUnreachable || t.Key == corev1.TaintNodeNotReady
		})
		now := metav1.Now()
		for _, t := range taints {
			t.TimeAdded = &now
			node.Spec.Taints = append(node.Spec.Taints, t)
		}
		return m.core.Patch(ctx, &node, client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{}))
	})
	return version(&node), err
}

// preparePod prepares a patch of a pod's status.
func (m *replayed) preparePod(ctx context.Context, api client.Client, row row) (prepared, error) {
	s, err := m.readPod(row)
	if err != nil {
		return nil, err
	}
	var pod corev1.Pod
	if err := api.Get(ctx, m.pods[row.object], &pod); err != nil {
		return nil, err
	}
	before := pod.DeepCopy()
	id := "containerd://" + s.container
	status := corev1.ContainerStatus{
		Name: "daemon", Image: "daemon", ContainerID: id, RestartCount: s.restarts, Ready: s.ready == corev1.ConditionTrue,
	}
	if started := m.stamp(s.started); s.running {
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: started}
	} else {
		status.State.Terminated = &corev1.ContainerStateTerminated{StartedAt: started, ContainerID: id, ExitCode: 255, Reason: "Unknown"}
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: s.ready, LastTransitionTime: m.stamp(s.change)}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	return func(ctx context.Context) (int64, error) {
		err := api.Status().Patch(ctx, &pod, client.StrategicMergeFrom(before))
		return version(&pod), err
	}, nil
}

// workload is a growing set of pods that can run only on one machine. They have only the
// default tolerations.
type workload struct {
	*env
	machine string
	// written receives a value after every write of the replay.
	written chan struct{}
}

// creationInterval is the interval at which pods are created; two more are created after every write.
const creationInterval = 500 * time.Millisecond

// grow creates pods until enough is closed or the test ends.
func (l *workload) grow(ctx context.Context, enough chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-enough:
			return
		case <-l.written:
			l.create(ctx, 2)
		case <-time.After(creationInterval):
			l.create(ctx, 1)
		}
	}
}

func (l *workload) create(ctx context.Context, n int) {
	for range n {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, GenerateName: "work-", Labels: map[string]string{"workload": l.machine}},
			Spec: corev1.PodSpec{
				NodeSelector: map[string]string{"machine": l.machine},
				Containers:   []corev1.Container{{Name: "work", Image: "work"}},
			},
		}
		if err := l.admin.Create(ctx, pod); err != nil && ctx.Err() == nil {
			l.Errorf("creating a pod for %s: %v", l.machine, err)
			return
		}
	}
}

// describe returns the state of an object in the format of a recording, without times.
func describe(object client.Object, name string) string {
	switch o := object.(type) {
	case *corev1.Node:
		ready := o.Status.Conditions[0]
		taints := ""
		for i, t := range coreTaints(o) {
			if i > 0 {
				taints += ","
			}
			taints += t.Key[len("node.kubernetes.io/"):] + ":" + string(t.Effect)
		}
		return fmt.Sprintf("node boot=%s Ready=%s(%s,hb=-,tr=-) taints=[%s]", o.Status.NodeInfo.BootID, ready.Status, ready.Reason, taints)
	case *corev1.Pod:
		ready := slices.IndexFunc(o.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
		status := o.Status.ContainerStatuses[0]
		state := "running"
		if status.State.Terminated != nil {
			state = "terminated"
		}
		return fmt.Sprintf("%s phase=%s Ready=%s(tr=-) %s=- cid=%s rc=%d", name, o.Status.Phase, o.Status.Conditions[ready].Status,
			state, status.ContainerID[len("containerd://"):], status.RestartCount)
	}
	return ""
}
