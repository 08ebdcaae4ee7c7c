// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// workers is how many PATCHes the limit has under way, as many as nodegate.
const workers = 16

// The whole bodies of the limit's patches: it knows that nothing but the gate's
// taint is ever on a node of the benchmark.
var (
	addTaint    = fmt.Appendf(nil, `[{"op":"add","path":"/spec/taints","value":[{"key":%q,"effect":%q}]}]`, taint.Key, taint.Effect)
	removeTaint = fmt.Appendf(nil, `[{"op":"test","path":"/spec/taints/0/key","value":%q},{"op":"remove","path":"/spec/taints/0"}]`, taint.Key)
)

// A change is what the limit has to write.
type change struct {
	node  string
	ready bool
}

// runLimit watches the daemon's pods and patches the node of each that changes,
// until ctx ends. It decides nothing, remembers nothing but who was ready, and
// checks nothing: less cannot be done.
func runLimit(ctx context.Context, kubeconfig string) error {
	client, err := newClient(kubeconfig)
	if err != nil {
		return err
	}
	pods := client.CoreV1().Pods(namespace)
	watching, err := pods.Watch(ctx, metav1.ListOptions{LabelSelector: "app=" + daemon})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	defer watching.Stop()
	// nodegate has written before it is measured, and so does the limit.
	if err := warmUp(ctx, client); err != nil {
		return err
	}
	changes := make(chan change, 1024)
	var writers sync.WaitGroup
	for range workers {
		writers.Go(func() { write(ctx, client, changes) })
	}
	defer writers.Wait()
	defer close(changes)
	if err := sayReady(os.Stdout); err != nil {
		return err
	}
	return follow(ctx, watching.ResultChan(), changes)
}

// follow passes on which pods become ready, or cease to be.
func follow(ctx context.Context, pods <-chan watch.Event, changes chan<- change) error {
	was := map[string]bool{}
	for event := range pods {
		pod, ok := event.Object.(*corev1.Pod)
		switch {
		case ctx.Err() != nil:
			return nil
		case !ok:
			return fmt.Errorf("watching pods: %v", event.Object)
		}
		node, now := pod.Spec.NodeName, isReady(pod)
		if before, known := was[node]; known && before != now {
			changes <- change{node, now}
		}
		was[node] = now
	}
	if ctx.Err() != nil {
		return nil
	}
	return errors.New("watching pods: the watch ended")
}

func warmUp(ctx context.Context, client kubernetes.Interface) error {
	options := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	_, err := client.CoreV1().Nodes().Patch(ctx, nodeName(0), types.JSONPatchType, []byte("[]"), options)
	if err != nil {
		return fmt.Errorf("warming up: %w", err)
	}
	return nil
}

func write(ctx context.Context, client kubernetes.Interface, changes <-chan change) {
	for c := range changes {
		body := addTaint
		if c.ready {
			body = removeTaint
		}
		_, err := client.CoreV1().Nodes().Patch(ctx, c.node, types.JSONPatchType, body, metav1.PatchOptions{})
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "limit: patching node %s: %v\n", c.node, err)
		}
	}
}

func isReady(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
