// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/testcluster/await"
)

// awaitAgent waits until the kubelet has reported a running container of the daemon, and
// that the pod is ready, or not.
func (h *host) awaitAgent(t *testing.T, ready bool) {
	t.Helper()
	must(t, await.Until(t.Context(), "pod of the daemon", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := h.client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{"app": "agent"}); err != nil {
			return err
		}
		for i := range pods.Items {
			if pods.Items[i].Spec.NodeName == h.name {
				return checkAgent(&pods.Items[i], ready)
			}
		}
		return errors.New("it does not exist")
	}))
}

func checkAgent(p *corev1.Pod, ready bool) error {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running != nil && c.Ready == ready {
			return nil
		}
	}
	return fmt.Errorf("want ready %v: %+v", ready, p.Status.ContainerStatuses)
}
