// SPDX-License-Identifier: Apache-2.0

package nodestore

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/packed"
)

// booted returns a Node in a boot.
func booted(boot, version string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "a", ResourceVersion: version},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: boot}},
	}
}

// A pod's status of an earlier boot may arrive after the response that shows the boot, and before the
// watch delivers it.
func TestKnownPodsWhenTheWatchCatchesUp(t *testing.T) {
	known := []gate.Incarnation{7}
	s := newWatched(Options{KnownPods: func(string) []gate.Incarnation { return known }})
	s.ReplaceAt([]*packed.Node{s.Pack(booted("x", "5"))}, "5")
	s.Observe(booted("y", "6"))
	known = []gate.Incarnation{7, 8}
	s.Put(s.Pack(booted("y", "6")))
	if f, _ := s.Get("n1"); f.Boot.Ahead || !slices.Equal(f.Boot.Known, known) {
		t.Errorf("the boot is %+v, want the pods %v, which were known when the watch delivered it", f.Boot, known)
	}
}

// Boot contains whether the beginning of a boot was observed, and when the boot was first
// observed.
func TestObservedBoots(t *testing.T) {
	node := func(uid types.UID, boot, version string) *packed.Node {
		return packed.NewPacker(packed.NewDictionaries()).Node(&gate.Node{Name: "n1", UID: uid, ResourceVersion: version, BootID: boot}, nil)
	}
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	first := func(s watched) { s.ReplaceAt([]*packed.Node{node("a", "x", "5")}, "5") }
	known := []gate.Incarnation{7} // the pods that are ready, at any time
	response := func(boot, version string) func(watched) {
		return func(s watched) { s.Observe(booted(boot, version)) }
	}
	later := func(minutes int) time.Time { return began.Add(time.Duration(minutes) * time.Minute) }
	for name, c := range map[string]struct {
		steps []func(s watched) // one per minute
		want  gate.Boot
	}{
		"listed at first":                  {[]func(watched){first}, gate.Boot{Seen: began}},
		"a new node":                       {[]func(watched){func(s watched) { s.ReplaceAt(nil, "4") }, func(s watched) { s.Put(node("a", "x", "5")) }}, gate.Boot{Seen: later(1)}},
		"reboots":                          {[]func(watched){first, func(s watched) { s.Put(node("a", "y", "6")) }}, gate.Boot{Seen: later(1), After: "x", Known: known}},
		"reboots and changes":              {[]func(watched){first, func(s watched) { s.Put(node("a", "y", "6")) }, func(s watched) { s.Put(node("a", "y", "7")) }}, gate.Boot{Seen: later(1), After: "x", Known: known}},
		"reboots and is listed":            {[]func(watched){first, func(s watched) { s.Put(node("a", "y", "6")) }, func(s watched) { s.ReplaceAt([]*packed.Node{node("a", "y", "7")}, "8") }}, gate.Boot{Seen: later(1), After: "x", Known: known}},
		"reboots twice":                    {[]func(watched){first, func(s watched) { s.Put(node("a", "y", "6")) }, func(s watched) { s.Put(node("a", "z", "7")) }}, gate.Boot{Seen: later(2), After: "y", Known: known}},
		"reboots while not watched":        {[]func(watched){first, func(s watched) { s.ReplaceAt([]*packed.Node{node("a", "y", "6")}, "8") }}, gate.Boot{Seen: later(1)}},
		"created while not watched":        {[]func(watched){func(s watched) { s.ReplaceAt(nil, "4") }, first}, gate.Boot{Seen: later(1)}},
		"reports its first boot ID":        {[]func(watched){func(s watched) { s.ReplaceAt([]*packed.Node{node("a", "", "5")}, "5") }, func(s watched) { s.Put(node("a", "x", "6")) }}, gate.Boot{Seen: later(1)}},
		"another Node of this name":        {[]func(watched){first, func(s watched) { s.Put(node("b", "y", "6")) }}, gate.Boot{Seen: later(1), Known: known}},
		"deleted and created again":        {[]func(watched){first, func(s watched) { s.Put(node("a", "y", "6")) }, func(s watched) { s.Drop(node("a", "y", "7")) }, func(s watched) { s.Put(node("b", "y", "8")) }}, gate.Boot{Seen: later(3), Known: known}},
		"created again much later":         {[]func(watched){first, func(s watched) { s.Drop(node("a", "x", "6")) }, func(watched) {}, func(s watched) { s.Put(node("b", "y", "8")) }}, gate.Boot{Seen: later(3)}},
		"a response is ahead of the watch": {[]func(watched){first, response("z", "8")}, gate.Boot{Seen: later(1), After: "x", Known: known, Ahead: true}},
		"the watch catches up":             {[]func(watched){first, response("z", "8"), func(s watched) { s.Put(node("a", "z", "8")) }}, gate.Boot{Seen: later(1), After: "x", Known: known}},
		"the watch passes the response":    {[]func(watched){first, response("z", "8"), func(s watched) { s.Put(node("a", "x", "7")) }, func(s watched) { s.Put(node("a", "z", "9")) }}, gate.Boot{Seen: later(1), After: "x", Known: known}},
		"there was a boot in between":      {[]func(watched){first, response("z", "8"), func(s watched) { s.Put(node("a", "y", "7")) }, func(s watched) { s.Put(node("a", "z", "8")) }}, gate.Boot{Seen: later(1), After: "y", Known: known}},
		"and another boot":                 {[]func(watched){first, response("z", "8"), func(s watched) { s.Put(node("a", "w", "9")) }}, gate.Boot{Seen: later(2), After: "z", Known: known}},
		"a list catches up":                {[]func(watched){first, response("z", "8"), func(s watched) { s.ReplaceAt([]*packed.Node{node("a", "z", "8")}, "9") }}, gate.Boot{Seen: later(2)}},
		"a list that is older":             {[]func(watched){first, response("z", "8"), func(s watched) { s.ReplaceAt([]*packed.Node{node("a", "x", "7")}, "7") }}, gate.Boot{Seen: later(1), After: "x", Known: known, Ahead: true}},
		"a list with a boot in between":    {[]func(watched){first, response("z", "9"), func(s watched) { s.ReplaceAt([]*packed.Node{node("a", "y", "7")}, "7") }, func(s watched) { s.Put(node("a", "z", "9")) }}, gate.Boot{Seen: later(1), After: "y", Known: known}},
		"an older list in the same boot":   {[]func(watched){first, response("z", "9"), func(s watched) { s.ReplaceAt([]*packed.Node{node("a", "z", "8")}, "8") }, func(s watched) { s.Put(node("a", "z", "9")) }}, gate.Boot{Seen: later(1)}},
		"a response with the first boot":   {[]func(watched){func(s watched) { s.ReplaceAt([]*packed.Node{node("a", "", "5")}, "5") }, response("z", "8"), func(s watched) { s.Put(node("a", "z", "8")) }}, gate.Boot{Seen: later(1)}},
		"a response in the same boot":      {[]func(watched){first, response("x", "8")}, gate.Boot{Seen: began}},
		"late event of the previous boot":  {[]func(watched){first, func(s watched) { s.Put(node("a", "y", "6")) }, func(s watched) { s.Put(node("a", "x", "5")) }}, gate.Boot{Seen: later(1), After: "x", Known: known}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWatched(Options{KnownPods: func(string) []gate.Incarnation { return known }})
			for i, step := range c.steps {
				s.clock = clocktesting.NewFakePassiveClock(later(i))
				step(s)
			}
			if f, _ := s.Get("n1"); !reflect.DeepEqual(f.Boot, c.want) {
				t.Errorf("%+v, want %+v", f.Boot, c.want)
			}
		})
	}
}

// A node is decided about again when the watch has delivered a boot that was known from a response.
func TestWatchCatchesUpWithABoot(t *testing.T) {
	var changes []gate.Change
	s := newWatched(Options{Changed: func(_ string, c gate.Change) { changes = append(changes, c) }})
	s.ReplaceAt([]*packed.Node{s.Pack(booted("x", "5"))}, "5")
	s.Observe(booted("y", "7"))
	changes = nil
	s.Put(s.Pack(booted("x", "6")))
	if len(changes) > 0 {
		t.Errorf("an older state is announced: %+v", changes)
	}
	s.Put(s.Pack(booted("y", "7")))
	if len(changes) != 1 || !changes[0].IsEverything() {
		t.Errorf("announced are %+v, want everything once", changes)
	}
	s.Put(s.Pack(booted("y", "8")))
	if len(changes) != 1 {
		t.Errorf("announced are %+v, want no more", changes)
	}
}

// A whole fleet may be deleted at once. Forgetting a node does not visit the others each time, and what
// is remembered of them is dropped later.
func TestManyNodesAreForgotten(t *testing.T) {
	b := newBoots(nil)
	at := time.Unix(1_800_000_000, 0)
	b.forget("first", at)
	b.deleted["old"] = at.Add(-2 * deletedFor) // a visit would remove it
	for i := range 100 {
		b.forget(fmt.Sprint("next", i), at)
	}
	if _, remembered := b.deleted["old"]; !remembered || len(b.deleted) != 102 {
		t.Errorf("%d deletions are remembered, want 102: the others were visited", len(b.deleted))
	}
	for i := range 10 {
		at = at.Add(deletedFor)
		b.forget(fmt.Sprint("last", i), at)
	}
	if n := len(b.deleted); n > 3 {
		t.Errorf("%d deletions are remembered", n)
	}
}
