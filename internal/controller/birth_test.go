// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/birth"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/readinessrules"
)

// parameters returns the taint keys in the parameter, by gate.
func (w *world) parameters() map[string]string {
	w.t.Helper()
	var list corev1.PodTemplateList
	if err := w.c.client.List(context.Background(), &list); err != nil {
		w.t.Fatal(err)
	}
	if len(list.Items) > 1 {
		w.t.Errorf("%d parameters", len(list.Items))
	}
	out := make(map[string]string)
	for i := range list.Items {
		for name, e := range admission.Entries(&list.Items[i]) {
			out[name] = e.Taint.Key
		}
	}
	return out
}

func (w *world) wantParameters(when, want string) {
	w.t.Helper()
	if got := fmt.Sprint(w.parameters()); got != want {
		w.t.Errorf("%s the parameters are %s, want %s", when, got, want)
	}
}

func TestParametersFollowGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := controllertest.Gate("a"), controllertest.Gate("b")
		w := newWorld(t, a, b)
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(5 * time.Second)
		w.wantParameters("at first", "map[a:"+controllertest.TaintKey+" b:"+controllertest.TaintKey+"]")

		edited := b.DeepCopy()
		edited.Generation, edited.Spec.Taint.Key = 2, "test.nodegate.dev/b"
		w.setGates(true, a, edited)
		controllertest.Pass(5 * time.Second)
		w.wantParameters("with b edited", "map[a:"+controllertest.TaintKey+" b:test.nodegate.dev/b]")

		w.setGates(false, a)
		controllertest.Pass(time.Minute)
		w.wantParameters("while it is unknown whether b exists", "map[a:"+controllertest.TaintKey+" b:test.nodegate.dev/b]")

		w.setGates(true, a)
		controllertest.Pass(5 * time.Second)
		w.wantParameters("with b deleted", "map[a:"+controllertest.TaintKey+"]")

		// A gate that is not accepted does not close new nodes, even if the list of gates
		// is incomplete.
		broken := a.DeepCopy()
		broken.Generation, broken.Spec.OpenWhen = 2, nil
		w.setGates(false, broken)
		controllertest.Pass(5 * time.Second)
		w.wantParameters("with a not accepted", "map[]")
	})
}

func TestDisabledBirthPolicyIsDetected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var off atomic.Bool
		w := newWorld(t, controllertest.Gate("gate"))
		defer w.start(logr.Discard(), interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			if _, probe := obj.(*corev1.Node); probe && off.Load() {
				return nil
			}
			return controllertest.PolicyOf(ctx, c, obj, o...)
		}})()
		isReady := func() bool {
			return meta.IsStatusConditionTrue(w.stored("gate").Status.Conditions, v1alpha1.ConditionReady)
		}
		controllertest.Pass(5 * time.Second)
		if !isReady() {
			t.Fatalf("not Ready: %+v", w.stored("gate").Status)
		}
		off.Store(true)
		controllertest.Pass(birth.BirthProved + 2*time.Second)
		if isReady() {
			t.Error("Ready although new nodes have not been closed for a minute")
		}
		off.Store(false)
		controllertest.Pass(birth.BirthLater + 2*time.Second)
		if !isReady() {
			t.Error("not Ready although new nodes are closed again")
		}
	})
}

// denying returns functions that deny writes of these PodTemplates.
func denying(these func(*corev1.PodTemplate) bool) interceptor.Funcs {
	denied := func(obj client.Object) error {
		if p, is := obj.(*corev1.PodTemplate); is && these(p) {
			return apierrors.NewForbidden(corev1.Resource("podtemplates"), p.Name, errors.New("not this taint"))
		}
		return nil
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			if err := denied(obj); err != nil {
				return err
			}
			return controllertest.PolicyOf(ctx, c, obj, o...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.UpdateOption) error {
			if err := denied(obj); err != nil {
				return err
			}
			return c.Update(ctx, obj, o...)
		},
	}
}

func containsBad(p *corev1.PodTemplate) bool { return admission.Entries(p)["bad"].Name != "" }

// A denied write of the parameter is reported by the gate that causes it.
func TestParameterWriteDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("bad"), controllertest.Gate("good"))
		defer w.start(logr.Discard(), denying(containsBad))()
		controllertest.Pass(20 * time.Second)
		bad := meta.FindStatusCondition(w.stored("bad").Status.Conditions, v1alpha1.ConditionReady)
		if bad == nil || bad.Reason != v1alpha1.ReasonBirthNotProved || !strings.Contains(bad.Message, "not this taint") {
			t.Errorf("condition Ready of the gate without an entry: %+v", bad)
		}
		if !meta.IsStatusConditionTrue(w.stored("good").Status.Conditions, v1alpha1.ConditionReady) {
			t.Errorf("the other gate is not Ready: %+v", w.stored("good").Status.Conditions)
		}
	})
}

// An entry in the parameter whose taint is no longer allowed prevents neither that other gates
// are added, nor that they are removed.
func TestParameterEntryIsNoLongerAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, good := controllertest.Gate("bad"), controllertest.Gate("good")
		w := newWorld(t, bad, good)
		var forbidden atomic.Bool
		defer w.start(logr.Discard(), denying(func(p *corev1.PodTemplate) bool { return forbidden.Load() && containsBad(p) }))()
		controllertest.Pass(5 * time.Second)
		w.wantParameters("at first", "map[bad:"+controllertest.TaintKey+" good:"+controllertest.TaintKey+"]")

		forbidden.Store(true)
		w.setGates(true, bad, good, controllertest.Gate("new"))
		controllertest.Pass(20 * time.Second)
		w.wantParameters("with a new gate", "map[good:"+controllertest.TaintKey+" new:"+controllertest.TaintKey+"]")
		w.setGates(true, bad)
		controllertest.Pass(20 * time.Second)
		w.wantParameters("with the others deleted", "map[]")
	})
}

// A gate that must no longer close on new nodes is not Ready while its entry is still in the
// parameter. The removal is retried soon.
func TestParameterEntryIsNotRemoved(t *testing.T) {
	for _, mode := range []v1alpha1.Mode{v1alpha1.ModePaused, v1alpha1.ModeDryRun} {
		synctest.Test(t, func(t *testing.T) {
			ng := controllertest.Gate("gate")
			w := newWorld(t, ng)
			var forbidden atomic.Bool
			defer w.start(logr.Discard(), denying(func(*corev1.PodTemplate) bool { return forbidden.Load() }))()
			controllertest.Pass(5 * time.Second)
			if got := w.ready("gate"); !strings.HasPrefix(got, "Ready: ") {
				t.Fatalf("at first: %s", got)
			}
			forbidden.Store(true)
			edited := ng.DeepCopy()
			edited.Generation, edited.Spec.Mode = 2, mode
			w.setGates(true, edited)
			controllertest.Pass(20 * time.Second)
			w.wantParameters("while it cannot be written", "map[gate:"+controllertest.TaintKey+"]")
			c := meta.FindStatusCondition(w.stored("gate").Status.Conditions, v1alpha1.ConditionReady)
			if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonBirthNotProved ||
				!strings.Contains(c.Message, "new nodes may still be closed") || !strings.Contains(c.Message, "not this taint") {
				t.Errorf("%s: condition Ready: %+v", mode, c)
			}
			forbidden.Store(false)
			controllertest.Pass(7 * time.Second)
			w.wantParameters("after it was written", "map[]")
			if got := w.ready("gate"); !strings.HasPrefix(got, string(mode)+": ") {
				t.Errorf("%s, after the entry was removed: %s", mode, got)
			}
		})
	}
}

// The webhook does not read the parameter, so an entry that is not removed closes no new nodes.
func TestParameterEntryIsNotRemovedButTheWebhookClosesGates(t *testing.T) {
	for _, mode := range []v1alpha1.Mode{v1alpha1.ModePaused, v1alpha1.ModeDryRun} {
		synctest.Test(t, func(t *testing.T) {
			ng := controllertest.Gate("gate")
			w := newWorld(t, ng)
			w.by = admission.ByWebhook
			var forbidden atomic.Bool
			defer w.start(logr.Discard(), denying(func(*corev1.PodTemplate) bool { return forbidden.Load() }))()
			controllertest.Pass(5 * time.Second)
			forbidden.Store(true)
			edited := ng.DeepCopy()
			edited.Generation, edited.Spec.Mode = 2, mode
			w.setGates(true, edited)
			controllertest.Pass(20 * time.Second)
			w.wantParameters("while it cannot be written", "map[gate:"+controllertest.TaintKey+"]")
			if got := w.ready("gate"); !strings.HasPrefix(got, string(mode)+": ") {
				t.Errorf("%s: %s", mode, got)
			}
		})
	}
}

// A leader that does not know the gates yet, because the first list of NodeReadinessRules fails,
// does not write the parameter of a previous leader: without a source, the policy closes nothing.
func TestParameterIsKeptUntilGatesAreCompiled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ng := controllertest.Gate("gate")
		entry, err := admission.NewEntry(ng)
		if err != nil {
			t.Fatal(err)
		}
		var without atomic.Int32
		funcs := listingRules(func() ([]unstructured.Unstructured, error) {
			<-time.After(30 * time.Millisecond)
			return nil, errors.New("no response")
		})
		funcs.Update = func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.UpdateOption) error {
			if p, is := obj.(*corev1.PodTemplate); is && p.Name == v1alpha1.BirthParameter && p.Annotations[v1alpha1.ParameterSource] == "" {
				without.Add(1)
			}
			return c.Update(ctx, obj, o...)
		}
		w := newWorld(t, ng)
		defer w.start(logr.Discard(), funcs)()
		if err := w.c.client.Create(t.Context(), admission.Parameter("nodegate-system", v1alpha1.SourceCRD, []admission.Entry{entry})); err != nil {
			t.Fatal(err)
		}
		controllertest.Pass(readinessrules.MaxWait + time.Minute)
		if n := without.Load(); n > 0 {
			t.Errorf("the parameter was written %d times without a source", n)
		}
		if !w.c.leading.Load() {
			t.Error("the controller does not lead")
		}
		if err := w.c.Ready(); err != nil {
			t.Errorf("the controller is not ready: %v", err)
		}
	})
}

// If there are more gates than the parameter can hold, the youngest is omitted, and its
// status contains the reason.
func TestMoreGatesThanTheParameterHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gates []*v1alpha1.NodeGate
		for i := range 257 { // of the same age, so that their names determine the order
			gates = append(gates, controllertest.Gate(fmt.Sprintf("gate-%03d", i)))
		}
		w := newWorld(t, gates...)
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(2 * time.Minute)
		if got := len(w.parameters()); got != 256 {
			t.Errorf("the parameter contains %d gates, want 256", got)
		}
		if !meta.IsStatusConditionTrue(w.stored("gate-255").Status.Conditions, v1alpha1.ConditionReady) {
			t.Errorf("the last gate in the parameter is not Ready: %+v", w.stored("gate-255").Status.Conditions)
		}
		left := meta.FindStatusCondition(w.stored("gate-256").Status.Conditions, v1alpha1.ConditionReady)
		if left == nil || left.Reason != v1alpha1.ReasonBirthNotProved || !strings.Contains(left.Message, "at most 256 gates") {
			t.Errorf("condition Ready of the omitted gate: %+v", left)
		}
	})
}
