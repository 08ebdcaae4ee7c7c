// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/simnode"
)

const (
	namespace = "torture"
	// daemon is the name of the DaemonSet for which a gate waits.
	daemon = "agent"
	// zones is the number of zones of the fleet. Each zone has its own budgets.
	zones = 3
)

// fleet simulates the nodes with their kubelets, the DaemonSet controller, and the users
// that edit gates.
type fleet struct {
	*site
	daemonSet *appsv1.DaemonSet
	nodes     []*node
	// steps counts the steps of churn, and failures those that failed because the API
	// server did not answer or another writer was faster.
	steps, failures atomic.Int64
}

func newFleet(s *site) (*fleet, error) {
	f := &fleet{site: s}
	for i := range s.Nodes {
		name := fmt.Sprintf("n%04d", i)
		// As administrators, kubelets would show nothing: the guards let those write everything.
		kubelet, err := kubernetes.NewForConfig(s.cluster.Node(name))
		if err != nil {
			return nil, fmt.Errorf("creating a client: %w", err)
		}
		f.nodes = append(f.nodes, &node{
			fleet: f, Node: simnode.New(kubelet, name, ""),
			zone: fmt.Sprint("z", i%zones), home: []string{"a", "b"}[i%2], rng: s.rng(s.phase.id + name),
		})
	}
	return f, nil
}

// declare creates the namespace and the DaemonSet of the fleet, and the gates.
func (f *fleet) declare(ctx context.Context) error {
	labels := map[string]string{"app": daemon}
	f.daemonSet = &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: daemon},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers:  []corev1.Container{{Name: daemon, Image: daemon}},
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				},
			},
		},
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}, f.daemonSet,
	} {
		if err := f.admin.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating %s: %w", object.GetName(), err)
		}
	}
	for _, n := range f.nodes {
		n.nextPod()
	}
	for _, ng := range gates() {
		if err := f.admin.Create(ctx, ng); err != nil {
			return fmt.Errorf("creating gate %s: %w", ng.Name, err)
		}
	}
	return nil
}

// arrive waits until the gates are in force, begins the part of the run that is judged,
// and creates the nodes.
func (f *fleet) arrive(ctx context.Context) error {
	for _, ng := range gates() {
		if err := testbed.AwaitGate(ctx, f.applier, ng.Name); err != nil {
			return err
		}
	}
	// The API server applies a policy some time after storing it.
	if err := await.Pause(ctx, 2100*time.Millisecond); err != nil {
		return err
	}
	if err := f.begin(ctx); err != nil {
		return err
	}
	return f.converge(ctx)
}

// each calls do for every node, several at a time.
func (f *fleet) each(do func(*node) error) error {
	var group sync.WaitGroup
	errs := make([]error, len(f.nodes))
	for w := range writers {
		group.Go(func() {
			for i := w; i < len(f.nodes); i += writers {
				errs[i] = do(f.nodes[i])
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// writers is the number of nodes that are written at a time.
const writers = 4

// churn changes nodes and gates until the context ends. The order of the changes of each
// node, and of the gates, depends only on the seed.
func (f *fleet) churn(ctx context.Context) {
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := w; ctx.Err() == nil; i += writers {
				if i >= len(f.nodes) {
					i = w // each node has one writer
				}
				n := f.nodes[i]
				if !time.Now().Before(n.off) {
					f.done(n.step(ctx))
				}
				_ = await.Pause(ctx, time.Duration(n.rng.IntN(20))*time.Millisecond)
			}
		})
	}
	group.Go(func() {
		rng := f.rng(f.phase.id + "gates")
		for await.Pause(ctx, time.Duration(rng.IntN(2000))*time.Millisecond) == nil {
			f.done(f.changeGate(ctx, rng))
		}
	})
	group.Wait()
}

func (f *fleet) done(err error) {
	f.steps.Add(1)
	if err != nil {
		f.failures.Add(1)
	}
}

// converge makes everything ready and waits until all gates are open.
func (f *fleet) converge(ctx context.Context) error {
	began := time.Now()
	if err := f.convergeFacts(ctx); err != nil {
		return err
	}
	// This can take minutes: a node leaves a gate half a minute after it is no longer
	// selected, and for a daemon that was ready before a reboot, see proofTakes.
	err := f.awaitOpen(ctx)
	f.report.AllOpen = max(f.report.AllOpen, time.Since(began))
	return err
}

// convergeFacts restores every gate to its original spec and makes every node ready for
// all of them. It waits until the named gates, and those that wait for nothing but facts,
// are open.
func (f *fleet) convergeFacts(ctx context.Context, more ...string) error {
	for _, ng := range gates() {
		if err := f.retry(ctx, "gate "+ng.Name, func(ctx context.Context) error {
			return f.putGate(ctx, ng.DeepCopy(), func(*v1alpha1.NodeGateSpec) {})
		}); err != nil {
			return err
		}
	}
	if err := f.each(func(n *node) error { return f.retry(ctx, "node "+n.Name, n.settle) }); err != nil {
		return err
	}
	began := time.Now()
	err := f.awaitOpen(ctx, append(more, "net", "disk")...)
	f.report.Converged = max(f.report.Converged, time.Since(began))
	return err
}

// retry repeats do until it succeeds.
func (f *fleet) retry(ctx context.Context, what string, do func(context.Context) error) error {
	return await.Until(ctx, what+" to be written", do)
}

// proofTakes is longer than nothing may happen before a daemon counts that may have been ready
// before a reboot, or on a former Node: a minute, and then the next bookmark of the watch of pods.
// API servers send the first one of a watch after up to two minutes.
const proofTakes = 4 * time.Minute

// awaitOpen waits until the named gates are open on all nodes, by taint and by record.
// Without names, it waits for all gates, including deleted ones.
func (f *fleet) awaitOpen(ctx context.Context, names ...string) error {
	return await.UntilSilent(ctx, proofTakes, "all gates to be open on all nodes", func(ctx context.Context) error {
		list, err := f.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var wrong []string
		for i := range list.Items {
			if why := notOpen(&list.Items[i], names); why != "" {
				wrong = append(wrong, why)
			}
		}
		if len(list.Items) != len(f.nodes) {
			wrong = append(wrong, fmt.Sprintf("there are %d nodes, want %d", len(list.Items), len(f.nodes)))
		}
		if len(wrong) == 0 {
			return nil
		}
		return fmt.Errorf("%d are not: %s", len(wrong), strings.Join(wrong[:min(3, len(wrong))], "; "))
	})
}

// notOpen returns which gate is closed or has left a taint or record on a node, or "" if
// none is.
func notOpen(n *corev1.Node, names []string) string {
	concerns := func(name string) bool { return len(names) == 0 || slices.Contains(names, name) }
	for _, t := range n.Spec.Taints {
		if name, ok := strings.CutPrefix(t.Key, ours); ok && concerns(name) {
			return fmt.Sprintf("node %s has taint %s and records %s", n.Name, t.Key, recordsOf(n))
		}
	}
	for _, always := range []string{"agent", "net"} {
		if n.Annotations[v1alpha1.RecordAnnotationPrefix+always] == "" {
			return fmt.Sprintf("node %s has no record of gate %s", n.Name, always)
		}
	}
	for key, value := range n.Annotations {
		name, ok := strings.CutPrefix(key, v1alpha1.RecordAnnotationPrefix)
		if !ok || !concerns(name) {
			continue
		}
		if why := wrongRecord(n, value, len(names) == 0); why != "" {
			return fmt.Sprintf("node %s has record %s of gate %s%s", n.Name, value, name, why)
		}
	}
	return ""
}

// wrongRecord returns what is wrong with the record of an open gate, or "". Unless all
// gates are awaited, a record of a previous boot is not wrong yet.
func wrongRecord(n *corev1.Node, value string, all bool) string {
	var record struct{ State, Boot string }
	switch err := json.Unmarshal([]byte(value), &record); {
	case err != nil, record.State != v1alpha1.StateOpen:
		return ", which is not open"
	case all && record.Boot != n.Status.NodeInfo.BootID:
		return ", and has booted since"
	}
	return ""
}

// awaitLeft waits until no node has a record of a gate that does not select it. A node
// remains a member for half a minute after nodegate has observed that it is not selected,
// and a restarted nodegate observes that again.
func (f *fleet) awaitLeft(ctx context.Context) error {
	return await.Until(ctx, "nodes to leave gates that do not select them", func(ctx context.Context) error {
		list, err := f.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			n := &list.Items[i]
			for key := range n.Annotations {
				if name, ok := strings.CutPrefix(key, v1alpha1.RecordAnnotationPrefix); ok && !selected(n, name) {
					return fmt.Errorf("node %s has records %s", n.Name, recordsOf(n))
				}
			}
		}
		return nil
	})
}

// selected reports whether a gate with its original spec selects the node.
func selected(n *corev1.Node, name string) bool {
	return slices.ContainsFunc(gates(), func(ng *v1alpha1.NodeGate) bool {
		return ng.Name == name && labels.SelectorFromSet(ng.Spec.NodeSelector.MatchLabels).Matches(labels.Set(n.Labels))
	})
}

func recordsOf(n *corev1.Node) string {
	var all []string
	for key, value := range n.Annotations {
		if name, ok := strings.CutPrefix(key, v1alpha1.RecordAnnotationPrefix); ok {
			all = append(all, name+"="+value)
		}
	}
	return strings.Join(all, " ")
}

// pick returns a random one of the values.
func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }
