// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

// births counts the results of creating Nodes.
type births struct {
	// serving is the number of the running API server process, or 0 while it is not
	// ready.
	serving atomic.Int64
	// created counts Nodes; open counts those of them without taint or record.
	created, open atomic.Int64

	mu sync.Mutex
	// refused are the errors of requests that were sent while an API server was ready.
	refused []error
	// early counts the other errors, by kind.
	early map[string]int
}

// TestBirthThroughRestarts tests that no Node is ever created open while the API server
// is killed and restarted, and that none is rejected while it is ready. An administrator
// and kubelets continuously create Nodes. There is no controller and no CRD.
func TestBirthThroughRestarts(t *testing.T) {
	in := installBirth(t)
	gate := newGate("one", "a", metav1.LabelSelector{MatchLabels: label(t)})
	in.close(t, gate)
	in.awaitProof(t, gate)

	b := &births{early: map[string]int{}}
	b.serving.Store(1)
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for i := range 2 {
		name := fmt.Sprintf("restart-kubelet-%d", i)
		kubelet := as(t, in.Node(name))
		workers.Go(func() { b.register(ctx, in, kubelet, label(t), func(int) string { return name }) })
		workers.Go(func() {
			b.register(ctx, in, in.admin, label(t), func(n int) string { return fmt.Sprintf("restart-%d-%d", i, n) })
		})
	}
	for life, end := range []func(testcluster.Component){in.KillComponent, in.StopComponent, in.KillComponent, in.StopComponent} {
		b.awaitMore(t, 100)
		b.serving.Store(0)
		end(testcluster.APIServer)
		if err := in.StartComponent(t.Context(), testcluster.APIServer); err != nil {
			t.Fatal(err)
		}
		b.serving.Store(int64(life + 2))
	}
	b.awaitMore(t, 100)
	stop()
	workers.Wait()

	t.Logf("created %d nodes; errors while the API server was not ready: %v", b.created.Load(), b.early)
	if open := b.open.Load(); open > 0 {
		t.Errorf("%d nodes were created open", open)
	}
	if len(b.refused) > 0 {
		t.Errorf("%d nodes were rejected, the first: %v", len(b.refused), b.refused[0])
	}
	// Otherwise, the following tests would wait for the controller manager, which
	// retries with a delay.
	if err := in.WaitReady(t.Context()); err != nil {
		t.Error(err)
	}
}

// register creates and deletes Nodes until the context ends.
func (b *births) register(ctx context.Context, in *installation, by *kubernetes.Clientset, labels map[string]string, name func(int) string) {
	for n := 0; ctx.Err() == nil; n++ {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name(n), Labels: labels}}
		node.Status.NodeInfo.BootID = "boot"
		before := b.serving.Load()
		request, _, cancel := await.Watch(ctx, await.Silence)
		created, err := by.CoreV1().Nodes().Create(request, node, metav1.CreateOptions{})
		cancel()
		serving := before != 0 && before == b.serving.Load()
		b.count(created, err, serving && ctx.Err() == nil)
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Millisecond): // leave the CPU to the starting API server
			}
		}
		// After errors too: the Node may have been created although the answer was lost.
		_ = in.admin.CoreV1().Nodes().Delete(context.WithoutCancel(ctx), node.Name, metav1.DeleteOptions{})
	}
}

func (b *births) count(created *corev1.Node, err error, serving bool) {
	if err == nil {
		if created.Annotations[prefix+"one"] == "" || !slices.Contains(created.Spec.Taints, taintA) {
			b.open.Add(1)
		}
		b.created.Add(1)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	// An earlier attempt created the Node, but its answer was lost.
	if serving && !apierrors.IsAlreadyExists(err) {
		b.refused = append(b.refused, err)
		return
	}
	kind := "no connection"
	if status := (apierrors.APIStatus)(nil); errors.As(err, &status) {
		kind = fmt.Sprintf("%d %s", status.Status().Code, status.Status().Message)
	}
	b.early[kind]++
}

// awaitMore waits until n more Nodes have been created.
func (b *births) awaitMore(t *testing.T, n int64) {
	t.Helper()
	target := b.created.Load() + n
	eventually(t, func() error {
		if got := b.created.Load(); got < target {
			return fmt.Errorf("created %d nodes, want %d", got, target)
		}
		return nil
	})
}
