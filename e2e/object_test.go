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

// otherKind is a kind of another project, NetNode, in a group of the test's own.
type otherKind struct {
	*env
	group string
}

func newOtherKind(e *env) *otherKind {
	return &otherKind{e, strings.ToLower(e.Name()) + ".example.com"}
}

// object returns an object of the kind.
func (o *otherKind) object(name string, status map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": o.group + "/v2", "kind": "NetNode", "status": status}}
	object.SetName(name)
	return object
}

// signal returns a signal that holds for objects that are ready.
func (o *otherKind) signal(change ...func(*v1alpha1.ObjectSignal)) v1alpha1.SignalSource {
	spec := &v1alpha1.ObjectSignal{Group: o.group, Version: "v2", Kind: "NetNode", Expression: "object.status.ready"}
	for _, f := range change {
		f(spec)
	}
	return v1alpha1.SignalSource{Object: spec}
}

// serve installs the kind's definition, until the test ends or the returned function is called.
func (o *otherKind) serve(scope apiextensionsv1.ResourceScope) (remove func()) {
	o.Helper()
	api, definition := o.crdClient(), anyFields(o.object("", nil))
	definition.Spec.Scope = scope
	o.must(api.Create(o.Context(), definition))
	remove = func() { o.must(client.IgnoreNotFound(api.Delete(context.Background(), definition))) }
	o.Cleanup(remove)
	return remove
}

// permit applies the objects that 'nodegate manifests --observe' adds.
func (o *otherKind) permit() {
	o.Helper()
	o.allow("--observe", func(options *install.Options) {
		options.Observe = []schema.GroupResource{{Group: o.group, Resource: "netnodes"}}
	})
}

// put creates or replaces an object.
func (o *otherKind) put(object *unstructured.Unstructured) {
	o.Helper()
	o.eventually("object "+object.GetName()+" is written", func() error {
		now, next := object.DeepCopy(), object.DeepCopy()
		if err := o.admin.Get(o.Context(), client.ObjectKeyFromObject(object), now); err != nil {
			return o.admin.Create(o.Context(), next)
		}
		next.SetResourceVersion(now.GetResourceVersion())
		return o.admin.Update(o.Context(), next)
	})
}

// The life of a gate that waits for an object of another project's kind: the kind is not
// served, then nodegate may not read it, then there is no object, the expression fails, is
// false, and is true. The gate closes when the object is deleted, alone or with its kind.
func TestObjectSignal(t *testing.T) {
	e := newOtherKind(newEnv(t))
	e.startController(0)
	e.must(e.admin.Create(t.Context(), onRegression(newGate("net", keyA, e.signal()))))
	k := e.kubelet("n1")
	k.register()
	e.waitsFor("net", "n1", v1alpha1.ReadingNotObserved)
	e.eventually("Ready reports that the kind is not served", func() error {
		return e.messageContains("net", v1alpha1.ConditionReady, "NetNode.v2."+e.group+": the API server does not serve this kind")
	})

	remove := e.serve(apiextensionsv1.ClusterScoped)
	e.eventually("Ready reports what to permit", func() error {
		return e.messageContains("net", v1alpha1.ConditionReady, "add {group: \""+e.group+"\", resource: netnodes} to the chart's value observe")
	})
	e.must(e.condition("net", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFeedsNotSynced))
	e.must(k.is("net", isClosed, keyA))

	e.permit()
	e.waitsFor("net", "n1", v1alpha1.ReadingMissing)
	e.put(e.object("n1", nil))
	e.waitsFor("net", "n1", v1alpha1.ReadingExpressionFailed)
	e.put(e.object("n1", map[string]any{"ready": false}))
	e.waitsFor("net", "n1", v1alpha1.ReadingDiffers)
	e.put(e.object("other", map[string]any{"ready": true}))
	e.put(e.object("n1", map[string]any{"ready": true}))
	k.becomes("net", isOpen, keyA)

	e.must(e.admin.Delete(t.Context(), e.object("n1", nil)))
	k.becomes("net", isClosed, keyA)
	e.put(e.object("n1", map[string]any{"ready": true}))
	k.becomes("net", isOpen, keyA)
	remove()
	e.eventually("Ready reports that the kind is no longer served", func() error {
		return e.messageContains("net", v1alpha1.ConditionReady, "does not serve this kind")
	})
	k.becomes("net", isClosed, keyA) // the API server deletes the objects before the definition
}

// Objects are found by a label, a field, or their owner. All objects of a node must hold, and
// objects of a former Node of the same name do not.
func TestObjectsOfNodes(t *testing.T) {
	e := newOtherKind(newEnv(t))
	e.serve(apiextensionsv1.NamespaceScoped)
	e.permit()
	e.startController(0)
	for name, change := range map[string]func(*v1alpha1.ObjectSignal){
		"by-label": func(s *v1alpha1.ObjectSignal) { s.NodeBy, s.NodeLabel = v1alpha1.NodeByLabel, "example.com/node" },
		"by-field": func(s *v1alpha1.ObjectSignal) { s.NodeBy, s.NodeField = v1alpha1.NodeByField, "spec.nodeName" },
		"by-owner": func(s *v1alpha1.ObjectSignal) {
			s.NodeBy, s.Namespace = v1alpha1.NodeByOwner, daemonNamespace
			s.MatchLabels = map[string]string{"checked": "yes"}
		},
	} {
		e.declare(newGate(name, keyA, e.signal(change)))
	}
	k := e.kubelet("n1")
	node := k.register()
	write := func(name string, ready bool, change ...func(*unstructured.Unstructured)) {
		t.Helper()
		o := e.object(name, map[string]any{"ready": ready})
		o.SetNamespace(daemonNamespace)
		for _, f := range change {
			f(o)
		}
		e.put(o)
	}
	e.waitsFor("by-label", "n1", v1alpha1.ReadingMissing)
	labels := map[string]string{"example.com/node": "n1"}
	write("b", false, func(o *unstructured.Unstructured) { o.SetLabels(labels) })
	write("a", true, func(o *unstructured.Unstructured) { o.SetLabels(labels) })
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
	e := newOtherKind(newEnv(t))
	e.serve(apiextensionsv1.ClusterScoped)
	e.permit()
	start := time.Now()
	e.startController(0)
	labelled := func(s *v1alpha1.ObjectSignal) { s.Expression = `"ready" in object.metadata.?labels.orValue({})` }
	named := func(s *v1alpha1.ObjectSignal) { s.Expression = `object.metadata.generation > 0` }
	first := e.declare(newGate("labelled", keyA, e.signal(labelled)))
	second := e.declare(newGate("named", keyB, e.signal(named)))
	k := e.kubelet("n1")
	k.register()
	e.put(e.object("n1", nil))
	e.waitsFor("labelled", "n1", v1alpha1.ReadingDiffers)
	k.becomesOpenIn("named")
	o := e.object("n1", nil)
	o.SetLabels(map[string]string{"ready": ""})
	e.put(o)
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
	e := newOtherKind(newEnv(t))
	e.startController(0)
	for want, change := range map[string]func(*v1alpha1.ObjectSignal){
		"kind must not be Secret":           func(s *v1alpha1.ObjectSignal) { s.Group, s.Version, s.Kind = "", "v1", "Secret" },
		"nodeField is required when nodeBy": func(s *v1alpha1.ObjectSignal) { s.NodeBy = v1alpha1.NodeByField },
	} {
		if err := e.admin.Create(t.Context(), newGate("bad", keyA, e.signal(change))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	e.must(e.admin.Create(t.Context(), newGate("invalid", keyA, e.signal(func(s *v1alpha1.ObjectSignal) { s.Expression = "object.spec.name" }))))
	e.must(e.admin.Create(t.Context(), newGate("unparsable", keyB, e.signal(func(s *v1alpha1.ObjectSignal) { s.Expression = "node.name ==" }))))
	e.isInvalid("unparsable")
}
