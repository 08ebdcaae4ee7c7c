// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/bench/scene"
	"github.com/nodegate/nodegate/testcluster/await"
)

func (e *Env) gates() (dynamic.ResourceInterface, error) {
	client, err := dynamic.NewForConfig(e.Cluster.Admin())
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return client.Resource(v1alpha1.Resource), nil
}

// emptyStatus removes the gate's status.
func (e *Env) emptyStatus(ctx context.Context) error {
	gates, err := e.gates()
	if err != nil {
		return err
	}
	_, err = gates.Patch(ctx, scene.Daemon, types.MergePatchType, []byte(`{"status":null}`), metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("emptying the gate's status: %w", err)
	}
	return nil
}

// watchCounts watches the gate's status.
func (e *Env) watchCounts(ctx context.Context) (watch.Interface, error) {
	gates, err := e.gates()
	if err != nil {
		return nil, err
	}
	counts, err := gates.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", scene.Daemon).String()})
	if err != nil {
		return nil, fmt.Errorf("watching the gate: %w", err)
	}
	return counts, nil
}

// awaitCount returns the time at which the gate's status first counted exactly
// this number of nodes, all open. It fails when the count has not grown for
// await.Silence.
func awaitCount(ctx context.Context, counts watch.Interface, nodes int) (time.Time, error) {
	ctx, progress, stop := await.Watch(ctx, await.Silence)
	defer stop()
	last, most := "none", int64(-1)
	for {
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("waiting for the gate to count %d nodes: the last count was %s: %w", nodes, last, context.Cause(ctx))
		case event, more := <-counts.ResultChan():
			now := time.Now()
			gate, ok := event.Object.(*unstructured.Unstructured)
			if !more || !ok {
				return now, errors.New("waiting for the gate to count its nodes: the watch ended")
			}
			selected, _, _ := unstructured.NestedInt64(gate.Object, "status", "nodes", "selected")
			open, _, _ := unstructured.NestedInt64(gate.Object, "status", "nodes", "open")
			if selected == int64(nodes) && open == selected {
				return now, nil
			}
			last = fmt.Sprintf("%d of %d open", open, selected)
			if counted := selected + open; counted > most {
				most = counted
				progress()
			}
		}
	}
}
