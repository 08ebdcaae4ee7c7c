// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

// GetGate reads a NodeGate.
func GetGate(ctx context.Context, a *Applier, name string) (*v1alpha1.NodeGate, error) {
	object, err := a.client.Resource(v1alpha1.Resource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading gate %s: %w", name, err)
	}
	var ng v1alpha1.NodeGate
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &ng); err != nil {
		return nil, fmt.Errorf("reading gate %s: %w", name, err)
	}
	return &ng, nil
}

// AwaitGate waits until a gate's condition Ready is True, which includes that new
// nodes are closed at birth.
func AwaitGate(ctx context.Context, a *Applier, name string) error {
	return await.Until(ctx, "gate "+name, func(ctx context.Context) error {
		ng, err := GetGate(ctx, a, name)
		if err != nil {
			return err
		}
		return gateReady(ng)
	})
}

func gateReady(ng *v1alpha1.NodeGate) error {
	c := meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case c == nil:
		return errors.New("it has no Ready condition: nodegate has not observed it")
	case c.ObservedGeneration != 0 && c.ObservedGeneration != ng.Generation:
		return errors.New("nodegate has not observed its latest generation")
	case c.Status != metav1.ConditionTrue:
		return fmt.Errorf("%s: %s", c.Reason, c.Message)
	}
	return nil
}

// AwaitBirthClosed creates a Node in a dry run, as a kubelet would create it,
// until the result has these taints. Only the API server's response proves that
// nodes are closed at birth.
func AwaitBirthClosed(ctx context.Context, c *testcluster.Cluster, taints ...corev1.Taint) error {
	const name = "testbed-dry-run"
	kubelet, err := kubernetes.NewForConfig(c.Node(name))
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	return await.Until(ctx, "new nodes to be closed", func(ctx context.Context) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		node, err := kubelet.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return fmt.Errorf("creating a node in a dry run: %w", err)
		}
		for _, taint := range taints {
			if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
				return fmt.Errorf("the API server created a node, in a dry run, without the taint %s", taint.ToString())
			}
		}
		return nil
	})
}
