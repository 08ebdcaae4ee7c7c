// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/install"
)

// network is an object of the tests' kind, which is like CiliumNode: cluster-scoped, with the
// node's name.
func network(name string, status map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "net.example.com/v2", "kind": "NetNode", "status": status}}
	o.SetName(name)
	return o
}

func byObject(change ...func(*v1alpha1.ObjectSignal)) v1alpha1.SignalSource {
	spec := &v1alpha1.ObjectSignal{Group: "net.example.com", Version: "v2", Kind: "NetNode", Expression: "object.status.ready"}
	for _, f := range change {
		f(spec)
	}
	return v1alpha1.SignalSource{Object: spec}
}

// serves installs the definition of the tests' kind, until the test ends or the returned
// function is called.
func (e *env) serves(scope apiextensionsv1.ResourceScope) (remove func()) {
	e.Helper()
	api, definition := e.crdClient(), anyFields(network("", nil))
	definition.Spec.Scope = scope
	e.must(api.Create(e.Context(), definition))
	gone := false
	remove = func() {
		if gone {
			return
		}
		gone = true
		e.must(api.Delete(context.Background(), definition))
		e.eventually("the definition is deleted", func() error {
			err := api.Get(context.Background(), client.ObjectKeyFromObject(definition), &apiextensionsv1.CustomResourceDefinition{})
			return unless(err == nil)
		})
	}
	e.Cleanup(remove)
	return remove
}

// mayObserve applies the objects that 'nodegate manifests --observe' adds.
func (e *env) mayObserve() {
	e.Helper()
	e.allow("--observe", func(o *install.Options) {
		o.Observe = []schema.GroupResource{{Group: "net.example.com", Resource: "netnodes"}}
	})
}

// putObject creates or replaces an object of the tests' kind.
func (e *env) putObject(o *unstructured.Unstructured) {
	e.Helper()
	e.eventually("object "+o.GetName()+" is written", func() error {
		now := o.DeepCopy()
		if err := e.admin.Get(e.Context(), client.ObjectKeyFromObject(o), now); err != nil {
			return e.admin.Create(e.Context(), o.DeepCopy())
		}
		next := o.DeepCopy()
		next.SetResourceVersion(now.GetResourceVersion())
		return e.admin.Update(e.Context(), next)
	})
}

// The life of a gate that waits for an object of another project's kind: the kind is not
// served, then nodegate may not read it, then there is no object, the expression fails, is
// false, and is true. When the object or its kind is deleted, the gate closes or stays as it is.
func TestObjectSignal(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(onRegression(newGate("net", keyA, byObject())))
	k := e.kubelet("n1")
	k.register()
	e.waitsFor("net", "n1", v1alpha1.ReadingNotObserved)
	e.eventually("Ready reports that the kind is not served", func() error {
		return e.messageContains("net", v1alpha1.ConditionReady, "NetNode.v2.net.example.com: the API server does not serve this kind")
	})

	remove := e.serves(apiextensionsv1.ClusterScoped)
	e.eventually("Ready reports what to permit", func() error {
		return e.messageContains("net", v1alpha1.ConditionReady, `add {group: "net.example.com", resource: netnodes} to the chart's value observe`)
	})
	e.must(e.condition("net", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFeedsNotSynced))
	e.must(k.is("net", isClosed, keyA))

	e.mayObserve()
	e.waitsFor("net", "n1", v1alpha1.ReadingMissing)
	e.putObject(network("n1", nil))
	e.waitsFor("net", "n1", v1alpha1.ReadingExpressionFailed)
	e.putObject(network("n1", map[string]any{"ready": false}))
	e.waitsFor("net", "n1", v1alpha1.ReadingDiffers)
	e.putObject(network("other", map[string]any{"ready": true}))
	e.putObject(network("n1", map[string]any{"ready": true}))
	k.becomes("net", isOpen, keyA)

	e.must(e.admin.Delete(t.Context(), network("n1", nil)))
	k.becomes("net", isClosed, keyA)
	e.putObject(network("n1", map[string]any{"ready": true}))
	k.becomes("net", isOpen, keyA)
	remove()
	e.eventually("Ready reports that the kind is no longer served", func() error {
		return e.messageContains("net", v1alpha1.ConditionReady, "does not serve this kind")
	})
	e.must(k.is("net", isOpen, keyA)) // what is unknown closes no gate
}

// Objects are found by a label, a field, or their owner. All objects of a node must hold, and
// objects of a former Node of the same name do not.
func TestObjectsOfNodes(t *testing.T) {
	e := newEnv(t)
	e.serves(apiextensionsv1.NamespaceScoped)
	e.mayObserve()
	e.startController(0)
	for name, change := range map[string]func(*v1alpha1.ObjectSignal){
		"by-label": func(s *v1alpha1.ObjectSignal) { s.NodeBy, s.NodeLabel = v1alpha1.NodeByLabel, "example.com/node" },
		"by-field": func(s *v1alpha1.ObjectSignal) { s.NodeBy, s.NodeField = v1alpha1.NodeByField, "spec.nodeName" },
		"by-owner": func(s *v1alpha1.ObjectSignal) {
			s.NodeBy, s.Namespace = v1alpha1.NodeByOwner, daemonNamespace
			s.MatchLabels = map[string]string{"checked": "yes"}
		},
	} {
		e.declare(newGate(name, keyA, byObject(change)))
	}
	k := e.kubelet("n1")
	node := k.register()
	write := func(name string, ready bool, change ...func(*unstructured.Unstructured)) {
		t.Helper()
		o := network(name, map[string]any{"ready": ready})
		o.SetNamespace(daemonNamespace)
		for _, f := range change {
			f(o)
		}
		e.putObject(o)
	}
	e.waitsFor("by-label", "n1", v1alpha1.ReadingMissing)
	labels := map[string]string{"example.com/node": "n1"}
	write("a", true, func(o *unstructured.Unstructured) { o.SetLabels(labels) })
	write("b", false, func(o *unstructured.Unstructured) { o.SetLabels(labels) })
	e.waitsFor("by-label", "n1", v1alpha1.ReadingDiffers)
	write("b", true, func(o *unstructured.Unstructured) { o.SetLabels(labels) })
	k.becomesOpenIn("by-label")

	e.waitsFor("by-field", "n1", v1alpha1.ReadingMissing)
	write("c", true, func(o *unstructured.Unstructured) { o.Object["spec"] = map[string]any{"nodeName": "n1"} })
	k.becomesOpenIn("by-field")

	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "former"}
	owned := func(o *unstructured.Unstructured) {
		o.SetOwnerReferences([]metav1.OwnerReference{owner})
		o.SetLabels(map[string]string{"checked": "yes"})
	}
	write("d", true, owned)
	e.waitsFor("by-owner", "n1", v1alpha1.ReadingFormerNode)
	owner.UID = node.UID
	write("d", true, owned)
	k.becomes("by-owner", isOpen, keyA)
}

// becomesOpenIn waits until a gate that shares its taint with others is open.
func (k *kubelet) becomesOpenIn(gateName string) {
	k.Helper()
	k.eventually("gate "+gateName+" is open", func() error { return unless(k.record(gateName).State == isOpen) })
}

// If an expression reads nothing but metadata, only metadata is requested, with one watch for
// all gates. No watch remains when no gate needs one.
func TestObjectMetadata(t *testing.T) {
	e := newEnv(t)
	e.serves(apiextensionsv1.ClusterScoped)
	e.mayObserve()
	start := time.Now()
	e.startController(0)
	labelled := func(s *v1alpha1.ObjectSignal) { s.Expression = `"ready" in object.metadata.?labels.orValue({})` }
	named := func(s *v1alpha1.ObjectSignal) { s.Expression = `object.metadata.generation > 0` }
	first := e.declare(newGate("labelled", keyA, byObject(labelled)))
	second := e.declare(newGate("named", keyB, byObject(named)))
	k := e.kubelet("n1")
	k.register()
	e.putObject(network("n1", nil))
	e.waitsFor("labelled", "n1", v1alpha1.ReadingDiffers)
	k.becomesOpenIn("named")
	o := network("n1", nil)
	o.SetLabels(map[string]string{"ready": ""})
	e.putObject(o)
	k.becomesOpenIn("labelled")
	if n := e.openWatches("netnodes", start); n != 1 {
		t.Errorf("%d watches, want 1", n)
	}
	e.must(e.admin.Delete(t.Context(), first))
	e.must(e.admin.Delete(t.Context(), second))
	e.awaitWatchEnded("netnodes", start)
}

// Gates whose object signal is invalid are rejected by the API server, or not accepted.
func TestBadObjectSignals(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	for want, change := range map[string]func(*v1alpha1.ObjectSignal){
		"kind must not be Secret":           func(s *v1alpha1.ObjectSignal) { s.Group, s.Version, s.Kind = "", "v1", "Secret" },
		"nodeField is required when nodeBy": func(s *v1alpha1.ObjectSignal) { s.NodeBy = v1alpha1.NodeByField },
	} {
		if err := e.admin.Create(t.Context(), newGate("bad", keyA, byObject(change))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	e.must(e.admin.Create(t.Context(), newGate("invalid", keyA, byObject(func(s *v1alpha1.ObjectSignal) { s.Expression = "object.spec.name" }))))
	e.must(e.admin.Create(t.Context(), newGate("unparsable", keyB, byObject(func(s *v1alpha1.ObjectSignal) { s.Expression = "node.name ==" }))))
	e.isInvalid("unparsable")
}
