// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nodegate/nodegate/bench/fixture"
)

// The limit writes once for each change in its direction.
func TestFollow(t *testing.T) {
	for name, test := range map[string]struct {
		direction Direction
		states    []bool // of the pod, which was not ready before
		want      string
	}{
		"opens":           {Opens, []bool{true}, "true"},
		"repeated events": {Opens, []bool{true, true, true}, "true"},
		"does not close":  {Opens, []bool{true, false}, "true"},
		"opens again":     {Opens, []bool{true, false, true}, "true true"},
		"follows both":    {Follows, []bool{true, false, false, true}, "true false true"},
		"only watches":    {Watches, []bool{true, false}, ""},
		"stays unready":   {Follows, []bool{false, false}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			events, changes := make(chan watch.Event, len(test.states)), make(chan change, len(test.states))
			for _, ready := range test.states {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n"}}
				pod.Status = fixture.PodStatus(pod, ready, time.Unix(1, 0))
				events <- watch.Event{Type: watch.Modified, Object: pod}
			}
			close(events)
			if err := follow(t.Context(), map[string]bool{}, events, test.direction, changes); err == nil {
				t.Error("no error for a watch that ended")
			}
			close(changes)
			var got []string
			for c := range changes {
				if c.node != "n" {
					t.Errorf("node %q", c.node)
				}
				got = append(got, fmt.Sprint(c.ready))
			}
			if s := strings.Join(got, " "); s != test.want {
				t.Errorf("%q, want %q", s, test.want)
			}
		})
	}
}

// The limit's metrics contain what it allocates.
func TestMetrics(t *testing.T) {
	var address strings.Builder
	stop, err := serveMetrics(&address)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	response, err := http.Get("http://" + strings.TrimSpace(address.String()) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\ngo_memstats_mallocs_total ", "\ngo_memstats_alloc_bytes_total "} {
		if !strings.Contains(string(body), want) {
			t.Errorf("there is no %q", want)
		}
	}
}
