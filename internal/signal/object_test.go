// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"strings"
	"testing"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

var ciliumNode = v1alpha1.SignalSource{Object: &v1alpha1.ObjectSignal{Group: "cilium.io", Version: "v2", Kind: "CiliumNode", Expression: "has(object.status)"}}

// ciliumQuery is the query of ciliumNode.
var ciliumQuery = gate.ObjectQuery{
	ObjectSource: gate.ObjectSource{Group: "cilium.io", Version: "v2", Kind: "CiliumNode"}, NodeBy: v1alpha1.NodeByName, Expression: "has(object.status)",
}

// objects returns a node with UID u and these objects.
func objects(all ...gate.Object) *world {
	return aNode(func(w *world) {
		w.facts.Node.UID = "u"
		w.facts.Objects = map[gate.ObjectQuery][]gate.Object{ciliumQuery: all}
	})
}

// All objects of the node must hold.
func TestSeveralObjects(t *testing.T) {
	yes, no, unknown := gate.Object{Name: "yes", State: gate.Holds}, gate.Object{Name: "no", State: gate.NotYet}, gate.Object{Name: "x", Error: "e"}
	former := gate.Object{Name: "former", State: gate.Holds, Owner: "former"}
	check(t, mustCompile(t, ciliumNode), map[string]reads{
		"all hold":            {objects(yes, yes), gate.Holds, v1alpha1.ReadingMatches, "CiliumNode yes"},
		"one does not":        {objects(yes, no), gate.NotYet, v1alpha1.ReadingDiffers, "CiliumNode no"},
		"one does not, first": {objects(no, yes), gate.NotYet, v1alpha1.ReadingDiffers, "CiliumNode no"},
		"one unknown":         {objects(unknown, yes), gate.Unknown, v1alpha1.ReadingExpressionFailed, "CiliumNode x: e"},
		"unknown, then not":   {objects(unknown, no), gate.NotYet, v1alpha1.ReadingDiffers, "CiliumNode no"},
		"one of a former":     {objects(yes, former), gate.NotYet, v1alpha1.ReadingFormerNode, "CiliumNode former"},
		"not observed":        {aNode(), gate.Unknown, notObserved, "CiliumNode.v2.cilium.io"},
	})
}

// An object proves no boot, and needs its query only.
func TestObjectNeeds(t *testing.T) {
	s := mustCompile(t, ciliumNode)
	if n := s.Needs(nil); len(n.Objects) != 1 || n.Objects[0] != ciliumQuery || s.ProvesBoot() {
		t.Errorf("needs %+v", n)
	}
}

// What the API rejects must not compile either.
func TestObjectsThatDoNotCompile(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.ObjectSignal){
		"undeclared reference": func(s *v1alpha1.ObjectSignal) { s.Expression = "labels.a == 'b'" },
		"must return bool":     func(s *v1alpha1.ObjectSignal) { s.Expression = "'text'" },
		"may cost too much": func(s *v1alpha1.ObjectSignal) {
			s.Expression = "object.a.all(x, object.b.all(y, object.c.all(z, x == z)))"
		},
		"nodeBy Label": func(s *v1alpha1.ObjectSignal) { s.NodeBy = v1alpha1.NodeByLabel },
		"nodeBy Name":  func(s *v1alpha1.ObjectSignal) { s.NodeBy, s.NodeField = v1alpha1.NodeByName, "spec.nodeName" },
	} {
		source := v1alpha1.SignalSource{Object: ciliumNode.Object.DeepCopy()}
		change(source.Object)
		if _, err := compile(&source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", source.Object, err, want)
		}
	}
}

// Gates must not reveal objects that nodegate reads for its own purposes. They may read other
// kinds of the same name.
func TestProtectedKinds(t *testing.T) {
	for _, p := range v1alpha1.ProtectedKinds() {
		source := v1alpha1.SignalSource{Object: ciliumNode.Object.DeepCopy()}
		for _, version := range []string{"v1", "v1alpha3"} {
			source.Object.Group, source.Object.Version, source.Object.Kind = p.Group, version, p.Kind
			if _, err := compile(&source); err == nil || !strings.Contains(err.Error(), "kind must not be "+p.Kind) || !strings.Contains(err.Error(), p.Instead) {
				t.Errorf("%s/%s, %s: %v", p.Group, version, p.Kind, err)
			}
		}
		source.Object.Group = "example.com"
		mustCompile(t, source)
	}
}
