// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/install"
	"github.com/nodegate/nodegate/internal/testbed"
)

//go:embed p09_policies.yaml
var idlePolicies []byte

// contenderLabel is the label of a Node that selects the contender. All contenders are
// always installed, and each applies only to its own Nodes, so that turns need no setup.
const contenderLabel = "bench.nodegate.dev/contender"

// A contender is a way of creating a Node.
type contender struct {
	name string
	// gates is the number of gates, and selecting the number of those that select
	// the Node.
	gates, selecting int
	// share is the share of a turn's Nodes that is created; slow contenders need fewer.
	share float64
}

// Names of contenders, by what closes the Node.
const (
	byNothing  = "nothing"
	byIdle     = "idle"
	byConstant = "constant"
	byWebhook  = "webhook"
	oneOfOne   = "1-of-1"
)

var contenders = []contender{
	{name: byNothing, share: 1},
	{name: byIdle, share: 1},
	{name: byConstant, share: 1},
	{name: byWebhook, share: 1},
	{name: oneOfOne, gates: 1, selecting: 1, share: 1},
	{name: "2-of-20", gates: 20, selecting: 2, share: 0.5},
	{name: "2-of-200", gates: 200, selecting: 2, share: 0.25},
	{name: "20-of-20", gates: 20, selecting: 20, share: 0.25},
	{name: "200-of-200", gates: 200, selecting: 200, share: 0.1},
}

// namespace returns the namespace of a contender's parameter, which contains no others.
func (c *contender) namespace() string { return "bench-" + c.name }

// contenderManifests returns the output of 'nodegate manifests' for the policy and for the
// webhook, with other Node selectors and namespaces of parameters, and the policies that
// are compared with them.
func contenderManifests(webhookPort int64) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, birth := range []admission.Birth{admission.ByPolicy, admission.ByWebhook} {
		objects, err := manifests(birth)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			narrowed, err := narrow(o, webhookPort)
			if err != nil {
				return nil, fmt.Errorf("narrowing %s %s: %w", o.GetKind(), o.GetName(), err)
			}
			all = append(all, narrowed...)
		}
	}
	objects, err := testbed.ParseObjects(idlePolicies)
	return append(all, objects...), err
}

// nodegateNamespace is the namespace in which nodegate is installed.
const nodegateNamespace = "nodegate-system"

func manifests(birth admission.Birth) ([]*unstructured.Unstructured, error) {
	var stream bytes.Buffer
	err := install.Write(&stream, install.Options{
		Namespace: nodegateNamespace, ServiceAccount: "nodegate", AllowedTaintKeys: gateTaints(), Birth: birth,
	})
	if err != nil {
		return nil, fmt.Errorf("writing nodegate's manifests: %w", err)
	}
	return testbed.ParseObjects(stream.Bytes())
}

// narrow restricts an object to the Nodes of its contenders.
func narrow(o *unstructured.Unstructured, webhookPort int64) ([]*unstructured.Unstructured, error) {
	switch o.GetKind() {
	case "MutatingAdmissionPolicyBinding":
		return perContender(o)
	case "ValidatingAdmissionPolicyBinding":
		if o.GetName() == admission.ParametersPolicy {
			return []*unstructured.Unstructured{o}, nil // it does not match Nodes
		}
		guarded := map[string]any{"matchExpressions": []any{
			map[string]any{"key": contenderLabel, "operator": "Exists"},
			map[string]any{"key": contenderLabel, "operator": "NotIn", "values": []any{byNothing, byIdle, byConstant}},
		}}
		err := unstructured.SetNestedMap(o.Object, guarded, "spec", "matchResources", "objectSelector")
		return []*unstructured.Unstructured{o}, err
	case "MutatingWebhookConfiguration":
		return []*unstructured.Unstructured{o}, narrowWebhook(o, webhookPort)
	case "Service":
		// There is no service network, but the API server resolves host names.
		err := unstructured.SetNestedMap(o.Object, map[string]any{"type": "ExternalName", "externalName": "localhost"}, "spec")
		return []*unstructured.Unstructured{o}, err
	}
	return []*unstructured.Unstructured{o}, nil
}

// perContender returns a copy of a binding of the birth policy for each contender with
// gates.
func perContender(binding *unstructured.Unstructured) (all []*unstructured.Unstructured, err error) {
	for i := range contenders {
		c := &contenders[i]
		if c.gates == 0 {
			continue
		}
		o := binding.DeepCopy()
		o.SetName(o.GetName() + "-" + c.name)
		err := unstructured.SetNestedField(o.Object, c.namespace(), "spec", "paramRef", "namespace")
		if err == nil {
			err = unstructured.SetNestedStringMap(o.Object, map[string]string{contenderLabel: c.name},
				"spec", "matchResources", "objectSelector", "matchLabels")
		}
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

func narrowWebhook(o *unstructured.Unstructured, port int64) error {
	webhooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
	if err != nil {
		return err
	}
	for _, w := range webhooks {
		webhook := w.(map[string]any)
		selector := map[string]any{"matchLabels": map[string]any{contenderLabel: byWebhook}}
		if err := unstructured.SetNestedField(webhook, selector, "objectSelector"); err != nil {
			return err
		}
		if err := unstructured.SetNestedField(webhook, port, "clientConfig", "service", "port"); err != nil {
			return err
		}
	}
	return unstructured.SetNestedSlice(o.Object, webhooks, "webhooks")
}

// writeParameter creates a namespace and the parameter that nodegate would write for the
// given number of gates. It must be called before the guard for parameters is installed.
func (b *births) writeParameter(ctx context.Context, namespace string, gates, selecting int) error {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := b.Driver.Client().CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a namespace for parameters: %w", err)
	}
	var entries []admission.Entry
	for i := range gates {
		e, err := admission.NewEntry(gateOf(i, i < selecting))
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
	parameter := admission.Parameter(namespace, v1alpha1.SourceCRD, entries)
	if _, err := b.Driver.Client().CoreV1().PodTemplates(namespace).Create(ctx, parameter, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the parameter: %w", err)
	}
	return nil
}

// gateTaints returns the taint keys of all contenders' gates.
func gateTaints() (all []string) {
	for i := range contenders {
		for len(all) < contenders[i].gates {
			all = append(all, gateTaint(len(all)))
		}
	}
	return all
}

func gateTaint(i int) string { return fmt.Sprintf("bench.nodegate.dev/gate-%03d", i) }

// gateOf returns a gate that selects all Linux nodes, or, if selecting is false, only those
// of a pool that does not exist.
func gateOf(i int, selecting bool) *v1alpha1.NodeGate {
	gate := &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("gate-%03d", i)}}
	gate.Spec.NodeSelector.MatchLabels = map[string]string{"kubernetes.io/os": "linux"}
	if !selecting {
		gate.Spec.NodeSelector.MatchLabels["example.com/pool"] = fmt.Sprintf("pool-%03d", i)
	}
	gate.Spec.Taint = v1alpha1.Taint{Key: gateTaint(i), Effect: corev1.TaintEffectNoSchedule}
	return gate
}
