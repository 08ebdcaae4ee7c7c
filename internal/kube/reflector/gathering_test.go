// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/nodegate/nodegate/internal/kube/kubetest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// recorder is a Sink that records calls.
type recorder struct{ calls []string }

func (r *recorder) Put(name string)  { r.calls = append(r.calls, "put "+name) }
func (r *recorder) Drop(name string) { r.calls = append(r.calls, "drop "+name) }
func (r *recorder) Replace(all []string) {
	for _, name := range all {
		r.calls = append(r.calls, "all "+name)
	}
}

func initialEnd() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
}

// Initial events are passed to the sink together at their end, followed by the changes
// that arrived in between. The reflector sees none of them, but every later event.
func TestInitialEventsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, sink := watch.NewRaceFreeFake(), &recorder{}
		s := newStream[*corev1.Node](inner, sink, func(o any) (string, bool) {
			n, ok := o.(*corev1.Node)
			if !ok {
				return "", false
			}
			return n.Name, true
		})
		defer s.Stop()
		for _, name := range []string{"a", "b"} {
			inner.Add(kubetest.Node(name, "1"))
		}
		inner.Modify(kubetest.Node("a", "1"))
		inner.Delete(kubetest.Node("b", "1"))
		inner.Add(kubetest.Node("c", "1"))
		inner.Action(watch.Bookmark, &corev1.Node{})
		inner.Action(watch.Bookmark, initialEnd())
		inner.Modify(kubetest.Node("c", "1"))

		for _, want := range []bool{false, true} {
			event := <-s.ResultChan()
			if event.Type != watch.Bookmark || endsInitialEvents(event) != want {
				t.Fatalf("the reflector received %+v", event)
			}
		}
		if len(sink.calls) > 0 {
			t.Errorf("calls before the end: %v", sink.calls)
		}
		s.finish("1")
		if want := []string{"all a", "all b", "put a", "drop b", "put c"}; !slices.Equal(sink.calls, want) {
			t.Errorf("calls: %v, want %v", sink.calls, want)
		}
		event := <-s.ResultChan()
		if n, ok := event.Object.(*corev1.Node); !ok || event.Type != watch.Modified || n.Name != "c" {
			t.Errorf("the reflector received %+v", event)
		}
	})
}

// A watch that breaks or is stopped during its initial events leaves nothing in the sink
// and leaks no goroutine (the synctest bubble waits for all of them).
func TestInterruptedInitialEvents(t *testing.T) {
	for name, end := range map[string]func(*watch.RaceFreeFakeWatcher, watch.Interface){
		"closed by the server": func(inner *watch.RaceFreeFakeWatcher, s watch.Interface) {
			inner.Stop()
			if event, open := <-s.ResultChan(); open {
				t.Errorf("the reflector received %+v", event)
			}
		},
		"stopped": func(_ *watch.RaceFreeFakeWatcher, s watch.Interface) { s.Stop() },
		"stopped before the final bookmark is read": func(inner *watch.RaceFreeFakeWatcher, s watch.Interface) {
			inner.Action(watch.Bookmark, initialEnd())
			synctest.Wait()
			s.Stop()
			s.Stop()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			inner, sink := watch.NewRaceFreeFake(), &recorder{}
			s := newStream[*corev1.Node](inner, sink, func(any) (string, bool) { return "a", true })
			inner.Add(kubetest.Node("a", "1"))
			end(inner, s)
			synctest.Wait()
			if len(sink.calls) > 0 {
				t.Errorf("%s: calls: %v", name, sink.calls)
			}
		})
	}
}
