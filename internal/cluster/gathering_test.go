// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"testing"
	"testing/synctest"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nodegate/nodegate/internal/gate"
)

// listener is a sink that knows what there is by name, and in which order it was told.
type listener struct{ told []string }

func (n *listener) put(name string)  { n.told = append(n.told, "put "+name) }
func (n *listener) drop(name string) { n.told = append(n.told, "drop "+name) }
func (n *listener) replace(all []string) {
	for _, name := range all {
		n.told = append(n.told, "all "+name)
	}
}

func initialEnd() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
}

// What is streamed at the beginning is taken in as a whole when it is over, and what
// happened to it meanwhile after that. The reflector sees neither, but all that comes later.
func TestInitialEventsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, sink := watch.NewRaceFreeFake(), &listener{}
		s := newStream[*corev1.Node](inner, sink, func(o any) (string, bool) {
			n, ok := o.(*corev1.Node)
			if !ok {
				return "", false
			}
			return n.Name, true
		})
		defer s.Stop()
		for _, name := range []string{"a", "b"} {
			inner.Add(testNode(name, "1"))
		}
		inner.Modify(testNode("a", "1"))
		inner.Delete(testNode("b", "1"))
		inner.Add(testNode("c", "1"))
		inner.Action(watch.Bookmark, &corev1.Node{})
		inner.Action(watch.Bookmark, initialEnd())
		inner.Modify(testNode("c", "1"))

		for _, want := range []bool{false, true} {
			event := <-s.ResultChan()
			if event.Type != watch.Bookmark || endsInitialEvents(event) != want {
				t.Fatalf("the reflector sees %+v", event)
			}
		}
		if len(sink.told) > 0 {
			t.Errorf("before the end: %v", sink.told)
		}
		s.finish()
		if want := []string{"all a", "all b", "put a", "drop b", "put c"}; !slices.Equal(sink.told, want) {
			t.Errorf("told %v, want %v", sink.told, want)
		}
		event := <-s.ResultChan()
		if n, ok := event.Object.(*corev1.Node); !ok || event.Type != watch.Modified || n.Name != "c" {
			t.Errorf("the reflector sees %+v", event)
		}
	})
}

// A watch that breaks while it streams, or that nobody listens to any more, leaves nothing
// in the sink, and no goroutine (for which the bubble waits).
func TestInitialEventsThatBreakOff(t *testing.T) {
	for name, end := range map[string]func(*watch.RaceFreeFakeWatcher, watch.Interface){
		"closed by the server": func(inner *watch.RaceFreeFakeWatcher, s watch.Interface) {
			inner.Stop()
			if event, open := <-s.ResultChan(); open {
				t.Errorf("the reflector sees %+v", event)
			}
		},
		"stopped": func(_ *watch.RaceFreeFakeWatcher, s watch.Interface) { s.Stop() },
		"stopped with the end on its way": func(inner *watch.RaceFreeFakeWatcher, s watch.Interface) {
			inner.Action(watch.Bookmark, initialEnd())
			synctest.Wait()
			s.Stop()
			s.Stop()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			inner, sink := watch.NewRaceFreeFake(), &listener{}
			s := newStream[*corev1.Node](inner, sink, func(any) (string, bool) { return "a", true })
			inner.Add(testNode("a", "1"))
			end(inner, s)
			synctest.Wait()
			if len(sink.told) > 0 {
				t.Errorf("%s: told %v", name, sink.told)
			}
		})
	}
}

// Of each node's name there is one copy, whoever was told of it first.
func TestNamesAreKeptOnce(t *testing.T) {
	pod := func(f *testFeed, node string) *byte {
		set := (*f.podFeeds.Load())[query].pods
		return unsafe.StringData(set.nodes.nameOf(node))
	}
	runFeed(t, func(api *fakeAPI) { api.nodes().put(testNode("a", "a1")) }, func(t *testing.T, f *testFeed) {
		f.SetNeeds(gate.Needs{Pods: []gate.PodQuery{query}})
		synctest.Wait()
		early := f.nodes.nameOf("b" + string([]byte{'1'}))
		f.api.nodes().put(testNode("b1", "b1"))
		synctest.Wait()
		if got := pod(f, "b1"); got != unsafe.StringData(f.nodes.byName["b1"].Name) || got != unsafe.StringData(early) {
			t.Error("a node's name is kept twice")
		}
		if f.nodes.early.later != true || len(f.nodes.early.names) > 1 {
			t.Errorf("names that nobody waits for are remembered: %v", f.nodes.early.names)
		}
	})
	e := earlyNames{}
	e.forget()
	for i := range 3 * laterMax {
		e.name(string(rune(i)))
	}
	if len(e.names) > laterMax {
		t.Errorf("%d names are remembered", len(e.names))
	}
}
