// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/nodequeue"
)

// The Lease is renewed even if its holder cannot do its work, so no other replica would
// take over. Start then returns an error, which ends the process and releases the Lease.

// Workers are checked every watchdogInterval. A worker is stuck if stuckChecks checks in a
// row, which take two minutes, find it at the same node: everything that it does for a
// node ends within writeTimeout. Checks are counted, instead of time, so that a process
// that was paused is not considered stuck.
const (
	watchdogInterval = 10 * time.Second
	stuckChecks      = 12
)

// watchdog returns nil when the context ends, for any cause, and an error as soon as a worker is
// stuck, or writes no longer receive a response.
func (c *Controller) watchdog(ctx context.Context, workers []nodequeue.Worker) error {
	ticker := c.clock.NewTicker(watchdogInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		if err := c.checkResponses(ctx); err != nil {
			return err
		}
		for i := range workers {
			if unchanged, node := workers[i].Check(); unchanged >= stuckChecks {
				return fmt.Errorf("a worker has been stuck at node %s for %s", node, stuckChecks*watchdogInterval)
			}
		}
	}
}

// checkResponses returns an error if this replica should give up the Lease. It may try whether the API
// server answers a patch of a node. That is a dry run, and changes nothing.
func (c *Controller) checkResponses(ctx context.Context) error {
	if !c.options.GiveUpLease {
		return nil
	}
	err := c.responses.Check(c.nodeFeed.NodeNames, func(node string) error {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		return c.client.Patch(ctx, o, client.RawPatch(types.JSONPatchType, []byte("[]")), client.DryRunAll)
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
