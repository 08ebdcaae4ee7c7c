// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/bench/scene"
)

// reports is the maximum number of concurrent status reports.
const reports = 32

// Kubelets reports the status of each of these nodes once in every interval,
// through the API server and with the patch that a kubelet sends, until ctx ends.
// It returns the number of reports.
func (d *Driver) Kubelets(ctx context.Context, nodes []string, every time.Duration) (Speed, error) {
	ticker := time.NewTicker(every / time.Duration(len(nodes)))
	defer ticker.Stop()
	var sending errgroup.Group
	sending.SetLimit(reports)
	whole := context.WithoutCancel(ctx) // what has begun is brought to its end
	start := time.Now()
	for sent := 0; ; sent++ {
		select {
		case <-ctx.Done():
			return Speed{sent, time.Since(start)}, sending.Wait()
		case now := <-ticker.C:
			sending.Go(func() error { return d.heartbeat(whole, nodes[sent%len(nodes)], now) })
		}
	}
}

// heartbeat sends one report.
func (d *Driver) heartbeat(ctx context.Context, node string, now time.Time) error {
	body, err := heartbeatPatch(scene.Node(node, now).Status.Conditions)
	if err != nil {
		return err
	}
	_, err = d.client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("reporting node %s: %w", node, err)
	}
	return nil
}

// heartbeatPatch returns a kubelet's patch (nodeutil.PatchNodeStatus) in which
// only the heartbeats change.
func heartbeatPatch(conditions []corev1.NodeCondition) ([]byte, error) {
	type element struct {
		Heartbeat *metav1.Time             `json:"lastHeartbeatTime,omitempty"`
		Type      corev1.NodeConditionType `json:"type"`
	}
	var order, beats []element
	for i := range conditions {
		c := &conditions[i]
		order, beats = append(order, element{Type: c.Type}), append(beats, element{&c.LastHeartbeatTime, c.Type})
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"$setElementOrder/conditions": order, "conditions": beats}})
	if err != nil {
		return nil, fmt.Errorf("encoding a heartbeat: %w", err)
	}
	return body, nil
}
