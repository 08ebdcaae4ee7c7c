// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/release"
)

// removeAnnouncements removes from all nodes the condition with which the node agent announces a
// shutdown. Only a running agent would remove it, and it means to any program that the node shuts
// down.
func (u *uninstaller) removeAnnouncements(ctx context.Context) error {
	nodes := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return u.core.CoreV1().Nodes().List(ctx, o)
	})
	err := nodes.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		if n, ok := o.(*corev1.Node); ok && announcedByAgent(n) {
			u.removeAnnouncement(ctx, n.Name)
		}
		return ctx.Err()
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("listing nodes: %w", err)
	}
	return nil
}

// removeAnnouncement removes the condition from a node, unless another writer has changed it
// meanwhile. If this fails, the rest is uninstalled nevertheless.
func (u *uninstaller) removeAnnouncement(ctx context.Context, name string) {
	const condition = corev1.NodeGracefulNodeShutdownInProgress
	nodes := u.core.CoreV1().Nodes()
	announced := false // when it was read last
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if announced = err == nil && announcedByAgent(n); !announced || u.DryRun == release.DryRunClient {
			return err
		}
		patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"status":{"conditions":[{"type":%q,"$patch":"delete"}]}}`, n.ResourceVersion, condition)
		_, err = nodes.Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: release.FieldManager, DryRun: u.DryRun.Server()}, "status")
		return err
	})
	switch {
	case apierrors.IsNotFound(err), err != nil && ctx.Err() != nil:
	case err != nil:
		u.incomplete = true
		u.report("node/%s: the condition %s could not be removed: %v", name, condition, err)
	case announced:
		u.report("node/%s: condition %s removed%s", name, condition, u.DryRun.Suffix())
	}
}

// announcedByAgent reports whether a Node has the agent's condition.
func announcedByAgent(n *corev1.Node) bool {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeGracefulNodeShutdownInProgress && strings.HasPrefix(c.Message, v1alpha1.ShutdownMessagePrefix) {
			return true
		}
	}
	return false
}
