// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
)

// forgedDenied counts the forged records that a policy denied.
const forgedDenied faultproxy.Fault = "forged record, denied"

// hostileWriters is the number of hostile writers.
const hostileWriters = 4

// hostileWriter is a controller with permission to write Nodes. It continuously writes
// its own taint and annotation, the order of all taints, sometimes a gate's taint, and
// records, which is denied.
type hostileWriter struct {
	*fleet
	name   string
	kube   kubernetes.Interface
	rng    *rand.Rand
	writes atomic.Int64
	// last is the value that it last wrote to its annotation, by the UID of the node.
	last map[string]string
}

// hostile lets hostile writers change taints and annotations of Nodes as fast as they
// can, under churn.
func hostile(ctx context.Context, s *site, d time.Duration) error {
	if _, err := s.startWithFleet(ctx); err != nil {
		return err
	}
	if err := s.allowHostileWriters(ctx); err != nil {
		return err
	}
	var all []*hostileWriter
	for i := range hostileWriters {
		name := fmt.Sprint("hostile-", i)
		kube, err := kubernetes.NewForConfig(s.cluster.User(name, "hostile-writers"))
		if err != nil {
			return fmt.Errorf("creating a client: %w", err)
		}
		all = append(all, &hostileWriter{fleet: s.fleet, name: name, kube: kube, rng: s.rng(name), last: make(map[string]string)})
	}
	err := s.during(ctx, d, func(ctx context.Context) error {
		var group sync.WaitGroup
		for _, w := range all {
			group.Go(func() {
				for ctx.Err() == nil {
					w.write(ctx, w.nodes[w.rng.IntN(len(w.nodes))].Name)
				}
			})
		}
		group.Wait()
		return nil
	})
	if err != nil {
		return err
	}
	for _, w := range all {
		s.report.Injected["write of a hostile writer"] += int(w.writes.Load())
		if err := w.check(ctx); err != nil {
			return err
		}
	}
	return nil
}

// allowHostileWriters grants the group of hostile writers permission to write Nodes.
func (s *site) allowHostileWriters(ctx context.Context) error {
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "hostile-writers"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "update", "patch"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "hostile-writers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "hostile-writers"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "hostile-writers"}},
	}
	if err := errors.Join(s.admin.Create(ctx, role), s.admin.Create(ctx, binding)); err != nil {
		return fmt.Errorf("allowing hostile writers to write: %w", err)
	}
	return nil
}

func (w *hostileWriter) write(ctx context.Context, name string) {
	switch w.rng.IntN(20) {
	case 0:
		w.forge(ctx, name)
	case 1, 2, 3, 4, 5, 6, 7, 8, 9:
		w.annotate(ctx, name)
	default:
		w.taint(ctx, name)
	}
}

// forge writes a record of an open gate, which must be denied.
func (w *hostileWriter) forge(ctx context.Context, name string) {
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:"{\"state\":\"Open\"}"}}}`, v1alpha1.RecordAnnotationPrefix+"agent")
	_, err := w.kube.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	if err == nil {
		w.report.failed(fmt.Errorf("%s wrote a record on node %s", w.name, name))
	}
	if apierrors.IsForbidden(err) {
		w.report.inject(forgedDenied)
	}
}

// annotate writes the writer's own annotation with a patch without resourceVersion.
func (w *hostileWriter) annotate(ctx context.Context, name string) {
	value := fmt.Sprintf("%016x", w.rng.Uint64())
	body, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{foreign + w.name: value}}})
	node, err := w.kube.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
	switch {
	case err == nil:
		w.writes.Add(1)
		w.last[string(node.UID)] = value
	case ctx.Err() != nil:
		node, err := w.kube.CoreV1().Nodes().Get(context.WithoutCancel(ctx), name, metav1.GetOptions{})
		if err == nil { // it may have been written
			delete(w.last, string(node.UID))
		}
	}
}

// taint updates the whole list of taints: it adds or removes its own taint and shuffles
// the others. One of fifty writes removes a gate's taint.
func (w *hostileWriter) taint(ctx context.Context, name string) {
	node, err := w.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return
	}
	own := corev1.Taint{Key: foreign + w.name, Effect: corev1.TaintEffectNoSchedule}
	removes := w.rng.IntN(50) == 0
	taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool {
		return t.Key == own.Key || removes && t.Key == ours+"agent"
	})
	if w.rng.IntN(2) == 0 {
		taints = append(taints, own)
	}
	w.rng.Shuffle(len(taints), func(i, j int) { taints[i], taints[j] = taints[j], taints[i] })
	node.Spec.Taints = taints
	if _, err := w.kube.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err == nil {
		w.writes.Add(1)
	}
}

// check verifies that the writer's last write is present on every Node that still exists.
func (w *hostileWriter) check(ctx context.Context) error {
	list, err := w.fleet.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{}) // a hostile writer may not list Nodes
	if err != nil {
		return err
	}
	for i := range list.Items {
		n := &list.Items[i]
		if want, wrote := w.last[string(n.UID)]; wrote && n.Annotations[foreign+w.name] != want {
			return fmt.Errorf("the write of %s to node %s is lost: its annotation is %q, want %q", w.name, n.Name, n.Annotations[foreign+w.name], want)
		}
	}
	return nil
}
