// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

// tries counts the results of the attempts of one attack.
type tries struct {
	name    string
	guard   string // the policy that must deny it
	attempt func(ctx context.Context) error
	// allowed and denied count answers, denied those of the guard.
	allowed, denied atomic.Int64
	// another is the last answer of another kind.
	another atomic.Value
}

// repeat repeats the attack until the context ends.
func (a *tries) repeat(ctx context.Context) {
	for ctx.Err() == nil {
		request, _, cancel := await.Watch(ctx, await.Silence)
		err := a.attempt(request)
		cancel()
		switch {
		case err == nil:
			a.allowed.Add(1)
		case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+a.guard+"'"):
			a.denied.Add(1)
		default:
			a.another.Store(err.Error())
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Millisecond): // leave the processor to the API server that starts
			}
		}
	}
}

// TestGuardsThroughRestarts tests that no attack succeeds at any time while the API
// server is killed and restarted. Attackers continuously send requests that the guards
// must deny. The requests are not dry runs.
func TestGuardsThroughRestarts(t *testing.T) {
	in := install(t)
	undisturbed(t, in)
	in.close(t)
	node := owned(t, in, "restarted")
	kubelet, editor := as(t, in.Node(node.Name)), in.admin
	authors := newAuthors(t, in)
	nodes := in.nodegate.CoreV1().Nodes()
	patch := func(nodes interface {
		Patch(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (*corev1.Node, error)
	}, body string, o metav1.PatchOptions) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := nodes.Patch(ctx, node.Name, types.MergePatchType, []byte(body), o)
			return err
		}
	}
	attacks := []*tries{
		{name: "a kubelet writes its record", guard: admission.RecordsPolicy, attempt: patch(kubelet.CoreV1().Nodes(), `{"metadata":{"annotations":{"`+prefix+`one":"{}"}}}`, metav1.PatchOptions{})},
		{name: "the token labels a node", guard: admission.ConfinementPolicy, attempt: patch(nodes, `{"metadata":{"labels":{"taken":"over"}}}`, ownPatch)},
		{name: "the token resets field ownership", guard: admission.ConfinementPolicy, attempt: patch(nodes, `{"metadata":{"managedFields":[{}]}}`, ownPatch)},
		{name: "an editor writes a parameter", guard: admission.ParametersPolicy, attempt: func(ctx context.Context) error {
			template := parameter()
			template.Name, template.GenerateName = "", "restarted-"
			_, err := editor.CoreV1().PodTemplates(options.Namespace).Create(ctx, template, metav1.CreateOptions{})
			return err
		}},
		{name: "an author evicts", guard: admission.AcknowledgePolicy, attempt: func(ctx context.Context) error {
			_, err := authors["plain"].Create(ctx, gateOf(t, "restarted", evicting), metav1.CreateOptions{})
			return err
		}},
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers sync.WaitGroup
	for _, a := range attacks {
		workers.Go(func() { a.repeat(ctx) })
	}
	awaitMore := func(n int64) {
		t.Helper()
		for _, a := range attacks {
			target := a.denied.Load() + n
			eventually(t, func() error {
				if got := a.denied.Load(); got < target {
					return fmt.Errorf("%s: denied %d times, want %d; last other answer: %v", a.name, got, target, a.another.Load())
				}
				return nil
			})
		}
	}
	for _, end := range []func(testcluster.Component){in.KillComponent, in.StopComponent, in.KillComponent} {
		awaitMore(20)
		end(testcluster.APIServer)
		if err := in.StartComponent(t.Context(), testcluster.APIServer); err != nil {
			t.Fatal(err)
		}
	}
	awaitMore(20)
	stop()
	workers.Wait()
	for _, a := range attacks {
		t.Logf("%s: denied %d times", a.name, a.denied.Load())
		if n := a.allowed.Load(); n > 0 {
			t.Errorf("%s: succeeded %d times", a.name, n)
		}
	}
	if err := in.WaitReady(t.Context()); err != nil {
		t.Error(err)
	}
}
