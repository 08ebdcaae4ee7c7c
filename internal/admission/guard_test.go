// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	admissionregistrationv1ac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
)

// proveGuards proves the guards as the controller does, and returns the errors by
// guard.
func (in *installation) proveGuards(ctx context.Context, node, gate string) (map[string]error, error) {
	config, err := in.ServiceAccount(ctx, options.Namespace, options.ServiceAccount)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	nodegate, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	failed := map[string]error{}
	for _, p := range admission.GuardProbes(options.Namespace, node, gate) {
		if err := p.Proved(p.Send(ctx, nodegate)); err != nil {
			failed[p.Guard] = err
		}
	}
	return failed, nil
}

// TestGuardsAreProved tests that exactly the right guard is reported while its policy
// or its binding is deleted or does not deny, until that is restored.
func TestGuardsAreProved(t *testing.T) {
	in := install(t)
	undisturbed(t, in)
	in.close(t)
	node := create(t, in, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "guarded-one", Annotations: labelled(3)}}, nil)
	gate := newAuthors(t, in).existing(t, gateOf(t, "guarded-one", harmless))
	writer, err := client.New(in.Admin(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	awaitFailed := func(t *testing.T, want string) {
		t.Helper()
		eventually(t, func() error {
			failed, err := in.proveGuards(t.Context(), node.Name, gate.GetName())
			if err != nil {
				return err
			}
			if missing := failed[want]; want != "" && (missing == nil || !strings.Contains(missing.Error(), "guard "+want+" is not in force")) {
				return fmt.Errorf("proving %s: %w, want an error that it is not in force", want, missing)
			}
			delete(failed, want)
			if len(failed) > 0 {
				return fmt.Errorf("proving other guards: %v", failed)
			}
			return nil
		})
	}
	binding := func(guard string) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
		b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
		if err := writer.Get(t.Context(), client.ObjectKey{Name: guard}, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	policy := func(guard string) client.Object {
		p := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		if err := writer.Get(t.Context(), client.ObjectKey{Name: guard}, p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	deleted := func(t *testing.T, o client.Object) (restore func()) {
		t.Helper()
		if err := writer.Delete(t.Context(), o.DeepCopyObject().(client.Object)); err != nil {
			t.Fatal(err)
		}
		return func() {
			o.SetResourceVersion("")
			o.SetUID("")
			if err := writer.Create(context.Background(), o); err != nil {
				t.Error(err)
			}
		}
	}
	acting := func(t *testing.T, guard string, actions ...admissionregistrationv1.ValidationAction) {
		t.Helper()
		b := binding(guard)
		b.Spec.ValidationActions = actions
		if err := writer.Update(context.Background(), b); err != nil {
			t.Fatal(err)
		}
	}
	awaitFailed(t, "")
	for _, guard := range []string{admission.ConfinementPolicy, admission.RecordsPolicy, admission.ParametersPolicy, admission.AcknowledgePolicy} {
		for name, breaks := range map[string]func(t *testing.T) (restore func()){
			"policy deleted":  func(t *testing.T) func() { return deleted(t, policy(guard)) },
			"binding deleted": func(t *testing.T) func() { return deleted(t, binding(guard)) },
			"binding warns": func(t *testing.T) func() {
				acting(t, guard, admissionregistrationv1.Warn)
				return func() { acting(t, guard, admissionregistrationv1.Deny) }
			},
			"binding audits": func(t *testing.T) func() {
				acting(t, guard, admissionregistrationv1.Audit)
				return func() { acting(t, guard, admissionregistrationv1.Deny) }
			},
		} {
			t.Run(guard+" "+name, func(t *testing.T) {
				restore := breaks(t)
				defer awaitFailed(t, "") // the other tests need all guards
				defer restore()
				awaitFailed(t, guard)
			})
		}
	}
	if _, err := in.admin.CoreV1().PodTemplates(options.Namespace).Get(t.Context(), "nodegate-probe-parameters", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a probe created its PodTemplate: %v", err)
	}
	after, err := in.admin.CoreV1().Nodes().Get(t.Context(), node.Name, metav1.GetOptions{})
	if err != nil || after.Labels["nodegate.dev/probe"] != "" || after.Annotations[prefix+"Probe"] != "" {
		t.Errorf("a probe changed the Node: %v, %v, %v", after.Labels, after.Annotations, err)
	}
}

// TestBindingThatWarns tests what the runbook of NodegateGuardMissing relies on: server-side
// apply merges validationActions, so a binding that was changed to Warn must be deleted first.
func TestBindingThatWarns(t *testing.T) {
	in := install(t)
	writer, err := client.New(in.Admin(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const name = "binding-that-warns" // its policy does not exist, so it has no effect
	apply := func() error {
		actions := admissionregistrationv1ac.ValidatingAdmissionPolicyBindingSpec().WithPolicyName(name).WithValidationActions(admissionregistrationv1.Deny)
		return writer.Apply(t.Context(), admissionregistrationv1ac.ValidatingAdmissionPolicyBinding(name).WithSpec(actions), client.FieldOwner("kubectl"), client.ForceOwnership)
	}
	if err := apply(); err != nil {
		t.Fatal(err)
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	t.Cleanup(func() { _ = writer.Delete(context.Background(), binding) })
	if err := writer.Get(t.Context(), client.ObjectKey{Name: name}, binding); err != nil {
		t.Fatal(err)
	}
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
	if err := writer.Update(t.Context(), binding, client.FieldOwner("kubectl-edit")); err != nil {
		t.Fatal(err)
	}
	if err := apply(); !apierrors.IsInvalid(err) {
		t.Errorf("applying it over Warn: %v, want that the API server rejects it", err)
	}
	if err := errors.Join(writer.Delete(t.Context(), binding), apply()); err != nil {
		t.Errorf("applying it after it was deleted: %v", err)
	}
}

// TestGuardProved tests what each answer to a probe shows.
func TestGuardProved(t *testing.T) {
	nodes := corev1.Resource("nodes")
	denial := func(by string) error {
		return fmt.Errorf("ValidatingAdmissionPolicy '%s' with binding 'x' denied request: no", by)
	}
	for name, test := range map[string]struct {
		answer  error
		want    string
		unclear bool
	}{
		"rejected by the guard":         {apierrors.NewForbidden(nodes, "n", denial("nodegate-records")), "", false},
		"rejected by its copy":          {apierrors.NewForbidden(nodes, "n", denial("nodegate-records-old")), "something else rejected", false},
		"allowed":                       {nil, "guard nodegate-records is not in force", false},
		"rejected by another guard":     {apierrors.NewForbidden(nodes, "n", denial("nodegate-confinement")), "something else rejected", false},
		"rejected by RBAC":              {apierrors.NewForbidden(nodes, "n", errors.New("cannot patch nodes")), "something else rejected", false},
		"rejected by a webhook":         {apierrors.NewBadRequest("admission webhook x does not support dry run"), "something else rejected", false},
		"the Node does not exist":       {apierrors.NewNotFound(nodes, "n"), "probing guard nodegate-records", true},
		"the API server is too busy":    {apierrors.NewTooManyRequests("later", 1), "probing guard nodegate-records", true},
		"the API server is unreachable": {context.DeadlineExceeded, "probing guard nodegate-records", true},
	} {
		t.Run(name, func(t *testing.T) {
			p := admission.GuardProbe{Guard: admission.RecordsPolicy}
			err := p.Proved(test.answer)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) || errors.Is(err, admission.ErrUnclear) != test.unclear {
				t.Errorf("got %v, want %q, unclear: %v", err, test.want, test.unclear)
			}
		})
	}
	if probes := admission.GuardProbes("here", "", ""); len(probes) != 1 || probes[0].Guard != admission.ParametersPolicy {
		t.Errorf("without a Node and a NodeGate, probes are %+v", probes)
	}
}
