// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/controller"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await/awaittest"
)

// env is one test's view of the cluster. The test plays the administrator, the
// kubelets and the daemon set controller.
type env struct {
	*testing.T
	cluster *testcluster.Cluster
	admin   client.WithWatch
}

// laterClock is the real clock, set ahead, so that the controller considers nodes as older
// than a test can create them.
type laterClock struct {
	clock.RealClock
	ahead time.Duration
}

// Now implements clock.PassiveClock.
func (c laterClock) Now() time.Time { return c.RealClock.Now().Add(c.ahead) }

// Since implements clock.PassiveClock.
func (c laterClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// startController runs a controller under its own ServiceAccount until the
// test ends or the returned function is called. Its clock is ahead.
func (e *env) startController(ahead time.Duration) (stop func()) {
	e.Helper()
	return e.runController(func(p *controller.Process) { p.Options.Clock = laterClock{ahead: ahead} })
}

// runController is startController for one that is set up in its own way.
func (e *env) runController(change func(*controller.Process)) (stop func()) {
	e.Helper()
	config, err := e.cluster.ServiceAccount(e.Context(), installation.Namespace, installation.ServiceAccount)
	if err != nil {
		e.Fatalf("getting the controller's identity: %v", err)
	}
	config.UserAgent = "nodegate"
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	process := controller.Process{
		Config: config, Metrics: controller.MetricsPort{Address: "0"}, HealthAddress: "0", Registerer: prometheus.NewRegistry(),
		Options: controller.Options{Namespace: installation.Namespace, AllowedTaintKeys: installation.AllowedTaintKeys, AllowedStampAnnotations: installation.AllowedStampAnnotations, Log: e.logger()},
	}
	change(&process)
	go func() { done <- process.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			e.Errorf("the controller ended with: %v", err)
		}
	})
	e.Cleanup(stop)
	return stop
}

func (e *env) logger() logr.Logger { return testr.NewWithOptions(e.T, testr.Options{}) }

// must fails the test on an error.
func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// eventually waits until a check succeeds.
func (e *env) eventually(what string, check func() error) {
	e.Helper()
	awaittest.Until(e.T, what, func(context.Context) error { return check() })
}

// declare creates a gate and waits until it is in force.
func (e *env) declare(ng *v1alpha1.NodeGate) *v1alpha1.NodeGate {
	e.Helper()
	e.must(e.admin.Create(e.Context(), ng))
	e.inForce(ng.Name)
	return ng
}

// inForce waits until a gate is in force.
func (e *env) inForce(name string) {
	e.Helper()
	e.eventually("gate "+name+" is Ready", func() error { return e.condition(name, v1alpha1.ConditionReady, metav1.ConditionTrue, "") })
}

// edit changes an object that a controller writes meanwhile: a gate or, in a
// world with a DaemonSet controller, a DaemonSet.
func (e *env) edit(o client.Object, change func()) {
	e.Helper()
	e.must(retry.RetryOnConflict(persistently, func() error {
		if err := e.admin.Get(e.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change()
		return e.admin.Update(e.Context(), o)
	}))
}

// condition checks a gate's condition, and its reason unless that is empty.
func (e *env) condition(name, kind string, status metav1.ConditionStatus, reason string) error {
	var ng v1alpha1.NodeGate
	if err := e.admin.Get(e.Context(), client.ObjectKey{Name: name}, &ng); err != nil {
		return err
	}
	c := meta.FindStatusCondition(ng.Status.Conditions, kind)
	if c == nil || c.Status != status || reason != "" && c.Reason != reason {
		return fmt.Errorf("condition %s of gate %s is %s, want %s %s", kind, name, conditionText(c), status, reason)
	}
	return nil
}

// conditionText describes a condition without times, so that one that changes back
// and forth has the same texts again.
func conditionText(c *metav1.Condition) string {
	if c == nil {
		return "absent"
	}
	return fmt.Sprintf("%s (%s: %s)", c.Status, c.Reason, c.Message)
}

// newGate returns a gate on all nodes that opens by one signal.
func newGate(name, key string, signal v1alpha1.SignalSource) *v1alpha1.NodeGate {
	return &v1alpha1.NodeGate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.NodeGateSpec{
			Taint:    v1alpha1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule},
			OpenWhen: []v1alpha1.Signal{{Name: "signal", SignalSource: signal}},
		},
	}
}

func byLabel(key string) v1alpha1.SignalSource {
	return v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: key}}
}

func byDaemonSet(name string) v1alpha1.SignalSource {
	return v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: daemonNamespace, Name: name}}
}

// daemonSet creates a DaemonSet that tolerates all taints.
func (e *env) daemonSet(name string) *appsv1.DaemonSet {
	e.Helper()
	return e.daemonIn(daemonNamespace, name, nil)
}

func (e *env) deleteDaemonSets(ctx context.Context) error {
	return e.admin.DeleteAllOf(ctx, &appsv1.DaemonSet{}, client.InNamespace(daemonNamespace))
}

// closedAtBirth returns the gates that the API server closes on new nodes.
func (e *env) closedAtBirth() map[string]admission.Entry {
	e.Helper()
	var parameter corev1.PodTemplate
	err := e.admin.Get(e.Context(), client.ObjectKey{Namespace: installation.Namespace, Name: v1alpha1.BirthParameter}, &parameter)
	e.must(client.IgnoreNotFound(err))
	return admission.Entries(&parameter)
}

// deleteParameters does what the namespace's deletion would: the guard lets
// only the controller and the controller manager touch parameters.
func (e *env) deleteParameters(ctx context.Context) error {
	config := e.cluster.User("system:serviceaccount:kube-system:namespace-controller", "system:masters")
	api, err := client.New(config, client.Options{Scheme: e.admin.Scheme()})
	if err != nil {
		return err
	}
	return api.DeleteAllOf(ctx, &corev1.PodTemplate{}, client.InNamespace(installation.Namespace))
}

// agent creates the gate that most tests use, which opens when the DaemonSet of the same
// name is ready on a node.
func (e *env) agent() *appsv1.DaemonSet {
	e.Helper()
	ds := e.daemonSet("agent")
	e.declare(newGate("agent", keyA, byDaemonSet("agent")))
	return ds
}

// openNode returns a node on which the gate of the DaemonSet's name has opened,
// and its daemon's pod.
func (e *env) openNode(name string, ds *appsv1.DaemonSet) (*kubelet, *corev1.Pod) {
	e.Helper()
	k := e.kubelet(name)
	k.register()
	pod := k.daemonPod(ds)
	k.run(pod, true)
	k.becomes(ds.Name, isOpen, keyA)
	return k, pod
}

// kubelet is one node's identity and boot.
type kubelet struct {
	*env
	name string
	boot string
	api  client.Client
}

// kubelet returns a kubelet that has not registered its node yet.
func (e *env) kubelet(name string) *kubelet {
	e.Helper()
	api, err := client.New(e.cluster.Node(name), client.Options{Scheme: e.admin.Scheme()})
	e.must(err)
	return &kubelet{env: e, name: name, boot: string(uuid.NewUUID()), api: api}
}

// register creates the Node, as the kubelet does it, and returns it as the API
// server made it.
func (k *kubelet) register(change ...func(*corev1.Node)) *corev1.Node {
	k.Helper()
	node := k.newNode()
	for _, f := range change {
		f(node)
	}
	k.must(k.api.Create(k.Context(), node))
	return node
}

// newNode is the Node that the kubelet registers with.
func (k *kubelet) newNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: k.name, Labels: map[string]string{corev1.LabelOSStable: "linux"}},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: k.boot}, Conditions: []corev1.NodeCondition{ready(corev1.ConditionTrue, "")}},
	}
}

func ready(status corev1.ConditionStatus, message string) corev1.NodeCondition {
	now := metav1.Now()
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: status, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
	}
}

// report writes the node's status as the kubelet.
func (k *kubelet) report(status corev1.ConditionStatus, message string) {
	k.Helper()
	patch := fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":%q},"conditions":[{"type":"Ready","status":%q,"message":%q,"lastHeartbeatTime":%q,"lastTransitionTime":%q}]}}`,
		k.boot, status, message, time.Now().UTC().Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.name}}
	k.must(k.api.Status().Patch(k.Context(), node, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
}

// becomeUnreachable sets the node's Ready condition to Unknown, like the node lifecycle controller
// when leases expire.
func (k *kubelet) becomeUnreachable() {
	k.Helper()
	patch := `{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown"}]}}`
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.name}}
	k.must(k.admin.Status().Patch(k.Context(), node, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
}

// reboot gives the node a new boot ID, and reports it.
func (k *kubelet) reboot() {
	k.Helper()
	k.boot = string(uuid.NewUUID())
	k.report(corev1.ConditionTrue, "")
}

// daemonPod creates the DaemonSet's pod on the node, not ready.
func (k *kubelet) daemonPod(ds *appsv1.DaemonSet, change ...func(*corev1.Pod)) *corev1.Pod {
	k.Helper()
	pod := newDaemonPod(ds, k.name)
	for _, f := range change {
		f(pod)
	}
	k.must(k.admin.Create(k.Context(), pod))
	return pod
}

// newDaemonPod is a pod as the DaemonSet controller makes it for a node.
func newDaemonPod(ds *appsv1.DaemonSet, node string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ds.Namespace, Name: ds.Name + "-" + string(uuid.NewUUID())[:8], Labels: daemonLabels(ds),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Spec: *ds.Spec.Template.Spec.DeepCopy(),
	}
	pod.Spec.NodeName = node
	return pod
}

// daemonLabels are the labels that the DaemonSet controller gives to pods.
func daemonLabels(ds *appsv1.DaemonSet) map[string]string {
	labels := maps.Clone(ds.Spec.Template.Labels)
	labels[appsv1.ControllerRevisionHashLabelKey] = "5d9c7b6f9"
	labels[v1alpha1.DaemonPodLabel] = "1"
	return labels
}

// run gives the pod new containers, ready or not, and reports its status.
func (k *kubelet) run(pod *corev1.Pod, isReady bool) {
	k.Helper()
	k.setReady(pod, isReady, "containerd://"+string(uuid.NewUUID()))
}

// setReady reports the pod's status with this container.
func (k *kubelet) setReady(pod *corev1.Pod, isReady bool, containerID string) {
	k.Helper()
	pod.Status = daemonStatus(isReady, containerID)
	k.must(k.admin.Status().Update(k.Context(), pod))
}

// daemonStatus is the status of a daemon's pod with this container.
func daemonStatus(isReady bool, containerID string) corev1.PodStatus {
	status := corev1.ConditionFalse
	if isReady {
		status = corev1.ConditionTrue
	}
	return corev1.PodStatus{
		Phase:             corev1.PodRunning,
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "daemon", Image: "daemon", ContainerID: containerID, Ready: isReady}},
	}
}

// node reads the Node.
func (k *kubelet) node() *corev1.Node {
	k.Helper()
	var node corev1.Node
	k.must(k.admin.Get(k.Context(), client.ObjectKey{Name: k.name}, &node))
	return &node
}

// patch changes the Node as an administrator would, by a merge patch.
func (k *kubelet) patch(body string) {
	k.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.name}}
	k.must(k.admin.Patch(k.Context(), node, client.RawPatch(types.MergePatchType, []byte(body))))
}

// is verifies the state of the gate on the node: taint and record must agree.
func (k *kubelet) is(gateName, state, key string) error {
	node := k.node()
	tainted := hasTaint(node, key)
	raw, recorded := node.Annotations[v1alpha1.RecordAnnotationPrefix+gateName]
	if state == "" {
		if tainted || recorded {
			return fmt.Errorf("node %s has taints %v and record %q, want neither", k.name, keys(node), raw)
		}
		return nil
	}
	r, err := gate.ParseRecord(raw)
	if err != nil || r.State != state || tainted != (state == v1alpha1.StateClosed) {
		return fmt.Errorf("node %s has taints %v and record %q, want %s", k.name, keys(node), raw, state)
	}
	return nil
}

// becomes waits until the gate is in this state on the node.
func (k *kubelet) becomes(gateName, state, key string) {
	k.Helper()
	k.eventually(fmt.Sprintf("gate %s is %q on node %s", gateName, state, k.name), func() error { return k.is(gateName, state, key) })
}

// record returns the gate's record on the node.
func (k *kubelet) record(gateName string) gate.Record {
	k.Helper()
	r, err := gate.ParseRecord(k.node().Annotations[v1alpha1.RecordAnnotationPrefix+gateName])
	k.must(err)
	return r
}

func hasTaint(node *corev1.Node, key string) bool {
	for _, t := range node.Spec.Taints {
		if t.Key == key {
			return true
		}
	}
	return false
}

func keys(node *corev1.Node) string {
	var all []string
	for _, t := range node.Spec.Taints {
		all = append(all, t.ToString())
	}
	return strings.Join(all, ",")
}

var errNotYet = errors.New("not yet")
