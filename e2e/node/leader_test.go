// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/testcluster/await"
)

const (
	// failover is the time after which another replica writes if the leader has crashed.
	failover = 3 * time.Second
	// arrivalInterval is the interval at which pods are created while the leader reboots.
	arrivalInterval = 200 * time.Millisecond
)

// The leader runs on the machine that loses power. It is started again with the machine, and
// another replica may run elsewhere. The gate closes in the new boot, and opens when the
// daemon is ready in it. Pods are bound between the report of the new boot and the closing for
// no longer than the other replica needs to become the leader, if there is one.
func TestLeaderReboots(t *testing.T) {
	skipUnlessLong(t)
	for _, standby := range []bool{true, false} {
		t.Run(fmt.Sprintf("standby %v", standby), func(t *testing.T) {
			h := newHost(t)
			h.bootAndOpen(t)
			if standby {
				other, err := startReplica(t.Context(), h.cluster, "standby")
				must(t, err)
				must(t, other.AwaitReady(t.Context()))
				defer func() { must(t, other.Stop()) }()
			}
			h.setReady(t, false)
			must(t, h.PowerOff())
			shared.leader.Kill()
			pods := h.createPods(t, arrivalInterval)
			off := time.Now()
			must(t, h.PowerOn())
			h.awaitStart(t, "", off) // the leader's container starts at about the same time
			var err error
			shared.leader, err = startReplica(t.Context(), h.cluster, "first")
			must(t, err)
			h.await(t, true)
			pods.stop(t)
			h.awaitStart(t, "agent", off)
			h.awaitAgent(t, false)
			if opened := h.openedIn(h.BootID()); len(opened) > 0 {
				t.Errorf("the gate opened before the daemon was ready in this boot")
			}
			booted, closed := h.bootAndClosing(t)
			bound := pods.boundBetween(t, booted, closed)
			t.Logf("%d pods were bound after the new boot was reported and before the gate closed; its reason is %s; at least %d pods started before it opened",
				bound, h.reason(t), count(h.starts(t), "arrival", off))
			if most := int(failover / arrivalInterval); standby && bound > most {
				t.Errorf("these are more than the %d that are created in the %s that a standby may need to lead", most, failover)
			}
			h.setReady(t, true)
			h.await(t, false)
		})
	}
}

// All replicas of nodegate run on the machine that loses power, and start again after the kubelet.
// Pods are bound to the open node in the new boot until then. With bypassedPods: Hold, none of
// them starts before the gate has opened in that boot.
func TestLeaderRebootsWithHold(t *testing.T) {
	skipUnlessLong(t)
	h := newHoldingHost(t, "long")
	h.setReady(t, false)
	must(t, h.PowerOff())
	shared.leader.Kill()
	off := time.Now()
	must(t, h.PowerOn())
	h.awaitBoot(t)
	booted := h.newest()
	if isClosed(booted) {
		t.Error("the gate has closed without nodegate")
	}
	const exposed = 3
	pods := h.createPods(t, arrivalInterval)
	pods.awaitBound(t, booted, exposed)
	pods.stop(t)
	h.awaitStart(t, "agent", off)
	h.awaitAgent(t, false)
	h.awaitHeld(t)
	var err error
	shared.leader, err = startReplica(t.Context(), h.cluster, "first")
	must(t, err)
	h.await(t, true)
	if opened := h.openedIn(h.BootID()); len(opened) > 0 {
		t.Errorf("the gate opened before the daemon was ready in this boot")
	}
	for _, name := range []string{"arrival", "workload", "patient"} {
		if early := count(h.starts(t), name, off); early > 0 {
			t.Errorf("%d pods %s started before the gate opened", early, name)
		}
	}
	h.setReady(t, true)
	h.await(t, false)
	must(t, await.Until(t.Context(), "held pods", func(context.Context) error {
		if started := count(h.starts(t), "arrival", off); started < exposed {
			return fmt.Errorf("%d of them have started", started)
		}
		return nil
	}))
}

// arrivals are pods that are created, for the scheduler to bind, while a machine reboots.
type arrivals struct {
	kube   kubernetes.Interface
	cancel context.CancelFunc
	done   chan error

	mu sync.Mutex
	// bound contains the resource version of the binding of each pod.
	bound map[types.UID]int64
}

// createPods creates pods at an interval until the arrivals are stopped.
func (h *host) createPods(t *testing.T, interval time.Duration) *arrivals {
	t.Helper()
	kube, err := kubernetes.NewForConfig(h.cluster.Admin())
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	a := &arrivals{kube: kube, cancel: cancel, done: make(chan error, 1), bound: make(map[types.UID]int64)}
	t.Cleanup(func() {
		err := kube.CoreV1().Pods(namespace).DeleteCollection(context.WithoutCancel(t.Context()), *metav1.NewDeleteOptions(0), arrived)
		if err != nil {
			t.Error(err)
		}
	})
	w, err := kube.CoreV1().Pods(namespace).Watch(t.Context(), arrived)
	must(t, err)
	go a.observe(t, w)
	go func() { a.done <- a.create(ctx, t.Context(), interval) }()
	return a
}

// arrived selects the pods of createPods.
var arrived = metav1.ListOptions{LabelSelector: "app=arrival"}

// create creates pods until ctx ends. A request that has begun is not canceled.
func (a *arrivals) create(ctx, request context.Context, interval time.Duration) error {
	for await.Pause(ctx, interval) == nil {
		pod := podThatWrites("arrival", corev1.RestartPolicyAlways)
		pod.GenerateName, pod.Labels = "arrival-", map[string]string{"app": "arrival"}
		if _, err := a.kube.CoreV1().Pods(namespace).Create(request, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// observe records when pods are bound.
func (a *arrivals) observe(t *testing.T, w watch.Interface) {
	for event := range w.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok || pod.Spec.NodeName == "" {
			continue
		}
		a.mu.Lock()
		if _, known := a.bound[pod.UID]; !known {
			a.bound[pod.UID] = version(t, pod)
		}
		a.mu.Unlock()
	}
}

func (a *arrivals) stop(t *testing.T) {
	t.Helper()
	a.cancel()
	must(t, <-a.done)
}

// boundBetween returns how many pods were bound between two states of the Node.
func (a *arrivals) boundBetween(t *testing.T, from, until *corev1.Node) (n int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range a.bound {
		if at > version(t, from) && at < version(t, until) {
			n++
		}
	}
	return n
}

// awaitBound waits until a number of pods have been bound after a state of the Node.
func (a *arrivals) awaitBound(t *testing.T, from *corev1.Node, want int) {
	t.Helper()
	must(t, await.Until(t.Context(), "pods", func(context.Context) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		n := 0
		for _, at := range a.bound {
			if at > version(t, from) {
				n++
			}
		}
		if n < want {
			return fmt.Errorf("%d of %d are bound", n, want)
		}
		return nil
	}))
}

// bootAndClosing returns the first state of the Node in the current boot, and the first in
// which the gate is closed in it.
func (h *host) bootAndClosing(t *testing.T) (booted, closed *corev1.Node) {
	t.Helper()
	for _, s := range h.history() {
		if s.Status.NodeInfo.BootID != h.BootID() {
			continue
		}
		if booted == nil {
			booted = s
		}
		if isClosed(s) {
			return booted, s
		}
	}
	t.Fatalf("the Node has not reported its boot, or the gate has not closed in it")
	return nil, nil
}

func version(t *testing.T, object metav1.Object) int64 {
	v, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Errorf("resource version: %v", err)
	}
	return v
}
