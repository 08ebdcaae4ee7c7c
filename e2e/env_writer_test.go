// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writer simulates a program that also writes a gate's taint, under its own identity. It
// reconciles a node whenever the node, one of its pods or its CSINode changes. It writes as
// the real programs do: one JSON Patch tests all taints and replaces them, and is retried if
// it fails.
type writer struct {
	// name is the name of its ServiceAccount, and its field manager.
	name string
	// key is the key of the taint that it writes.
	key string
	// silenced is whether it is configured to leave the taint alone.
	silenced bool
	// decide returns what the writer does with the taint of a node.
	decide func(*nodeView) taintAction

	api     client.WithWatch
	changed chan string
	writes  atomic.Int32
}

// taintAction is what a writer does with its taint.
type taintAction int

const (
	leaveTaint taintAction = iota
	removeTaint
	addTaint
)

// nodeView is what a writer reads to reconcile a node.
type nodeView struct {
	node    corev1.Node
	pods    []corev1.Pod
	csiNode *storagev1.CSINode
}

// pod returns the node's pod of a daemon, or nil.
func (s *nodeView) pod(app string) *corev1.Pod {
	for i := range s.pods {
		if s.pods[i].Labels["app"] == app {
			return &s.pods[i]
		}
	}
	return nil
}

// running returns the ID of a daemon's container that started in the node's present boot, or "".
func (s *nodeView) running(app string) string {
	id := container(s.pod(app))
	if !strings.HasPrefix(id, containersOf(s.node.Status.NodeInfo.BootID)) {
		return ""
	}
	return id
}

// driver returns the driver in the CSINode, or nil.
func (s *nodeView) driver(name string) *storagev1.CSINodeDriver {
	if s.csiNode == nil {
		return nil
	}
	for i := range s.csiNode.Spec.Drivers {
		if d := &s.csiNode.Spec.Drivers[i]; d.Name == name {
			return d
		}
	}
	return nil
}

// start runs the writer until the test ends.
func (e *env) start(w *writer) {
	e.Helper()
	api, err := client.NewWithWatch(e.cluster.User("system:serviceaccount:kube-system:"+w.name, "system:masters"), client.Options{Scheme: e.admin.Scheme()})
	e.must(err)
	w.api, w.changed = api, make(chan string, 1024)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &corev1.PodList{}, &storagev1.CSINodeList{}} {
		source, err := api.Watch(ctx, list)
		e.must(err)
		running.Go(func() {
			if w.enqueue(ctx, source.ResultChan()); ctx.Err() == nil {
				e.Errorf("%s: a watch ended", w.name)
			}
		})
		e.Cleanup(source.Stop)
	}
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case name := <-w.changed:
				if err := w.reconcile(ctx, name); err != nil && ctx.Err() == nil {
					e.Errorf("%s: reconciling node %s: %v", w.name, name, err)
				}
			}
		}
	})
	e.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// enqueue enqueues the nodes of changed objects until the watch ends.
func (w *writer) enqueue(ctx context.Context, events <-chan watch.Event) {
	for event := range events {
		object, ok := event.Object.(client.Object)
		if !ok {
			return
		}
		select {
		case w.changed <- nodeOf(object):
		case <-ctx.Done():
		}
	}
}

// nodeOf returns the name of the node that an object belongs to.
func nodeOf(object client.Object) string {
	if pod, ok := object.(*corev1.Pod); ok {
		return pod.Spec.NodeName
	}
	return object.GetName()
}

// reconcile adds or removes the writer's taint as it decides.
func (w *writer) reconcile(ctx context.Context, name string) error {
	if name == "" || w.silenced {
		return nil
	}
	for {
		var s nodeView
		if err := w.read(ctx, name, &s); err != nil {
			return client.IgnoreNotFound(err)
		}
		taints := without(s.node.Spec.Taints, w.key)
		has := len(taints) < len(s.node.Spec.Taints)
		switch action := w.decide(&s); {
		case action == removeTaint && has:
		case action == addTaint && !has:
			taints = append(taints, corev1.Taint{Key: w.key, Effect: corev1.TaintEffectNoSchedule})
		default:
			return nil
		}
		patch, err := json.Marshal([]map[string]any{
			{"op": "test", "path": "/spec/taints", "value": s.node.Spec.Taints},
			{"op": "replace", "path": "/spec/taints", "value": taints},
		})
		if err != nil {
			return err
		}
		err = w.api.Patch(ctx, &s.node, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(w.name))
		if err == nil {
			w.writes.Add(1)
			return nil
		}
		if !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
			return client.IgnoreNotFound(err)
		}
	}
}

func (w *writer) read(ctx context.Context, name string, s *nodeView) error {
	if err := w.api.Get(ctx, client.ObjectKey{Name: name}, &s.node); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := w.api.List(ctx, &pods, client.MatchingFields{"spec.nodeName": name}); err != nil {
		return err
	}
	s.pods = pods.Items
	var csiNode storagev1.CSINode
	switch err := w.api.Get(ctx, client.ObjectKey{Name: name}, &csiNode); {
	case err == nil:
		s.csiNode = &csiNode
	case !apierrors.IsNotFound(err):
		return err
	}
	return nil
}
