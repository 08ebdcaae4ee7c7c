// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

var testSource = gate.ObjectSource{Group: "cilium.io", Version: "v2", Kind: "CiliumNode"}

// testQuery returns a query for objects that are ready.
func testQuery(by v1alpha1.NodeBy, key string) gate.ObjectQuery {
	if by == "" {
		by = v1alpha1.NodeByName
	}
	return gate.ObjectQuery{ObjectSource: testSource, NodeBy: by, NodeKey: key, Expression: "object.status.ready"}
}

// testObject returns an object that names a node in each possible way.
func testObject(name, node string, ready any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode",
		"spec":   map[string]any{"node": map[string]any{"name": node}},
		"status": map[string]any{"ready": ready},
	}}
	o.SetName(name)
	o.SetLabels(map[string]string{"example.com/node": node})
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: "uid"}})
	return o
}

func TestObjects(t *testing.T) {
	for _, query := range []gate.ObjectQuery{
		testQuery(v1alpha1.NodeByLabel, "example.com/node"),
		testQuery(v1alpha1.NodeByField, "spec.node.name"),
		testQuery(v1alpha1.NodeByField, "metadata.labels['example.com/node']"),
		testQuery(v1alpha1.NodeByOwner, ""),
	} {
		t.Run(query.NodeKey+string(query.NodeBy), func(t *testing.T) {
			runFeed(t, func(api *fakeAPI) {
				api.nodes().Put(kubetest.Node("a", "a1"))
				api.nodes().Put(kubetest.Node("b", "b1"))
				api.objects(testSource).Put(testObject("x", "a", true))
			}, func(t *testing.T, f *testFeed) { testObjects(t, f, query) })
		})
	}
}

func testObjects(t *testing.T, f *testFeed, query gate.ObjectQuery) {
	t.Helper()
	kind := f.api.objects(testSource)
	wants := func(what, node, want string) {
		t.Helper()
		got := "unknown"
		if list, observed := f.facts(t, node).Objects[query]; observed {
			got = ""
			for _, o := range list {
				got += fmt.Sprintf("%s %s %s%s;", o.Name, o.State, o.Owner, o.Error)
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	wants("not needed", "a", "unknown")
	f.handler.take()
	f.SetNeeds(gate.Needs{Objects: []gate.ObjectQuery{query}})
	f.handler.take()
	wants("listed", "a", "x Holds uid;")
	wants("no object", "b", "")
	kind.Put(testObject("w", "a", false))
	f.wantChanged(t, "another object", "a")
	wants("two", "a", "w NotYet uid;x Holds uid;")
	same := testObject("w", "a", false)
	same.SetAnnotations(map[string]string{"irrelevant": "true"})
	kind.Put(same)
	f.wantChanged(t, "an irrelevant change")
	kind.Put(testObject("w", "b", false))
	f.wantChanged(t, "another node", "a", "b")
	wants("moved from", "a", "x Holds uid;")
	wants("moved to", "b", "w NotYet uid;")
	kind.remove("w")
	f.wantChanged(t, "deleted", "b")
	kind.Put(testObject("x", "a", "yes"))
	f.wantChanged(t, "not a bool", "a")
	wants("not a bool", "a", "x Unknown uidit returned string instead of bool;")
	kind.set(errForbidden)
	kind.hangUp()
	kubetest.Pass(time.Second)
	wants("forbidden", "a", "unknown")
	kind.set(nil)
	kubetest.Pass(time.Minute)
	wants("observed again", "a", "x Unknown uidit returned string instead of bool;")
	f.handler.take()
	f.SetNeeds(gate.Needs{})
	synctest.Wait()
	kind.Put(testObject("x", "a", true))
	f.wantChanged(t, "no longer needed")
	wants("no longer needed", "a", "unknown")
}

// An owner is a former Node only if it has the name of the object's node. By owner, an object
// belongs to the first Node that owns it.
func TestObjectsOwnedByOtherNodes(t *testing.T) {
	byName, byLabel, byOwner := testQuery("", ""), testQuery(v1alpha1.NodeByLabel, "example.com/node"), testQuery(v1alpha1.NodeByOwner, "")
	set := NewObjects(nodestore.New(nodestore.Options{}), []gate.ObjectQuery{byName, byLabel, byOwner}, func(gate.ObjectQuery) func(string) { return IgnoreNode })
	o := testObject("c", "b", true)
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "a", UID: "a1"}, {APIVersion: "v1", Kind: "Node", Name: "b", UID: "b1"}})
	set.Put(set.Convert(o))
	for _, c := range []struct {
		query gate.ObjectQuery
		node  string
		owner types.UID
	}{{byName, "c", ""}, {byLabel, "b", "b1"}, {byOwner, "a", "a1"}} {
		if on := set.On(c.node, c.query); len(on) != 1 || on[0].State != gate.Holds || on[0].Owner != c.owner {
			t.Errorf("%s: on %s: %+v, want one with the owner %q", c.query.NodeBy, c.node, on, c.owner)
		}
	}
	if on := set.On("b", byOwner); len(on) != 0 {
		t.Errorf("on the second owner: %+v", on)
	}
}

// An object with a long text where the name of its node is expected belongs to no node, and the
// text is not kept. A user who can write one object could change it again and again.
func TestObjectsWithLongTexts(t *testing.T) {
	const long = 1 << 20
	nodes := nodestore.New(nodestore.Options{})
	nodes.Sink(nodes.NeededVersion()).Replace(nil)
	byField, byOwner, failing := testQuery(v1alpha1.NodeByField, "spec.node.name"), testQuery(v1alpha1.NodeByOwner, ""), testQuery("", "")
	failing.Expression = "object.status[object.spec.key]"
	set := NewObjects(nodes, []gate.ObjectQuery{byField, byOwner, failing}, func(gate.ObjectQuery) func(string) { return IgnoreNode })
	var last string
	kept := heapSize(func() any {
		for i := range 100 {
			last = fmt.Sprintf("%03d", i) + strings.Repeat("a", long)
			set.Put(set.Convert(testObject("c", last, true)))
		}
		return set
	})
	if on := len(set.On(last, byField)) + len(set.On(last, byOwner)); kept > 10*long || on > 0 {
		t.Errorf("%.0f bytes are kept, and %d objects found; want almost nothing, and none", kept, on)
	}
	o := testObject("c", "a", true)
	o.Object["spec"] = map[string]any{"key": strings.Repeat("a", long)}
	set.Put(set.Convert(o))
	on := set.On("c", failing)
	if len(on) != 1 || on[0].State != gate.Unknown || on[0].Error == "" || len(on[0].Error) > objectErrorMax {
		t.Errorf("%d objects, want one with an error of at most %d bytes", len(on), objectErrorMax)
		for _, o := range on {
			t.Errorf("%s, and an error of %d bytes", o.State, len(o.Error))
		}
	}
}

// A kind that nodegate may not read makes the signals over it unknown, and nothing else: it
// does not count as unsynced, which would make nodegate unready for all gates.
func TestForbiddenObjectsAreNotAwaited(t *testing.T) {
	query := testQuery("", "")
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		api.objects(testSource).set(errForbidden)
	}, func(t *testing.T, f *testFeed) {
		needs := gate.Needs{Objects: []gate.ObjectQuery{query}, Pods: []gate.PodQuery{{Namespace: "ns", Selector: "a=b"}}}
		f.SetNeeds(needs)
		synctest.Wait()
		if got := f.Unsynced(); len(got) > 0 {
			t.Errorf("unsynced: %q", got)
		}
		status := f.StatusOf(gate.Needs{Objects: needs.Objects})
		i := slices.IndexFunc(status, func(s reflector.Status) bool { return s.Name == objectsName(testSource) })
		if i < 0 || status[i].Synced || !errors.Is(status[i].Err, errForbidden) {
			t.Errorf("the gate's own status: %+v", status)
		}
		if _, observed := f.facts(t, "a").Objects[query]; observed {
			t.Error("the objects count as observed")
		}
	})
}

// Queries of one source share a watch. Objects that name no node belong to none.
func TestObjectsShareAWatch(t *testing.T) {
	byName, byLabel := testQuery("", ""), testQuery(v1alpha1.NodeByLabel, "example.com/node")
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		api.objects(testSource).Put(testObject("a", "", true))
	}, func(t *testing.T, f *testFeed) {
		f.SetNeeds(gate.Needs{Objects: []gate.ObjectQuery{byName, byLabel}})
		synctest.Wait()
		if kind := f.api.objects(testSource); kind.lists != 1 || kind.watched() != 1 {
			t.Errorf("listed %d times, %d watches", kind.lists, kind.watched())
		}
		found := f.facts(t, "a").Objects
		if len(found[byName]) != 1 || len(found[byLabel]) != 0 || len(found) != 2 {
			t.Errorf("objects: %+v", found)
		}
		some := gate.Needs{Objects: []gate.ObjectQuery{byName}}
		if facts, ok := f.FactsOf("a", &some); !ok || len(facts.Objects) != 1 {
			t.Errorf("facts of one query: %+v", facts.Objects)
		}
		f.SetNeeds(some)
		synctest.Wait()
		if kind := f.api.objects(testSource); kind.watched() != 1 {
			t.Errorf("%d watches after a query is no longer needed", kind.watched())
		}
	})
}

// Only the metadata of objects is requested if neither the expression nor the path of a
// field reads anything else.
func TestObjectsMetadataOnly(t *testing.T) {
	metadata := gate.ObjectQuery{ObjectSource: testSource, NodeBy: v1alpha1.NodeByName, Expression: "has(object.metadata.labels)"}
	byAnnotation, bySpec := metadata, metadata
	byAnnotation.NodeBy, byAnnotation.NodeKey = v1alpha1.NodeByField, "metadata.annotations['example.com/node']"
	bySpec.NodeBy, bySpec.NodeKey = v1alpha1.NodeByField, "spec.nodeName"
	for name, c := range map[string]struct {
		queries []gate.ObjectQuery
		want    bool
	}{
		"metadata":              {[]gate.ObjectQuery{metadata}, true},
		"node in an annotation": {[]gate.ObjectQuery{byAnnotation, metadata}, true},
		"node in the spec":      {[]gate.ObjectQuery{bySpec}, false},
		"status":                {[]gate.ObjectQuery{metadata, testQuery("", "")}, false},
	} {
		set := NewObjects(nodestore.New(nodestore.Options{}), c.queries, func(gate.ObjectQuery) func(string) { return IgnoreNode })
		if set.MetadataOnly() != c.want {
			t.Errorf("%s: metadata only: %t", name, !c.want)
		}
	}
	set := NewObjects(nodestore.New(nodestore.Options{}), []gate.ObjectQuery{metadata, byAnnotation}, func(gate.ObjectQuery) func(string) { return IgnoreNode })
	thin := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "a", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"example.com/node": "b"},
	}}
	set.Put(set.Convert(thin))
	if on := set.On("a", metadata); len(on) != 1 || on[0].Name != "ns/a" || on[0].State != gate.Holds {
		t.Errorf("on a: %+v", on)
	}
	if on := set.On("b", byAnnotation); len(on) != 1 || on[0].State != gate.Holds {
		t.Errorf("on b: %+v", on)
	}
}

func TestFieldPath(t *testing.T) {
	for path, want := range map[string][]string{
		"nodeName":      {"nodeName"},
		"spec.nodeName": {"spec", "nodeName"},
		"metadata.annotations['example.com/a.b']": {"metadata", "annotations", "example.com/a.b"},
		"status['a']['b.c'].d-e":                  {"status", "a", "b.c", "d-e"},
	} {
		if got := fieldPath(path); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
