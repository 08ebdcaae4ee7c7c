// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
)

const (
	// nodeReadyAfter is how long after its registration a node is Ready.
	nodeReadyAfter = 300 * time.Millisecond

	// heartbeatEvery is shorter than in reality: kubelets report every five
	// minutes and renew a Lease in between. Here, every heartbeat is a write of
	// the Node, to which a controller must not react.
	heartbeatEvery = 4 * time.Second

	// retryAfter is how long to wait after a write that failed.
	retryAfter = 500 * time.Millisecond
)

// A kubelet is a simulated kubelet. It has the identity of a real one and makes
// the same writes, but runs no containers.
type kubelet struct {
	plan   nodePlan
	client kubernetes.Interface // as system:node:<name>
	pods   func() []*corev1.Pod // bound to this node, as last seen
	wake   chan struct{}        // they changed

	registered time.Time
	ready      bool // the node was reported Ready
	// lastReport is the start time of the latest node report that was answered.
	lastReport atomic.Pointer[time.Time]
	heartbeat  time.Time
	reported   map[types.UID]*report
	// daemonsReady is called once, when both daemons are ready.
	daemonsReady func()
	onError      func(error)
}

// A report is the state of a pod that was last reported.
type report struct {
	started time.Time
	ready   bool
}

// run simulates the kubelet until ctx ends.
func (k *kubelet) run(ctx context.Context) {
	for !k.register(ctx) {
		if !pause(ctx, retryAfter) {
			return
		}
	}
	// Distribute the heartbeats of different nodes over time.
	hash := fnv.New32a()
	hash.Write([]byte(k.plan.name))
	k.heartbeat = k.registered.Add(time.Duration(hash.Sum32()) % heartbeatEvery)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-timer.C:
		}
		timer.Reset(time.Until(k.sync(ctx)))
	}
}

// pause waits, and reports whether to continue.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// failed reports whether err is not nil, and records it.
func (k *kubelet) failed(ctx context.Context, what string, err error) bool {
	if err != nil && ctx.Err() == nil {
		k.onError(fmt.Errorf("kubelet of %s: %s: %w", k.plan.name, what, err))
	}
	return err != nil
}

func (k *kubelet) register(ctx context.Context) bool {
	now := time.Now()
	node := newNode(&k.plan, string(uuid.NewUUID()), now)
	_, err := k.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if k.failed(ctx, "registering", err) && !apierrors.IsAlreadyExists(err) {
		return false
	}
	k.registered = now
	return true
}

// sync writes what is due and returns when something will be due next.
func (k *kubelet) sync(ctx context.Context) time.Time {
	next := k.syncNode(ctx)
	for _, pod := range k.pods() {
		if due := k.syncPod(ctx, pod); due.Before(next) {
			next = due
		}
	}
	if k.daemonsReady != nil && k.readyDaemons() == 2 {
		k.daemonsReady()
		k.daemonsReady = nil
	}
	return next
}

// syncNode writes the node's status when it becomes Ready, and at heartbeats.
func (k *kubelet) syncNode(ctx context.Context) time.Time {
	now := time.Now()
	readyAt := k.registered.Add(nodeReadyAfter)
	if now.Before(readyAt) {
		return readyAt
	}
	if k.ready && now.Before(k.heartbeat) {
		return k.heartbeat
	}
	status := map[string]any{"conditions": nodeConditions(true, readyAt, now)}
	if k.failed(ctx, "reporting the node", k.patchStatus(ctx, status)) {
		return now.Add(retryAfter)
	}
	k.ready = true
	k.lastReport.Store(&now)
	for !now.Before(k.heartbeat) {
		k.heartbeat = k.heartbeat.Add(heartbeatEvery)
	}
	return k.heartbeat
}

func (k *kubelet) patchStatus(ctx context.Context, status any) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("marshalling status: %w", err)
	}
	_, err = k.client.CoreV1().Nodes().PatchStatus(ctx, k.plan.name, patch)
	return err
}

// syncPod runs the pod immediately and makes it ready at its planned time. It
// removes a deleted pod immediately.
func (k *kubelet) syncPod(ctx context.Context, pod *corev1.Pod) time.Time {
	now := time.Now()
	never := now.Add(time.Hour)
	if pod.DeletionTimestamp != nil {
		if k.failed(ctx, "removing a pod", k.remove(ctx, pod)) {
			return now.Add(retryAfter)
		}
		delete(k.reported, pod.UID)
		return never
	}
	last := k.reported[pod.UID]
	if last != nil && last.ready {
		return never
	}
	started := now
	if last != nil {
		started = last.started
	}
	readyAt, ever := k.readyAt(pod, started)
	ready := ever && !now.Before(readyAt)
	if last == nil || ready {
		if k.failed(ctx, "reporting pod "+pod.Name, k.reportPod(ctx, pod, started, ready)) {
			return now.Add(retryAfter)
		}
		k.reported[pod.UID] = &report{started: started, ready: ready}
	}
	if ready || !ever {
		return never
	}
	return readyAt
}

// readyAt returns when a pod with this start time becomes ready, and whether it
// ever does.
func (k *kubelet) readyAt(pod *corev1.Pod, started time.Time) (time.Time, bool) {
	delay := k.plan.cni
	switch owner := metav1.GetControllerOf(pod); {
	case owner == nil || owner.Kind != "DaemonSet":
		return started, true
	case pod.Annotations[healAnnotation] != "":
		return started, true
	case owner.Name == "demo-cni" && k.plan.stuck:
		return time.Time{}, false
	case owner.Name == "demo-init":
		delay = k.plan.init
	}
	// Counted from the registration, so that two daemons with the same delay
	// are ready at the same moment.
	at := k.registered.Add(delay)
	if at.Before(started) {
		at = started
	}
	return at, true
}

func (k *kubelet) reportPod(ctx context.Context, pod *corev1.Pod, started time.Time, ready bool) error {
	// Specify the UID, as a kubelet does, because the name may now belong to
	// another pod.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   podStatus(pod, started, time.Now(), ready),
	})
	if err != nil {
		return fmt.Errorf("marshalling status: %w", err)
	}
	_, err = k.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, and the next one will be seen
	}
	return err
}

func (k *kubelet) remove(ctx context.Context, pod *corev1.Pod) error {
	options := metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *options)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// readyDaemons counts the daemons that were reported ready.
func (k *kubelet) readyDaemons() int {
	count := 0
	for _, pod := range k.pods() {
		owner := metav1.GetControllerOf(pod)
		if last := k.reported[pod.UID]; last != nil && last.ready && owner != nil && owner.Kind == "DaemonSet" {
			count++
		}
	}
	return count
}
