// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/simnode"
)

const (
	// nodeReadyAfter is how long after its registration a node is Ready.
	nodeReadyAfter = 300 * time.Millisecond

	// heartbeatEvery is shorter than in reality: kubelets report every five
	// minutes and renew a Lease in between. Here, every heartbeat is a write of
	// the Node, to which a controller must not react.
	heartbeatEvery = 4 * time.Second

	// syncEvery is how often a kubelet compares its pods with what is due, which
	// needs no request.
	syncEvery = 20 * time.Millisecond

	// retryAfter is how long to wait after a write that failed.
	retryAfter = 500 * time.Millisecond

	// waveLabel contains the number of the node's wave.
	waveLabel = "demo.nodegate.dev/wave"

	// healAnnotation on a daemon's pod makes it ready, also on the stuck node.
	healAnnotation = "demo.nodegate.dev/heal"
)

// setUpTaint is the taint with which a kubelet registers if a cloud controller
// must initialize the node. No gate opens before it is removed.
var setUpTaint = corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}

// A kubelet is the simulated kubelet of a node, with the identity of a real one.
type kubelet struct {
	*simnode.Node
	plan   nodePlan
	client kubernetes.Interface
	cloud  kubernetes.Interface // of the cloud controller
	pods   func() []*corev1.Pod // bound to this node, as last observed

	registered, heartbeat time.Time // when it was registered, and when the next heartbeat is due
	// lastReport is the start time of the latest node report that was answered.
	lastReport atomic.Pointer[time.Time]
	// reported contains the pods with the statuses that were last reported.
	reported map[types.UID]*corev1.Pod
	onError  func(error)
}

func newKubelet(client, cloud kubernetes.Interface, plan nodePlan) *kubelet {
	return &kubelet{
		Node: simnode.New(client, plan.name, string(uuid.NewUUID())), plan: plan, client: client, cloud: cloud,
		reported: make(map[types.UID]*corev1.Pod),
	}
}

// run simulates the kubelet until ctx ends.
func (k *kubelet) run(ctx context.Context) {
	for wait := time.Duration(0); await.Pause(ctx, wait) == nil; {
		wait = syncEvery
		if err := k.sync(ctx); err != nil && ctx.Err() == nil {
			k.onError(fmt.Errorf("kubelet of %s: %w", k.Name, err))
			wait = retryAfter
		}
	}
}

// sync writes what is due.
func (k *kubelet) sync(ctx context.Context) error {
	now := time.Now()
	if k.registered.IsZero() {
		return k.register(ctx, now)
	}
	if !now.Before(k.heartbeat) {
		if err := k.Report(ctx, simnode.Conditions{corev1.NodeReady: corev1.ConditionTrue}); err != nil {
			return fmt.Errorf("reporting the node: %w", err)
		}
		k.nextHeartbeat(now)
	}
	ready := 0
	for _, pod := range k.pods() {
		if err := k.syncPod(ctx, pod, now); err != nil {
			return fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		if last := k.reported[pod.UID]; last != nil && isReady(last) && daemonOf(last) != "" {
			ready++
		}
	}
	if k.plan.cloud && ready == 2 {
		return k.setUp(ctx)
	}
	return nil
}

func (k *kubelet) register(ctx context.Context, now time.Time) error {
	_, err := k.Register(ctx, simnode.Conditions{corev1.NodeReady: corev1.ConditionFalse}, func(node *corev1.Node) {
		node.Labels[waveLabel] = fmt.Sprint(k.plan.wave + 1)
		if k.plan.cloud {
			node.Spec.Taints = []corev1.Taint{setUpTaint}
		}
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("registering: %w", err)
	}
	k.registered, k.heartbeat = now, now.Add(nodeReadyAfter)
	return nil
}

// nextHeartbeat distributes the heartbeats of different nodes over time.
func (k *kubelet) nextHeartbeat(now time.Time) {
	k.lastReport.Store(&now)
	hash := fnv.New32a()
	hash.Write([]byte(k.Name))
	k.heartbeat = k.registered.Add(time.Duration(hash.Sum32()) % heartbeatEvery)
	for !now.Before(k.heartbeat) {
		k.heartbeat = k.heartbeat.Add(heartbeatEvery)
	}
}

// syncPod runs the pod immediately and makes it ready at its planned time. It removes a
// deleted pod immediately.
func (k *kubelet) syncPod(ctx context.Context, pod *corev1.Pod, now time.Time) error {
	last := k.reported[pod.UID]
	var err error
	switch ready := k.isReady(pod, now); {
	case pod.DeletionTimestamp != nil:
		delete(k.reported, pod.UID)
		options := metav1.NewDeleteOptions(0)
		options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
		err = k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *options)
	case last == nil || ready && !isReady(last):
		if last == nil {
			last = pod.DeepCopy()
		}
		if err = k.ReportPod(ctx, last, string(pod.UID), ready); err == nil {
			k.reported[pod.UID] = last
		}
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the pod has been deleted, and the watch will report the next one
	}
	return err
}

// isReady reports whether the pod is to be ready at a time.
func (k *kubelet) isReady(pod *corev1.Pod, now time.Time) bool {
	delay := k.plan.cni
	switch daemon := daemonOf(pod); {
	case daemon == "" || pod.Annotations[healAnnotation] != "":
		return true
	case daemon == "demo-cni" && k.plan.stuck:
		return false
	case daemon == "demo-init":
		delay = k.plan.init
	}
	// Counted from the registration, so that two daemons with the same delay are
	// ready at the same moment.
	return !now.Before(k.registered.Add(delay))
}

// daemonOf returns the name of the pod's DaemonSet, or "".
func daemonOf(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		return owner.Name
	}
	return ""
}

// setUp removes the set-up taint, as a cloud controller does some time after it has set
// up a node.
func (k *kubelet) setUp(ctx context.Context) error {
	if err := await.Pause(ctx, retryAfter); err != nil {
		return err
	}
	node, err := k.cloud.CoreV1().Nodes().Get(ctx, k.Name, metav1.GetOptions{})
	if err == nil {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&setUpTaint) })
		_, err = k.cloud.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("cloud controller: %w", err)
	}
	k.plan.cloud = false
	return nil
}
