// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// A writer is a stand-in of a program that writes a gate's taint too, under its
// own identity. It looks at a node whenever the node, one of its pods or its
// CSINode changes, and writes as the real ones do: one JSON Patch that tests
// all taints and replaces them, and again if that fails.
type writer struct {
	// name is who it is to the API server, and in managedFields.
	name string
	key  string
	// silenced writers have been told to leave taints alone.
	silenced bool
	// decide says what the writer thinks of a node: it removes the key, sets it, or
	// does nothing.
	decide func(*nodeView) taintAction

	api     client.WithWatch
	changed chan string
	writes  atomic.Int32
}

// taintAction is what a writer wants with its key.
type taintAction int

const (
	leaveTaint taintAction = iota
	removeTaint
	addTaint
)

// nodeView is a writer's view of one node.
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

// container returns the ID of the pod's container, or nothing.
func container(pod *corev1.Pod) string {
	if pod == nil || len(pod.Status.ContainerStatuses) == 0 {
		return ""
	}
	return pod.Status.ContainerStatuses[0].ContainerID
}

// isReady reports whether the pod's status is Ready, in this boot or an earlier one.
func isReady(pod *corev1.Pod) bool {
	return pod != nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// driver returns the driver as the CSINode has it, or nil.
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

// start has the writer work until the test ends.
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
			for event := range source.ResultChan() {
				object, ok := event.Object.(client.Object)
				if !ok {
					return // the watch has ended
				}
				select {
				case w.changed <- nodeOf(object):
				case <-ctx.Done():
				}
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
					e.Errorf("%s looks at node %s: %v", w.name, name, err)
				}
			}
		}
	})
	e.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// nodeOf is the name of the node that an object is about.
func nodeOf(object client.Object) string {
	if pod, ok := object.(*corev1.Pod); ok {
		return pod.Spec.NodeName
	}
	return object.GetName()
}

// reconcile brings the node's taints in line with what the writer wants.
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
		switch want := w.decide(&s); {
		case want == removeTaint && has:
		case want == addTaint && !has:
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

// contendedWith verifies that the gate reports that its taint is contended, and by which
// writer.
func (e *env) contendedWith(gateName, writer string) error {
	var ng v1alpha1.NodeGate
	if err := e.admin.Get(e.Context(), client.ObjectKey{Name: gateName}, &ng); err != nil {
		return err
	}
	return namesWriter(meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionContended), writer)
}
