// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/e2e/judge"
	"github.com/nodegate/nodegate/e2e/judge/recording"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/machine"
)

// host is a machine, and every state of its Node that the API server has sent.
type host struct {
	*machine.Machine
	name    string
	labels  map[string]string
	cluster *testcluster.Cluster
	client  client.Client
	since   recording.Position

	mu     sync.Mutex
	states []*corev1.Node
}

// newHost returns a machine that is off. When the test ends, the judge judges the test.
func newHost(t *testing.T) *host { return newHostWith(t, nil) }

// newHostWith returns a machine whose Node registers with labels.
func newHostWith(t *testing.T, labels map[string]string) *host {
	return newMachine(t, machine.Options{Labels: labels})
}

// newMachine returns a machine with options that have no name yet.
func newMachine(t *testing.T, options machine.Options) *host {
	t.Helper()
	c := setUp(t)
	shared.machines++
	h := &host{name: fmt.Sprintf("machine-%d", shared.machines), labels: options.Labels, cluster: c, client: shared.client}
	options.Number, options.Programs, options.Image = shared.machines, shared.programs, shared.image
	h.build(t, options)
	t.Cleanup(func() { h.retire(t) })
	return h
}

// build builds the machine, which is off, and observes its Node.
func (h *host) build(t *testing.T, options machine.Options) {
	t.Helper()
	dir := filepath.Join(h.cluster.Dir(), h.name)
	must(t, os.Mkdir(dir, 0o755))
	options.Name, options.Dir, options.Cluster = h.name, dir, h.cluster
	var err error
	h.Machine, err = machine.New(options)
	must(t, err)
	h.observe(t)
}

// observe records the states of the Node.
func (h *host) observe(t *testing.T) {
	t.Helper()
	etcd, err := recording.Connect(h.cluster)
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	if h.since, err = recording.Now(t.Context(), etcd, h.cluster.AuditLog()); err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(h.cluster.Admin())
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := c.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The API server ends each watch after half an hour or more.
	w, err := watchtools.NewRetryWatcherWithContext(t.Context(), nodes.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = "metadata.name=" + h.name
			return c.CoreV1().Nodes().Watch(ctx, o)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for event := range w.ResultChan() {
			if node, ok := event.Object.(*corev1.Node); ok && event.Type != watch.Deleted {
				h.mu.Lock()
				h.states = append(h.states, node)
				h.mu.Unlock()
			}
		}
	}()
}

// retire ends the machine, judges what happened, and deletes the Node and its pods, because
// podgc would need a minute for these.
func (h *host) retire(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	if t.Failed() {
		t.Logf("the machine's logs are in %s", h.Logs())
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	judgeSince(ctx, t, h.cluster, h.since, shared.installation.Username())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.name}}
	if err := client.IgnoreNotFound(h.client.Delete(ctx, node)); err != nil {
		t.Error(err)
	}
	h.deletePods(ctx, t)
}

// deletePods deletes the pods that are bound to the machine, which is off.
func (h *host) deletePods(ctx context.Context, t *testing.T) {
	t.Helper()
	var pods corev1.PodList
	if err := h.client.List(ctx, &pods); err != nil {
		t.Error(err)
	}
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName != h.name {
			continue
		}
		if err := client.IgnoreNotFound(h.client.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0))); err != nil {
			t.Error(err)
		}
	}
}

// judgeSince lets the judge check what has happened since a position, from the API server's own
// data.
func judgeSince(ctx context.Context, t *testing.T, c *testcluster.Cluster, since recording.Position, controller string) {
	t.Helper()
	etcd, err := recording.Connect(c)
	if err != nil {
		t.Error(err)
		return
	}
	defer etcd.Close()
	history, err := recording.Read(ctx, etcd, c.AuditLog(), since)
	if err != nil {
		t.Error(err)
		return
	}
	verdict := judge.Judge(history, judge.Config{Controller: controller, Lag: lag, Quiet: time.Hour})
	for _, violation := range verdict.Violations {
		t.Errorf("the judge found a violation: %s", violation)
	}
	if len(verdict.Checked[judge.RuleOpening]) == 0 {
		t.Error("the judge saw no opening")
	}
}

// must fails the test if a command to the machine fails.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// setReady makes the daemon ready, or not ready, at its next probe.
func (h *host) setReady(t *testing.T, ready bool) {
	t.Helper()
	file := filepath.Join(h.Shared(), "ready")
	err := os.Remove(file)
	if ready {
		err = os.WriteFile(file, nil, 0o644)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

// start is the start of a container, from the file that it wrote.
type start struct {
	at   time.Time
	name string
}

// starts returns all starts of containers on the machine, in order.
func (h *host) starts(t *testing.T) (all []start) {
	t.Helper()
	file, err := os.Open(filepath.Join(h.Shared(), "starts"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		at, name, _ := strings.Cut(lines.Text(), " ")
		when, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, start{when, name})
	}
	return all
}

// count returns how many containers with the name prefix have started since a time.
func count(all []start, prefix string, since time.Time) (n int) {
	for _, s := range all {
		if strings.HasPrefix(s.name, prefix) && !s.at.Before(since) {
			n++
		}
	}
	return n
}

// awaitStart waits until a container with the name prefix has started since a time.
func (h *host) awaitStart(t *testing.T, prefix string, since time.Time) {
	t.Helper()
	must(t, await.Until(t.Context(), "container "+prefix, func(context.Context) error {
		if count(h.starts(t), prefix, since) == 0 {
			return errors.New("it has not started")
		}
		return nil
	}))
}

func (h *host) key() client.ObjectKey { return client.ObjectKey{Name: h.name} }

// history returns the states of the Node so far.
func (h *host) history() []*corev1.Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.states)
}

// newest returns the newest observed state of the Node.
func (h *host) newest() *corev1.Node {
	states := h.history()
	if len(states) == 0 {
		return &corev1.Node{}
	}
	return states[len(states)-1]
}

// isClosed reports whether the Node has a taint of a gate.
func isClosed(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(have corev1.Taint) bool { return have.Key == taint.Key })
}

// await waits until the Node is in the current boot and the gate is closed, or open, and
// returns that state.
func (h *host) await(t *testing.T, closed bool) (node *corev1.Node) {
	t.Helper()
	must(t, await.Until(t.Context(), "Node", func(context.Context) error {
		node = h.newest()
		if boot := node.Status.NodeInfo.BootID; boot != h.BootID() || isClosed(node) != closed {
			return fmt.Errorf("boot %s, want %s; closed %v, want %v", boot, h.BootID(), isClosed(node), closed)
		}
		return nil
	}))
	return node
}

// openedIn returns the states by which the gate opened in a boot.
func (h *host) openedIn(boot string) []*corev1.Node {
	return slices.DeleteFunc(openings(h.history()), func(n *corev1.Node) bool { return n.Status.NodeInfo.BootID != boot })
}

// openings returns those of successive states by which the gate opened, in any boot.
func openings(states []*corev1.Node) (opened []*corev1.Node) {
	for i, s := range states {
		if i > 0 && isClosed(states[i-1]) && !isClosed(s) {
			opened = append(opened, s)
		}
	}
	return opened
}

// boundPods returns the pods of the workload that are bound to the machine.
func (h *host) boundPods(t *testing.T) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	must(t, h.client.List(t.Context(), &pods))
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Labels["app"] != "workload" || p.Spec.NodeName != h.name })
}
