// SPDX-License-Identifier: Apache-2.0

// Package controllertest contains what the tests of the controller and of births share: gates, a
// client of a fake API server that closes Nodes at birth, and a log.
package controllertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/gate"
)

// TaintKey is the key of the taint of test gates.
const TaintKey = "test.nodegate.dev/a"

// Gate returns a gate that is open if the node has the label "fit".
func Gate(name string, change ...func(*v1alpha1.NodeGateSpec)) *v1alpha1.NodeGate {
	ng := &v1alpha1.NodeGate{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), Generation: 1},
		Spec: v1alpha1.NodeGateSpec{
			Taint:         v1alpha1.Taint{Key: TaintKey, Effect: corev1.TaintEffectNoSchedule},
			OpenWhen:      []v1alpha1.Signal{{Name: "fit", SignalSource: v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "fit"}}}},
			ReclosePolicy: v1alpha1.RecloseOnRegression,
			Timing:        v1alpha1.Timing{CloseAfterSeconds: new(int32(0))},
			Budget:        v1alpha1.Budget{MaxReclosed: new(intstr.FromString("20%"))},
		},
	}
	for _, f := range change {
		f(&ng.Spec)
	}
	return ng
}

// Client returns a fake client that closes probe nodes according to the birth parameter,
// as the birth policy does, and denies probes of guards. funcs may override the former.
func Client(t testing.TB, funcs interceptor.Funcs, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	create, patch := funcs.Create, funcs.Patch
	if create == nil {
		create = PolicyOf
	}
	funcs.Create = func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
		if template, ok := obj.(*corev1.PodTemplate); ok && template.Name != v1alpha1.BirthParameter && template.Name != v1alpha1.TolerationsParameter {
			return DeniedBy(admission.ParametersPolicy)
		}
		return create(ctx, c, obj, o...)
	}
	funcs.Patch = func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, o ...client.PatchOption) error {
		if _, ok := obj.(*corev1.Node); ok {
			body, _ := p.Data(obj)
			switch {
			case strings.Contains(string(body), "annotations"):
				return DeniedBy(admission.RecordsPolicy)
			case strings.Contains(string(body), "labels"):
				return DeniedBy(admission.ConfinementPolicy)
			}
		}
		if patch != nil {
			return patch(ctx, c, obj, p, o...)
		}
		return c.Patch(ctx, obj, p, o...)
	}
	patchStatus := funcs.SubResourcePatch
	funcs.SubResourcePatch = func(ctx context.Context, c client.Client, part string, obj client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
		if body, _ := p.Data(obj); strings.Contains(string(body), `"observedGeneration":-2`) {
			return DeniedBy(admission.AcknowledgePolicy)
		}
		if patchStatus != nil {
			return patchStatus(ctx, c, part, obj, p, o...)
		}
		return c.SubResource(part).Patch(ctx, obj, p, o...)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.NodeGate{}).WithInterceptorFuncs(funcs).Build()
}

// DeniedBy returns the API server's error for a request that a guard denies.
func DeniedBy(guard string) error {
	return apierrors.NewForbidden(corev1.Resource("nodes"), "n", fmt.Errorf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: no", guard, guard))
}

// PolicyOf creates an object and applies the birth policy to it, assuming that all gates
// select all nodes.
func PolicyOf(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return c.Create(ctx, obj, o...)
	}
	var parameters corev1.PodTemplateList
	if err := c.List(ctx, &parameters, client.HasLabels{v1alpha1.ParameterLabel}); err != nil {
		return err
	}
	for i := range parameters.Items {
		for name, e := range admission.Entries(&parameters.Items[i]) {
			CloseAtBirth(node, name, e.Taint.Key, e.Taint.Effect)
		}
	}
	return nil
}

// CloseAtBirth adds a gate's taint and record to a new node.
func CloseAtBirth(node *corev1.Node, gateName, key string, effect corev1.TaintEffect) {
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.RecordAnnotationPrefix+gateName, gate.Record{
		State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonBirth, Taint: key + ":" + string(effect),
	}.String())
}

// LogLines collects log lines.
type LogLines struct {
	mu    sync.Mutex
	lines []string
}

// Logger returns a logger whose lines are collected.
func (l *LogLines) Logger() logr.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, args)
	}, funcr.Options{})
}

// All returns the lines so far.
func (l *LogLines) All() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// Pass advances the clock of a synctest bubble and waits for all goroutines.
func Pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// Count returns the number of lines that contain a text.
func (l *LogLines) Count(text string) (n int) {
	for _, line := range l.All() {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
