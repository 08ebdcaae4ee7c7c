// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/observer"
	"github.com/nodegate/nodegate/bench/scene"
)

// openFleet creates a fleet of this size in which nodegate has opened every node
// and written its record. nodegate is not running before and afterwards.
func (e *Env) openFleet(ctx context.Context, nodes int) (err error) {
	if err := e.prepare(ctx, nodes, nil); err != nil {
		return err
	}
	all := len(e.Fleet.Nodes())
	opened, err := e.Driver.CountNodes(ctx, openedByNodegate)
	if err != nil || opened == all {
		return err
	}
	e.Say("  opening %d nodes", all)
	if err := e.Reset(ctx, nil, all); err != nil {
		return err
	}
	if _, err := e.Fleet.Report(ctx, all, true); err != nil {
		return err
	}
	nodegate, err := e.StartNodegate(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nodegate.Stop()) }()
	if err := e.Observer.Await(ctx, observer.Open, all); err != nil {
		return fmt.Errorf("opening the fleet: %w", err)
	}
	return nil
}

// openedByNodegate reports whether a node has no taint and the corresponding
// record. A node that the limit opened still has the record of its birth.
func openedByNodegate(n *corev1.Node) bool {
	record := n.Annotations[v1alpha1.RecordAnnotationPrefix+scene.Daemon]
	return !scene.Tainted(n) && strings.Contains(record, `"state":"`+v1alpha1.StateOpen+`"`)
}

// heartOfOthers returns a heart for the fleet's nodes after the first ones.
func (e *Env) heartOfOthers(ctx context.Context, first int) (*driver.Heart, error) {
	mine := make(map[string]bool, first)
	for i := range first {
		mine[scene.NodeName(i)] = true
	}
	return e.Driver.NewHeart(ctx, func(n *corev1.Node) bool { return !mine[n.Name] })
}
