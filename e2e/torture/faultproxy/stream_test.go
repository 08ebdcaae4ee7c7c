// SPDX-License-Identifier: Apache-2.0

package faultproxy_test

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
)

// A connection that loses an event has delivered the earlier ones, however long that takes.
func TestEventsBeforeALostOne(t *testing.T) {
	u := newUpstream(t)
	proxy, client := start(t, u, runtime.ContentTypeJSON)
	proxy.Follow(faultproxy.Plan{
		Lag: func(faultproxy.Request) time.Duration { return time.Second },
		Event: func(e faultproxy.Event) faultproxy.EventFault {
			return map[string]faultproxy.EventFault{"b": {Fault: faultproxy.EventLost}}[e.Name]
		},
	})
	w := watchNodes(t, client)
	for i, name := range []string{"a", "b"} {
		u.events <- watch.Event{Type: watch.Added, Object: newNode(name, i+2)}
	}
	if got, want := received(w, 3), []string{"a", broken, "end"}; !slices.Equal(got, want) {
		t.Errorf("the client received %v, want %v", got, want)
	}
}

// A connection that loses an event has also delivered earlier events that newer ones have
// overtaken: the client resumes after the newer ones, and would never receive them.
func TestOvertakenEventsBeforeALostOne(t *testing.T) {
	for name, test := range map[string]struct {
		faults map[string]faultproxy.EventFault
		want   []string
	}{
		"late":             {map[string]faultproxy.EventFault{"a": {Fault: faultproxy.EventLate, Wait: time.Second}}, []string{"b", "a", broken, "end"}},
		"swapped and late": {map[string]faultproxy.EventFault{"a": {Fault: faultproxy.EventSwapped}, "b": {Fault: faultproxy.EventLate, Wait: 100 * time.Millisecond}}, []string{"b", "a", broken, "end"}},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t)
			proxy, client := start(t, u, runtime.ContentTypeJSON)
			test.faults["c"] = faultproxy.EventFault{Fault: faultproxy.EventLost}
			proxy.Follow(faultproxy.Plan{Event: func(e faultproxy.Event) faultproxy.EventFault { return test.faults[e.Name] }})
			w := watchNodes(t, client)
			for i, name := range []string{"a", "b"} {
				u.events <- watch.Event{Type: watch.Added, Object: newNode(name, i+2)}
			}
			got := received(w, 1)
			u.events <- watch.Event{Type: watch.Added, Object: newNode("c", 4)}
			if got = append(got, received(w, 3)...); !slices.Equal(got, test.want) {
				t.Errorf("the client received %v, want %v", got, test.want)
			}
		})
	}
}
