// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"encoding/json"
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

// rivals is the number of hostile writers.
const rivals = 4

// rival is a controller with permission to write Nodes. It continuously writes its own
// taint and annotation, the order of all taints, sometimes a gate's taint, and records,
// which is denied.
type rival struct {
	*fleet
	name   string
	kube   kubernetes.Interface
	rng    *rand.Rand
	writes atomic.Int64
	// last is the value that it last wrote to its annotation, by the UID of the node.
	last map[string]string
}

// hostile lets rivals write taints and annotations of Nodes as fast as they can, under
// churn.
func hostile(ctx context.Context, s *site, d time.Duration) error {
	if _, err := s.start(ctx); err != nil {
		return err
	}
	if err := s.fleet.arrive(ctx); err != nil {
		return err
	}
	if err := s.allowRivals(ctx); err != nil {
		return err
	}
	var all []*rival
	for i := range rivals {
		name := fmt.Sprint("rival-", i)
		kube, err := kubernetes.NewForConfig(s.cluster.User(name, "rivals"))
		if err != nil {
			return fmt.Errorf("creating a client: %w", err)
		}
		all = append(all, &rival{fleet: s.fleet, name: name, kube: kube, rng: s.rng(name), last: make(map[string]string)})
	}
	err := s.during(ctx, d, func(ctx context.Context) error {
		var group sync.WaitGroup
		for _, r := range all {
			group.Go(func() {
				for ctx.Err() == nil {
					r.write(ctx, r.nodes[r.rng.IntN(len(r.nodes))].Name)
				}
			})
		}
		group.Wait()
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range all {
		s.report.Injected["write of a rival"] += int(r.writes.Load())
		if err := r.check(ctx); err != nil {
			return err
		}
	}
	return nil
}

// allowRivals grants the group of rivals permission to write Nodes.
func (s *site) allowRivals(ctx context.Context) error {
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "rivals"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "update", "patch"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "rivals"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "rivals"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "rivals"}},
	}
	if err := s.admin.Create(ctx, role); err != nil {
		return fmt.Errorf("allowing rivals to write: %w", err)
	}
	if err := s.admin.Create(ctx, binding); err != nil {
		return fmt.Errorf("allowing rivals to write: %w", err)
	}
	return nil
}

func (r *rival) write(ctx context.Context, name string) {
	switch r.rng.IntN(20) {
	case 0:
		r.forge(ctx, name)
	case 1, 2, 3, 4, 5, 6, 7, 8, 9:
		r.annotate(ctx, name)
	default:
		r.taint(ctx, name)
	}
}

// forge writes a record of an open gate, which must be denied.
func (r *rival) forge(ctx context.Context, name string) {
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:"{\"state\":\"Open\"}"}}}`, v1alpha1.RecordAnnotationPrefix+"agent")
	_, err := r.kube.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	if err == nil {
		r.report.failed(fmt.Errorf("%s wrote a record on node %s", r.name, name))
	}
	if apierrors.IsForbidden(err) {
		r.report.inject(faultproxy.Fault("forged record, denied"))
	}
}

// annotate writes the rival's own annotation with a patch without resourceVersion.
func (r *rival) annotate(ctx context.Context, name string) {
	value := fmt.Sprintf("%016x", r.rng.Uint64())
	body, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{foreign + r.name: value}}})
	node, err := r.kube.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
	switch {
	case err == nil:
		r.writes.Add(1)
		r.last[string(node.UID)] = value
	case ctx.Err() != nil:
		node, err := r.kube.CoreV1().Nodes().Get(context.WithoutCancel(ctx), name, metav1.GetOptions{})
		if err == nil { // it may have been written
			delete(r.last, string(node.UID))
		}
	}
}

// taint updates the whole list of taints: it adds or removes its own taint and shuffles
// the others. One of fifty writes removes a gate's taint.
func (r *rival) taint(ctx context.Context, name string) {
	node, err := r.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return
	}
	own := corev1.Taint{Key: foreign + r.name, Effect: corev1.TaintEffectNoSchedule}
	takesOff := r.rng.IntN(50) == 0
	taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool {
		return t.Key == own.Key || takesOff && t.Key == ours+"agent"
	})
	if r.rng.IntN(2) == 0 {
		taints = append(taints, own)
	}
	r.rng.Shuffle(len(taints), func(i, j int) { taints[i], taints[j] = taints[j], taints[i] })
	node.Spec.Taints = taints
	if _, err := r.kube.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err == nil {
		r.writes.Add(1)
	}
}

// check verifies that the rival's last write is present on every Node that still exists.
func (r *rival) check(ctx context.Context) error {
	list, err := r.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) { // rivals may not list Nodes
		list, err = r.fleet.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	}
	if err != nil {
		return err
	}
	for i := range list.Items {
		n := &list.Items[i]
		if want, wrote := r.last[string(n.UID)]; wrote && n.Annotations[foreign+r.name] != want {
			return fmt.Errorf("the write of %s to node %s is lost: its annotation is %q, want %q", r.name, n.Name, n.Annotations[foreign+r.name], want)
		}
	}
	return nil
}
